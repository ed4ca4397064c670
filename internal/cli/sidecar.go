package cli

import (
	"cmp"
	"fmt"
	"log/slog"
	"net/netip"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dataplane"
	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/dialect/sidecar"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/identity/folder"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
)

// sidecarOptions are the flags by which "weir run" serves as a pod's sidecar.
type sidecarOptions struct {
	as, identity, outbound string
	permissive             bool
	inbound, app, forward  []string
}

func (o *sidecarOptions) flags(f *pflag.FlagSet) {
	f.StringVar(&o.as, "as", "", "serve as the sidecar of the `pod` NAMESPACE/NAME, which the files have, or what runs it")
	f.StringVar(&o.identity, "identity", "", "`folder` of the trust domain with the pod's certificate (weir identity)")
	f.StringArrayVar(&o.inbound, "inbound", nil, "`PORT=ADDRESS:PORT`: accept connections to the pod's port there (default: at the pod's own address); may be repeated")
	f.StringArrayVar(&o.app, "app", nil, "`PORT=ADDRESS:PORT`: where the application listens for the pod's port (default: there on 127.0.0.1); may be repeated")
	f.StringVar(&o.outbound, "outbound", "", "`address` at which the application's HTTP requests are accepted, for Services by their host names, also as by a proxy")
	f.BoolVar(&o.permissive, "permissive", false, "serve clients without TLS, too: as nobody, for the time until all clients have an identity")
	f.StringArrayVar(&o.forward, "forward", nil, "`ADDRESS:PORT=SERVICE:PORT`: pass connections on to a Service (NAME or NAMESPACE/NAME); may be repeated")
}

// apply makes a translation that of a sidecar, gives the data plane the pod's identity, and returns what picks the
// sidecar's part of a configuration. A *flags.Fault is a wrong flag.
func (o *sidecarOptions) apply(translation *control.Options, serve *dataplane.Options, log *slog.Logger) (func(*model.Config) *model.Config, error) {
	of, err := o.options()
	if err != nil {
		return nil, err
	}
	if o.identity == "" {
		return nil, flags.Errorf("--as needs --identity: the folder of a trust domain with the pod's certificate, which \"weir identity\" makes")
	}
	source, err := folder.Open(o.identity, of.Namespace, of.Name, log)
	if err != nil {
		return nil, fmt.Errorf("--identity: %w; \"weir identity %s PATH...\" makes certificates for the pods of files", err, o.identity)
	}
	if own, want := source.Identity().ID.TrustDomain(), cmp.Or(translation.TrustDomain, access.DefaultTrustDomain); own != want {
		return nil, flags.Errorf("--identity: the trust domain of %s is %q, not %q: say --trust-domain %s", o.identity, own, want, own)
	}
	serve.Identities = func(name string) *spiffe.Identity {
		if name == sidecar.Identity {
			return source.Identity()
		}
		return nil
	}
	translation.Sidecar, translation.Serve = of, []string{"none"}
	owner := of.Owner()
	return func(c *model.Config) *model.Config { return c.Of(owner) }, nil
}

func (o *sidecarOptions) options() (out sidecar.Options, err error) {
	var ok bool
	out.Plain = o.permissive
	if out.Namespace, out.Name, ok = strings.Cut(o.as, "/"); !ok || out.Namespace == "" || out.Name == "" || strings.Contains(out.Name, "/") {
		return out, flags.Errorf("--as %q: want NAMESPACE/NAME", o.as)
	}
	if out.Inbound, err = portAddresses("--inbound", o.inbound); err != nil {
		return out, err
	}
	if out.App, err = portAddresses("--app", o.app); err != nil {
		return out, err
	}
	if o.outbound != "" {
		if out.Outbound, err = netip.ParseAddrPort(o.outbound); err != nil || out.Outbound.Port() == 0 {
			return out, flags.Errorf("--outbound %q: want ADDRESS:PORT, such as 127.0.0.1:15001", o.outbound)
		}
	}
	for _, text := range o.forward {
		at, to, _ := strings.Cut(text, "=")
		address, err := netip.ParseAddrPort(at)
		name, port, ok := cutLast(to, ":")
		n, numeric := portNumber(port)
		if err != nil || address.Port() == 0 || !ok || !numeric || name == "" {
			return out, flags.Errorf("--forward %q: want ADDRESS:PORT=SERVICE:PORT, such as 127.0.0.1:5432=shop/db:5432", text)
		}
		f := sidecar.Forward{Address: address, Namespace: out.Namespace, Name: name, Port: n}
		if namespace, rest, ok := strings.Cut(name, "/"); ok {
			f.Namespace, f.Name = namespace, rest
		}
		out.Forwards = append(out.Forwards, f)
	}
	return out, nil
}

// portAddresses reads PORT=ADDRESS:PORT.
func portAddresses(flag string, all []string) (map[int32]netip.AddrPort, error) {
	out := map[int32]netip.AddrPort{}
	for _, text := range all {
		port, address, _ := strings.Cut(text, "=")
		n, ok := portNumber(port)
		at, err := netip.ParseAddrPort(address)
		if !ok || err != nil || at.Port() == 0 {
			return nil, flags.Errorf("%s %q: want PORT=ADDRESS:PORT, such as 8080=127.0.0.1:15001", flag, text)
		}
		if _, twice := out[n]; twice {
			return nil, flags.Errorf("%s %q: port %d is there twice", flag, text, n)
		}
		out[n] = at
	}
	return out, nil
}

func portNumber(text string) (int32, bool) {
	n, err := strconv.ParseUint(text, 10, 16)
	return int32(n), err == nil && n > 0
}

func cutLast(s, sep string) (before, after string, ok bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}
