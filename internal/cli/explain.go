package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/explain"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/screen"
)

func newExplain(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [--from WHO] [PATH...] -- [METHOD] URL [-H 'NAME: VALUE']... | curl ...",
		Short: "Say what would happen to a request, and why",
		Long: `Explain compiles the files as the proxy would and asks the proxy's own matching
what becomes of a request: which listener and rule take it, why better-looking
ones lost, which filters apply, which backends answer with which probability,
which mirrors get a copy, and what is forwarded; or why the request is refused,
and which route or split that is left out would take it. Nothing is sent.

What follows -- is a curl command, or reads like one: its options in any order,
with --from ADDRESS for where the connection comes from. With the word curl in
front the header fields count that curl sends by itself. The command may be one
word in quotes, or - for the standard input; what of it cannot be taken into
account is told. A URL without a port means 80 or 443, or the only port there
is for its scheme. tcp://HOST:PORT is a connection to a TCP port.

Without PATHs it reads a Kubernetes cluster, with your own rights and without
asking Weir's controller. The Gateway is the one of --gateway, or the one whose
address is the URL's host (with -H 'Host: ...'), or the only one that listens
for the request.

With --from in front of the paths, it is asked whether a client may make the
call at all: which workloads the URL's Service leads to, by the routes and splits
that the client's sidecar has for it, on which port, and for each the rule that
allows it, or the nearest rules and why they do not. WHO is
NAMESPACE/SERVICEACCOUNT, KIND/NAMESPACE/NAME of a pod or what runs pods, such as
deployment/shop/cart, node/NAME, or a SPIFFE ID; without a namespace it is of
default. The URL's host is a Service as the client would name it (NAME,
NAME.NAMESPACE, NAME.NAMESPACE.svc), or the address of a pod.`,
		Example: `  weir explain routes/ -- 'http://shop.example/cart?x=1'
  weir explain routes/ -- GET https://shop.example/cart -H 'user-agent: Firefox'
  weir explain -o json routes/ -- POST http://shop.example/order
  weir explain routes/ -- curl -sSk -H 'x-beta: yes' -d a=1 https://shop.example/order
  pbpaste | weir explain routes/ -- -                                   a command copied from a browser
  weir explain -- http://shop.example/cart                              in a cluster
  weir explain --gateway shop/edge -- http://10.250.0.16/cart -H 'Host: shop.example'
  weir explain --from deployment/shop/cart mesh/ -- POST http://orders.shop:8080/orders
  weir explain --from shop/cart mesh/ -- tcp://db.shop:5432`,
	}
	output := outputFlag(cmd, "text", "json")
	in := newInput(s, cmd)
	gateway := gatewayFlag(cmd)
	from := cmd.Flags().String("from", "", "`client` that makes the call: is it allowed, and by which rule? NAMESPACE/SERVICEACCOUNT, KIND/NAMESPACE/NAME, such as gateway/shop/edge in a cluster, node/NAME or a SPIFFE ID")
	cmd.Args = func(cmd *cobra.Command, args []string) error {
		if cmd.ArgsLenAtDash() < 0 {
			return flags.Errorf("put -- between the paths and the request: %s", "weir explain PATH... -- METHOD URL")
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		dash := cmd.ArgsLenAtDash()
		if slices.Contains(args[:dash], "-") && len(args[dash:]) == 1 && args[dash] == "-" {
			return flags.Errorf("the standard input holds either the files or the command, not both")
		}
		request, err := readRequest(args[dash:], s.in)
		if err != nil {
			return err
		}
		client := cmd.Flags().Changed("from")
		if client && *gateway != "" {
			return flags.Errorf("--from asks workloads, which no Gateway serves: leave out --gateway")
		}
		in.workloads = client
		l, err := in.load(cmd.Context(), args[:dash], s.in)
		if err != nil {
			return err
		}
		defer l.close()
		if client {
			return explainFrom(s, l, *from, request, output.Value)
		}
		served := l.served()
		e, err := served.Explain(request, model.Owner(*gateway))
		if err != nil {
			return l.gatewayFault(err)
		}
		if output.Value == "json" {
			err = writeExplanation(s.out, e, served)
		} else {
			err = e.Print(s.out, screen.Of(s.out), served.Origin)
		}
		if err == nil && !e.Matched() {
			return &exitError{code: exitNoMatch}
		}
		return err
	}
	return cmd
}

// maxCommand bounds a command that is read from the standard input, in bytes.
const maxCommand = 1 << 20

// readRequest reads the request that follows --; the one word "-" stands for a command in the standard input.
func readRequest(args []string, stdin io.Reader) (*curl.Request, error) {
	var r *curl.Request
	var err error
	if len(args) == 1 && args[0] == "-" {
		text, failed := io.ReadAll(io.LimitReader(stdin, maxCommand+1))
		switch {
		case failed != nil:
			return nil, failed
		case len(text) > maxCommand:
			return nil, flags.Errorf("the command in the standard input is longer than %d bytes", maxCommand)
		}
		r, err = curl.ParseText(string(text))
	} else {
		r, err = curl.Parse(args)
	}
	switch {
	case errors.Is(err, curl.ErrOneURL):
		return nil, flags.Errorf("which request? Write it after --, such as: GET http://shop.example/cart, or a curl command")
	case err != nil:
		return nil, flags.Errorf("%w", err)
	}
	return r, nil
}

// served is what was read, for requests to be explained by.
func (l *look) served() *explain.Served {
	return &explain.Served{Config: l.Config, Set: l.set, Findings: l.Findings, ProxyPerGateway: l.proxyPerGateway()}
}

func writeExplanation(w io.Writer, e *explain.Explanation, served *explain.Served) error {
	withOrigins, err := explain.WithOrigins(e, served.Origin)
	if err != nil {
		return err
	}
	return process.WriteJSON(w, withOrigins)
}

// gatewayFlag names one of a cluster's Gateways.
func gatewayFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("gateway", "", "`namespace/name` of the Gateway, in a cluster")
}

// gatewayFault says what to do about an *explain.GatewayError, and is any other error as it is.
func (l *look) gatewayFault(err error) error {
	var g *explain.GatewayError
	if !errors.As(err, &g) {
		return err
	}
	switch g.Problem {
	case explain.NotSeparate:
		return flags.Errorf("--gateway is for a cluster; files are served as one, on the listeners' ports")
	case explain.UnknownGateway:
		if len(g.Gateways) == 0 {
			return flags.Errorf("--gateway %s: no Gateway is served", g.Gateway)
		}
		return &listed{flags.Errorf("--gateway %s: no such Gateway is served; there is", g.Gateway), g.Lines()}
	case explain.NoGateway:
		if l.client == nil {
			return &exitError{exitNoMatch, l.silent()}
		}
		return errors.New("the cluster has no Gateway of Weir's with a listener: \"weir status\" tells more")
	case explain.NoneListens:
		return &exitError{exitNoMatch, &listed{errors.New("no Gateway listens for this; there is"), g.Lines()}}
	}
	return &listed{flags.Errorf("several Gateways may get this; say which by --gateway, or by an address in the URL (the host by -H 'Host: ...')"), g.Lines()}
}

// silent says that no listener is in manifests for a cluster, and how to ask what is served without one.
func (l *look) silent() error {
	text := "nothing in these files listens: they are for a cluster"
	if l.By != "" {
		text += ", as " + l.By
	}
	text += ", and have no Gateway with a listener"
	if r := newCheckReport(l.set, l.Findings); r.Errors > 0 {
		text += fmt.Sprintf(" (\"weir check\" shows %s)", screen.Count(r.Errors, "error"))
	}
	return &listed{errors.New(text), []string{
		"  --target files shows what \"weir run\" would serve",
		"  --from NAMESPACE/SERVICEACCOUNT shows what a pod of the mesh would get",
	}}
}
