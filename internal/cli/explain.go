package cli

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

func newExplain(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "explain [PATH...] -- [METHOD] URL [-H 'NAME: VALUE']... | curl ...",
		Short: "Say what would happen to a request, and why",
		Long: `Explain compiles the files as the proxy would and asks the proxy's own matching
what becomes of a request: which listener and rule take it, why better-looking
ones lost, which filters apply, which backends answer with which probability,
which mirrors get a copy, and what is forwarded; or why the request is refused,
and which route would take it that is left out. Nothing is sent.

What follows -- is a curl command, or reads like one: its options in any order,
with --from ADDRESS for where the connection comes from. With the word curl in
front the header fields count that curl sends by itself. The command may be one
word in quotes, or - for the standard input; what of it cannot be taken into
account is told. A URL without a port means 80 or 443, or the only port there
is for its scheme. tcp://HOST:PORT is a connection to a TCP port.

Without PATHs it reads a Kubernetes cluster, with your own rights and without
asking Weir's controller. The Gateway is the one of --gateway, or the one whose
address is the URL's host (with -H 'Host: ...'), or the only one that listens
for the request.`,
		Example: `  weir explain routes/ -- 'http://shop.example/cart?x=1'
  weir explain routes/ -- GET https://shop.example/cart -H 'user-agent: Firefox'
  weir explain -o json routes/ -- POST http://shop.example/order
  weir explain routes/ -- curl -sSk -H 'x-beta: yes' -d a=1 https://shop.example/order
  pbpaste | weir explain routes/ -- -                                   a command copied from a browser
  weir explain -- http://shop.example/cart                              in a cluster
  weir explain --gateway shop/edge -- http://10.250.0.16/cart -H 'Host: shop.example'`,
	}
	output := outputFlag(cmd, "text", "json")
	in := newInput(s, cmd)
	gateway := gatewayFlag(cmd)
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
		l, err := in.load(cmd.Context(), args[:dash], s.in)
		if err != nil {
			return err
		}
		defer l.close()
		e, err := l.explain(request, model.GatewayKey(*gateway))
		if err != nil {
			return err
		}
		e.mirrorsOff(l.Findings)
		if output.Value == "json" {
			err = writeWithOrigins(s.out, e, l.set)
		} else {
			err = e.print(s.out, screenOf(s.out), func(ref model.Ref) string { return originOf(l.set, ref).String() })
		}
		if err == nil && !e.matched() {
			return &exitError{code: exitNoMatch}
		}
		return err
	}
	return cmd
}

// explanation is what explain prints.
type explanation struct {
	Request *clientRequest `json:"request"`
	// Gateway, "namespace/name", gets the request in a cluster; GatewayBy says why it is that one.
	Gateway   model.GatewayKey `json:"gateway,omitempty"`
	GatewayBy string           `json:"gatewayBy,omitempty"`
	// Listener that takes the request; nil when none does, and Reason says why.
	Listener *model.Listener `json:"listener,omitempty"`
	Reason   string          `json:"reason,omitempty"`
	// Client is who the request is taken to be from, if it is known where the connection comes from; ForwardedFor is X-Forwarded-For as backends
	// get it.
	Client       string `json:"client,omitempty"`
	ForwardedFor string `json:"forwardedFor,omitempty"`
	// Note is worth knowing about how the listener was chosen.
	Note string `json:"note,omitempty"`
	// Rule takes the connection, if it is one to a TCP port.
	Rule *model.Ref `json:"rule,omitempty"`
	*routing.Explanation
	// PathPolicy is there if the policy is strict or common servers read the path in several ways.
	PathPolicy *routing.PathExplanation `json:"pathPolicy,omitempty"`

	Filters  *model.Filters `json:"filters,omitempty"`
	Timeouts model.Timeouts `json:"timeouts,omitzero"`
	Retry    *model.Retry   `json:"retry,omitempty"`
	Session  *model.Session `json:"session,omitempty"`
	// LeftOut is what would take the request if it were valid.
	LeftOut []leftOut `json:"leftOut,omitempty"`

	// Answer is given without a backend: a redirect, a fault, or because the request is refused.
	Answer   *answer            `json:"answer,omitempty"`
	Backends []explainedBackend `json:"backends,omitempty"`
	Mirrors  []explainedMirror  `json:"mirrors,omitempty"`
	// MirrorsOff are those that copy nothing, since something is wrong with them.
	MirrorsOff []offMirror `json:"mirrorsOff,omitempty"`
}

// answer is what the proxy says by itself.
type answer struct {
	// Status is 0 for a connection, which is reset.
	Status   int    `json:"status"`
	Location string `json:"location,omitempty"`
	Reason   string `json:"reason,omitempty"`
}

type explainedBackend struct {
	// Ref is where the backend was written, or the leaf of a split.
	Ref     model.Ref `json:"ref,omitzero"`
	Service string    `json:"service,omitempty"`
	// Probability is 0..1; exactly Weight of every WeightSum requests.
	Probability float64  `json:"probability"`
	Weight      uint64   `json:"weight"`
	WeightSum   uint64   `json:"weightSum"`
	Endpoints   []string `json:"endpoints,omitempty"`
	// ProxyProtocol is the version of the PROXY header that connections to them begin with.
	ProxyProtocol int               `json:"proxyProtocol,omitempty"`
	Forwarded     *forwarded        `json:"forwarded,omitempty"`
	Filters       *model.Filters    `json:"filters,omitempty"`
	Answer        *answer           `json:"answer,omitempty"`
	Mirrors       []explainedMirror `json:"mirrors,omitempty"`
	// Splits of the service that were asked; if the last takes the request, Leaves answer it in the service's stead.
	Splits []routing.ExplainedSplit `json:"splits,omitempty"`
	Leaves []explainedBackend       `json:"leaves,omitempty"`
}

// forwarded is the request line and host that a backend sees, or a mirror.
type forwarded struct {
	Method string `json:"method"`
	Target string `json:"target"`
	Host   string `json:"host"`
	// Mark is the field by which a mirror knows copies, unless the proxy was told otherwise.
	Mark string `json:"mark,omitempty"`
}

type explainedMirror struct {
	// Ref is where the mirror was written, or the leaf of a split.
	Ref         model.Ref `json:"ref,omitzero"`
	Service     string    `json:"service"`
	Probability float64   `json:"probability"`
	Numerator   uint32    `json:"numerator,omitempty"`
	Denominator uint32    `json:"denominator,omitempty"`
	Endpoints   []string  `json:"endpoints,omitempty"`
	// Copies are what it gets: the request as the backend gets it that answers, and so more than one if backends get different ones.
	Copies []forwarded `json:"copies,omitempty"`
	// Splits of the service that were asked; if the last takes the request, Leaves get the copies in the service's stead.
	Splits []routing.ExplainedSplit `json:"splits,omitempty"`
	Leaves []explainedMirror        `json:"leaves,omitempty"`
}

// matched says that a rule takes the request or the connection.
func (e *explanation) matched() bool { return e.Rule != nil || e.Explanation != nil && e.Winner != nil }

func explain(cfg *model.Config, r *clientRequest) *explanation {
	e := &explanation{Request: r}
	table, _ := routing.Compile(cfg, nil)
	if r.scheme == "tcp" {
		e.connection(cfg, table)
		return e
	}
	port := e.findPort(table)
	if port == nil {
		return e
	}
	if r.refused != nil {
		e.refuse("the proxy refuses the request", *r.refused)
		return e
	}
	if a := r.parsed.AnswersItself(); a != nil {
		e.refuse("the proxy answers this itself", *a)
		return e
	}
	path, err := routing.NormalizePath(r.path)
	if err != nil {
		e.refuse("the path is not valid", proxy.Refusal{Status: http.StatusBadRequest, Reason: telemetry.BadRequest, Detail: err.Error()})
		return e
	}
	listener := e.listener(port)
	if listener == nil {
		return e
	}
	e.Listener = listener.Listener
	e.client()
	match := routing.Request{Host: r.host, Method: r.Method, Path: path, Query: r.query, Fields: r.fields}
	why := listener.Explain(&match)
	e.Explanation = &why
	if why.Winner == nil {
		e.Reason = "no rule of the listener matches, the answer is 404"
		e.Answer = &answer{Status: http.StatusNotFound, Reason: string(telemetry.NoRoute)}
		switch match.Excess() {
		case routing.NoExcess:
		case routing.ExcessField:
			e.Reason = "the request's fields are too long for the patterns they have to be matched with, the answer is 431"
			e.Answer = &answer{Status: http.StatusRequestHeaderFieldsTooLarge, Reason: string(telemetry.HeadTooLarge)}
		default:
			e.Reason = "the request's target is too long for the patterns it has to be matched with, the answer is 414"
			e.Answer = &answer{Status: http.StatusRequestURITooLong, Reason: string(telemetry.HeadTooLarge)}
		}
		return e
	}
	if e.PathPolicy = listener.ExplainPath(r.path, &match, &why.Decision); e.PathPolicy != nil && e.PathPolicy.Refused != "" {
		e.Answer = &answer{Status: http.StatusBadRequest, Reason: string(telemetry.AmbiguousPath)}
		return e
	}
	if a := r.parsed.Judge(); a != nil {
		e.Answer = &answer{Status: a.Status, Reason: cmpOr(string(a.Reason), a.Detail)}
		if a.Reason != "" {
			e.Answer.Reason += ": " + a.Detail
		}
		return e
	}
	e.outcome(cfg, why.Decision, match)
	if e.Answer != nil && e.Answer.Location != "" && r.follow {
		r.Notes = append(r.Notes, "-L asks next for "+e.Answer.Location+", which is another request to explain")
	}
	return e
}

// refuse says that the proxy answers by itself, before it looks for a rule.
func (e *explanation) refuse(why string, a proxy.Refusal) {
	e.Reason = fmt.Sprintf("%s, the answer is %d: %s", why, a.Status, a.Detail)
	e.Answer = &answer{Status: a.Status, Reason: string(a.Reason)}
}

// client says who the request is from.
func (e *explanation) client() {
	r := e.Request
	if !r.from.IsValid() {
		return
	}
	p := proxy.Preview{Scheme: r.scheme, Authority: r.authority, Peer: r.from, Fields: r.wire()}
	e.Client, e.ForwardedFor = p.Client(e.Listener.Front)
}

// findPort finds the port for the request's scheme and port, or sets Reason.
func (e *explanation) findPort(t *routing.Table) *routing.Port {
	r := e.Request
	tls := r.scheme == "https"
	var fit []*routing.Port
	for _, p := range t.Ports() {
		if p.TLS == tls && !p.TCP {
			fit = append(fit, p)
		}
	}
	wanted := r.wantedPort()
	at := slices.IndexFunc(fit, func(p *routing.Port) bool { return p.Number == wanted })
	switch {
	case at >= 0:
		return fit[at]
	case r.port == 0 && len(fit) == 1:
		e.Note = fmt.Sprintf("nothing listens on port %d; taken is the only port for %s, %d", wanted, r.scheme, fit[0].Number)
		return fit[0]
	}
	e.noPort(t, r.scheme, wanted)
	return nil
}

// noPort says that nothing listens there, and where there is something.
func (e *explanation) noPort(t *routing.Table, scheme string, wanted int32) {
	var have []string
	for _, p := range t.Ports() {
		have = append(have, portName(p))
	}
	e.Reason = fmt.Sprintf("nothing listens for %s on port %d; there is: %s", scheme, wanted, cmpOr(strings.Join(finding.First(have, maxListed), ", "), "no listener at all"))
}

// listener finds the listener of a port that takes the request's host, or sets Reason.
func (e *explanation) listener(p *routing.Port) *routing.Listener {
	l := p.Listener(e.Request.host)
	if l == nil {
		var have []string
		for _, l := range p.Listeners {
			have = append(have, l.Listener.Name+" for "+cmpOr(l.Listener.Hostname, "any host"))
		}
		e.Reason = fmt.Sprintf("no listener on port %d takes the host %q, the answer is 404; there is: %s", p.Number, e.Request.host, strings.Join(finding.First(have, maxListed), ", "))
		e.Answer = &answer{Status: http.StatusNotFound, Reason: string(telemetry.NoListener)}
	}
	return l
}

// maxListed is how many listeners a message lists.
const maxListed = 20

func portName(p *routing.Port) string {
	protocol := "http"
	switch {
	case p.TLS:
		protocol = "https"
	case p.TCP:
		protocol = "tcp"
	}
	return fmt.Sprintf("%s on %s:%d", protocol, cmpOr(p.Address, "*"), p.Number)
}

func cmpOr(s, other string) string {
	if s == "" {
		return other
	}
	return s
}

// print writes the explanation for people; origin says where an object was written.
func (e *explanation) print(w io.Writer, screen screen, origin func(model.Ref) string) error {
	p := &explainPrinter{screen: screen, origin: origin}
	p.explanation(e)
	_, err := io.WriteString(w, p.String())
	return err
}
