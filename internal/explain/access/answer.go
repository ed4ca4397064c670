package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/curl"
	"github.com/weirmesh/weir/internal/exchange"
	"github.com/weirmesh/weir/internal/explain"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/routing"
)

// Answer says whether a client may make a call. Its JSON form is the output of "weir explain --from -o json".
type Answer struct {
	Request *curl.Request `json:"request"`
	Client  *Client       `json:"client"`
	// Service is what the call goes to, unless that is a pod's address.
	Service *Service `json:"service,omitempty"`
	// Route is what the client's routes and splits do with the call, if there are any for the Service's port.
	Route   *explain.Explanation `json:"route,omitempty"`
	Verdict Verdict              `json:"verdict"`
	// Reason is why no workload is asked.
	Reason string   `json:"reason,omitempty"`
	Notes  []string `json:"notes,omitempty"`
	// Path is the path as rules compare it. Ambiguous is what of it servers read in different ways.
	Path      string `json:"path,omitempty"`
	Ambiguous string `json:"ambiguous,omitempty"`
	// Targets are the workloads that may get the call.
	Targets []Target `json:"targets"`

	request policy.Request
}

// Verdict is what becomes of a call.
type Verdict string

const (
	Allowed Verdict = "allowed"
	Denied  Verdict = "denied"
	// Audited: it would be denied, and passes, since the workload's namespace is audited.
	Audited Verdict = "audited"
	// Unenforced: it would be denied, and passes, since the workload has no sidecar.
	Unenforced Verdict = "unenforced"
	// Partly: some workloads deny it.
	Partly Verdict = "partly"
	// Refused: the proxy answers it itself, whoever asks.
	Refused Verdict = "refused"
	// Unserved: it reaches no workload that is known.
	Unserved Verdict = "unserved"
)

// Passes reports whether the call is answered by all workloads that may get it.
func (v Verdict) Passes() bool { return v == Allowed || v == Audited || v == Unenforced }

// Target is a workload that may get the call, and what it does.
type Target struct {
	Workload model.Ref `json:"workload"`
	// Port is the pods' port; 0 if the Service leads to none.
	Port    int32   `json:"port,omitempty"`
	State   State   `json:"state"`
	Verdict Verdict `json:"verdict"`
	// Reason is the name of the decision in logs and metrics.
	Reason string `json:"reason,omitempty"`
	// By is the rule that allows it.
	By *Rule `json:"by,omitempty"`
	// Near are rules that do not allow it, the nearest first, those for other clients only if none is for this one; More is how many more there are.
	Near []Rule `json:"near,omitempty"`
	More int    `json:"more,omitempty"`
}

// State is when a workload denies.
type State struct {
	// Deny is "never" for a workload that nothing governs, "governed" or "all".
	Deny  string `json:"deny"`
	Audit bool   `json:"audit,omitempty"`
	// Unenforced means that it denies nothing, as its pods have no sidecar.
	Unenforced bool `json:"unenforced,omitempty"`
}

func (served *Served) stateOf(t *policy.Table) State {
	w := t.Workload()
	s := State{Deny: "never", Audit: w.Audit, Unenforced: served.bare(w.Ref)}
	switch {
	case w.Deny == model.DenyAll:
		s.Deny = string(model.DenyAll)
	case t.Governed():
		s.Deny = "governed"
	}
	return s
}

// String is the state in words.
func (s State) String() string {
	text := map[string]string{"never": "open", "governed": "governed", string(model.DenyAll): "deny-all"}[s.Deny]
	if s.Audit {
		text += ", audited"
	}
	if s.Unenforced {
		text += ", no sidecar"
	}
	return text
}

// Rule is a rule that names the workload.
type Rule struct {
	Ref     model.Ref `json:"rule"`
	Binding model.Ref `json:"binding,omitzero"`
	Match   model.Ref `json:"match,omitzero"`
	// Source is the client in the rule; without a namespace or a name it is any. Given is where it is written.
	Source *model.Source `json:"source,omitempty"`
	Given  model.Ref     `json:"given,omitzero"`
	// Fails are the conditions that do not hold.
	Fails []Fail `json:"fails,omitempty"`
}

// Fail is a condition of a rule that does not hold.
type Fail struct {
	// Condition is "force", "source", "port", "traffic", "method", "path", "ambiguity" or "header".
	Condition string `json:"condition"`
	Text      string `json:"text"`
}

// maxNear bounds the rules that are told of one workload.
const maxNear = 5

// Explain says whether a client may make a call; the error is a *WhoError or a *HostError.
func (s *Served) Explain(who string, r *curl.Request) (*Answer, error) {
	client, err := s.Client(who)
	if err != nil {
		return nil, err
	}
	asked := *r
	a := &Answer{Request: &asked, Client: client, Targets: []Target{}, Notes: slices.Clone(s.Notes)}
	if !a.read(&asked) {
		a.Verdict = Refused
		return a, nil
	}
	a.Targets = nil
	if err := s.destination(a, &asked); err != nil {
		return nil, err
	}
	if a.Verdict == "" {
		a.sum()
	}
	if a.Targets == nil {
		a.Targets = []Target{}
	}
	return a, nil
}

// fields are header fields by lower-case name.
type fields map[string]string

func (f fields) Field(name string) (string, bool) {
	v, ok := f[name]
	return v, ok
}

// read reads the request as the proxy does; false means that the proxy refuses it.
func (a *Answer) read(r *curl.Request) bool {
	if !r.Protocol().Requests() {
		a.request.Protocol = policy.TCP
		return true
	}
	if r.Protocol().TLS() {
		a.Notes = append(a.Notes, "judged as a request that the proxy can read; a connection that is encrypted by the programs themselves is judged as tcp://HOST:PORT")
	}
	parsed, refused := exchange.PreviewRequest(r.Head())
	if refused != nil {
		a.Reason = fmt.Sprintf("the proxy refuses the request, the answer is %d: %s", refused.Status, refused.Detail)
		return false
	}
	if err := a.take(parsed.Path); err != nil {
		a.Reason = "the path is not valid, the answer is 400: " + err.Error()
		return false
	}
	all := fields{}
	for i := range parsed.Fields {
		f := &parsed.Fields[i]
		if http1.HopByHop(f, parsed.Fields) {
			continue // it ends at the proxy, so it does not count
		}
		name, value := strings.ToLower(f.Name), f.Value
		if before, ok := all[name]; ok {
			value = before + ", " + value
		}
		all[name] = value
	}
	a.request = policy.Request{Method: parsed.Method, Path: a.Path, Ambiguous: a.Ambiguous != "", Fields: all}
	return true
}

// take reads the path that rules compare.
func (a *Answer) take(path string) error {
	normal, err := routing.NormalizePath(path)
	if err == nil {
		a.Path, _ = policy.Path(normal, nil)
		a.Ambiguous = routing.Ambiguity(path).Words()
	}
	return err
}

// add judges the call at a port of a workload; port 0 is none.
func (s *Served) add(a *Answer, w *model.Workload, port int32) {
	table := policy.Compile(w, s.Config.Policies)
	t := Target{Workload: w.Ref, Port: port, State: s.stateOf(table), Verdict: Unserved}
	if port == 0 {
		a.Targets = append(a.Targets, t)
		return
	}
	v := table.Subject(&a.Client.peer, port).Judge(&a.request)
	t.Reason = v.Reason.String()
	switch {
	case v.Reason.Passes():
		t.Verdict = Allowed
	case t.State.Unenforced:
		t.Verdict = Unenforced
	case w.Audit:
		t.Verdict = Audited
	default:
		t.Verdict = Denied
	}
	if v.Reason != policy.Ungoverned {
		own := false
		for _, e := range table.Explain(&a.Client.peer, port, &a.request) {
			rule := a.rule(&e, w, port)
			own = own || rule.Source != nil
			switch {
			case v.Policy != nil:
				if e.Policy == v.Policy {
					t.By = &rule
				}
			case len(t.Near) == maxNear || own && rule.Source == nil: // those for others come last
				t.More++
			default:
				t.Near = append(t.Near, rule)
			}
		}
	}
	a.Targets = append(a.Targets, t)
}

// rule tells of a policy.
func (a *Answer) rule(e *policy.Explained, w *model.Workload, port int32) Rule {
	p := e.Policy
	r := Rule{Ref: p.Ref, Binding: p.Binding, Match: p.Match}
	if e.Source != nil {
		source := *e.Source
		source.Field = ""
		r.Source = &source
		if r.Given = p.Binding; r.Given == (model.Ref{}) {
			r.Given = p.Ref
		}
		r.Given.Field = e.Source.Field
	}
	for _, part := range e.Fails {
		condition, text := a.fail(part, e, w, port)
		r.Fails = append(r.Fails, Fail{condition, text})
	}
	return r
}

// fail says in words which condition of a policy does not hold.
func (a *Answer) fail(part policy.Part, e *policy.Explained, w *model.Workload, port int32) (condition, text string) {
	p := e.Policy
	switch part {
	case policy.InForce:
		return "force", "it allows nothing: " + p.Void
	case policy.OfSource:
		if len(p.Sources) == 0 {
			if strings.HasSuffix(p.Ref.Kind, "Role") {
				return "source", "no binding gives it to anybody"
			}
			return "source", "it has no source that is anybody"
		}
		return "source", fmt.Sprintf("it is for %s, not for %s", sourceWords(p.Sources), a.Client)
	case policy.OfPort:
		if p.Ports != nil && !slices.Contains(p.Ports, port) {
			return "port", fmt.Sprintf("it is for %s, not for %d", portWords(p.Ports), port)
		}
		ports, _ := policy.Ports(p, w)
		return "port", fmt.Sprintf("it names the pods by their Service, which leads to %s, not to %d", portWords(ports), port)
	case policy.OfTraffic:
		if a.request.Protocol == policy.TCP && p.Traffic == model.TrafficHTTP {
			return "traffic", "it allows requests, not whole connections"
		}
		return "traffic", fmt.Sprintf("it allows %s, not this", trafficWords(p.Traffic))
	case policy.OfMethod:
		return "method", fmt.Sprintf("it allows %s, not %s", listWords(p.Methods, "or"), a.request.Method)
	case policy.OfPath:
		return "path", fmt.Sprintf("%s does not match %s from its start", a.Path, listWords(p.Paths, "or"))
	case policy.OfAmbiguity:
		return "ambiguity", fmt.Sprintf("the path has %s, which servers read in different ways: only a rule for all paths allows it", a.Ambiguous)
	}
	wanted := ""
	for i := range p.Headers {
		if p.Headers[i].Name == e.Header {
			wanted = fmt.Sprintf("%s %q", p.Headers[i].Type, p.Headers[i].Value)
			if v, ok := a.request.Fields.Field(strings.ToLower(e.Header)); ok {
				return "header", fmt.Sprintf("header %q is %q, wanted %s", e.Header, v, wanted)
			}
		}
	}
	return "header", fmt.Sprintf("header %q is absent, wanted %s", e.Header, wanted)
}

// sum makes one verdict of those of the workloads.
func (a *Answer) sum() {
	seen := map[Verdict]int{}
	for _, t := range a.Targets {
		seen[t.Verdict]++
	}
	switch n := len(a.Targets); {
	case n == 0:
		a.Verdict, a.Targets = Unserved, []Target{}
	case seen[Denied] == n:
		a.Verdict = Denied
	case seen[Unserved] == n:
		a.Verdict = Unserved
	case seen[Denied] > 0 || seen[Unserved] > 0:
		a.Verdict = Partly
	case seen[Unenforced] > 0:
		a.Verdict = Unenforced
	case seen[Audited] > 0:
		a.Verdict = Audited
	default:
		a.Verdict = Allowed
	}
}

const maxWords = 5

func sourceWords(all []model.Source) string {
	var out []string
	for i := range all {
		out = append(out, all[i].Words())
	}
	return listWords(out, "and")
}

func listWords(all []string, and string) string {
	if len(all) == 0 {
		return "nothing"
	}
	all = finding.First(all, maxWords)
	if len(all) == 1 {
		return all[0]
	}
	return strings.Join(all[:len(all)-1], ", ") + " " + and + " " + all[len(all)-1]
}

func portWords(ports []int32) string {
	var out []string
	for _, p := range ports {
		out = append(out, fmt.Sprint(p))
	}
	if len(out) == 1 {
		return "port " + out[0]
	}
	return "the ports " + listWords(out, "and")
}

func trafficWords(t model.Traffic) string {
	switch t {
	case model.TrafficHTTP:
		return "HTTP requests"
	case model.TrafficUDP:
		return "UDP"
	case model.TrafficTCP:
		return "TCP"
	}
	return "everything"
}
