package exchange

import (
	"net/http"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// asked is what a peer asks for: a request, or a connection whose bytes nobody reads, that has led to a rule.
type asked struct {
	at       time.Time
	listener *routing.Listener
	// request and match are the request, as it came and in the form that rules compare: host in lower case, path
	// normalised. Both are nil for a relayed connection.
	request *Request
	match   *routing.Request
	// fields are those of the request that reach the endpoint.
	fields policy.Fields
}

// endToEnd are the fields of an exchange's request without those that Connection names: these end here (RFC 9110
// §7.6.1), so what they say must not open a workload to a request that arrives without them.
type endToEnd Exchange

// Field implements policy.Fields.
func (e *endToEnd) Field(name string) (string, bool) {
	ex := (*Exchange)(e)
	if ex.req.NamedHops && !http1.Identify(name).HopByHop() && http1.HopByHop(&http1.Field{Name: name}, ex.req.Fields) {
		return "", false
	}
	return ex.Field(name)
}

// decidesBy reports whether rules for the request's host, or policies of the workload that it is for, match on a field
// whose name is like name, in the sense of like.
func (ex *Exchange) decidesBy(name string, like func(decides, name string) bool) bool {
	l := ex.decision.Listener
	if l == nil {
		return false
	}
	if l.MatchesLike(ex.match.Host, name, like) {
		return true
	}
	if ex.from.Snapshot == nil {
		return false
	}
	g := ex.from.Snapshot.Listeners[l.ID].guard
	return g != nil && g.table.DecidesBy(name, like)
}

// guard is the policies of the workload in front of whose port a listener stands.
type guard struct {
	table  *policy.Table
	port   int32 // 0 is the one that the client meant
	metric *telemetry.Access
}

// judged is what the access stage found, for the log. The zero value is for listeners that judge nobody.
type judged struct {
	asked  bool
	reason policy.Reason
	policy *model.Policy
	source string
	// by is what judged; nil if nobody is judged. Only its table and its port count.
	by *guard
	// plain means that the request is allowed, and its upgrade is not.
	plain bool
}

// accessResults are the reasons of policies as the telemetry has them.
var accessResults = map[policy.Reason]telemetry.AccessResult{
	policy.Allowed: telemetry.AccessAllowed, policy.Ungoverned: telemetry.AccessUngoverned, policy.NoIdentity: telemetry.AccessNoIdentity,
	policy.UnknownSource: telemetry.AccessUnknownSource, policy.NotPermitted: telemetry.AccessNotPermitted,
	policy.AmbiguousPath: telemetry.AccessAmbiguousPath, policy.TooMuchWork: telemetry.AccessTooMuchWork,
}

// failDenied is the same for all reasons: the client learns nothing of the policies.
var failDenied = &Failure{Status: http.StatusForbidden, Reason: telemetry.AccessDenied, Detail: "access is denied"}

// access is the access stage, the same one for requests and for relayed connections. It runs once the rule is known:
// before a filter answers, a fault is told, a copy is picked or anything is dialled. It judges by the identity that the
// peer's certificate proved, and by nothing else that the peer says. path is scratch memory, which is returned.
func (s *Snapshot) access(peer *Peer, shard uint32, a asked, path []byte) (judged, []byte, *Failure) {
	j, path, f := s.judge(peer, a, path)
	j.count(shard)
	return j, path, f
}

// count counts what was found.
func (j *judged) count(shard uint32) {
	if j.asked {
		j.by.metric.Count(shard, accessResults[j.reason], !j.reason.Passes() && j.by.table.Workload().Audit)
	}
}

// judge is access, and tells nobody.
func (s *Snapshot) judge(peer *Peer, a asked, path []byte) (judged, []byte, *Failure) {
	g := s.Listeners[a.listener.ID].guard
	if g == nil {
		return judged{}, path, nil
	}
	subject := peer.subject(g, a.at)
	r := policy.Request{Protocol: policy.TCP}
	if a.request != nil {
		r.Protocol, r.Method, r.Fields = policy.HTTP, a.request.Method, a.fields
		if g.table.Governed() { // otherwise no path counts
			r.Path, path = policy.Path(a.match.Path, path)
			r.Ambiguous = routing.Ambiguity(a.request.Path) != routing.OneReading
		}
	}
	v := subject.Judge(&r)
	j := judged{asked: true, reason: v.Reason, policy: v.Policy, by: g}
	if peer.TLS != nil {
		j.source = peer.TLS.ID.String()
	}
	j.plain = v.Reason == policy.Allowed && a.request != nil && !mayUpgrade(subject, a.request.Upgrade)
	if v.Reason.Passes() || g.table.Workload().Audit {
		return j, path, nil
	}
	return j, path, failDenied
}

// MayAwait reports whether an endpoint may be connected for a client that has said nothing yet: a route for connections
// leads to it, the client may have a connection, and no policy is about requests at the port. Where one is, a client has
// to speak first.
func (s *Snapshot) MayAwait(peer *Peer, port *routing.Port) bool {
	if port == nil || !port.Connections() {
		return false
	}
	rule := port.Rule()
	if rule == nil || s.Rules[rule.ID].Fault != nil {
		return false
	}
	l := port.Listeners[0]
	if g := s.Listeners[l.ID].guard; g != nil && g.table.JudgesRequests(g.portOf(peer)) {
		return false
	}
	_, _, f := s.judge(peer, asked{at: time.Now(), listener: l}, nil)
	return f == nil
}

// again judges once more, by s, what passed the access stage of an earlier configuration and still lasts: a relayed
// connection or a tunnel. j is what was found then, and becomes what is found now. again reports whether it may go on.
// a.listener is the listener that it would come to now. It is nil if there is none: then only what nobody judged goes on.
// Where the policies are the same as before, the verdict stays, and nothing is counted. So a client whose certificate has
// ended meanwhile is nobody only from the next change on.
func (s *Snapshot) again(j *judged, peer *Peer, shard uint32, a asked) bool {
	if a.listener == nil {
		return j.by == nil
	}
	g := s.Listeners[a.listener.ID].guard
	if g.same(j.by) {
		return true
	}
	if g == nil {
		j.by = nil
		return true
	}
	found, _, f := s.access(peer, shard, a, nil)
	*j = found
	return f == nil && !j.plain
}

// same reports whether two guards, or the lack of them, find the same.
func (g *guard) same(h *guard) bool {
	if g == nil || h == nil {
		return g == h
	}
	return g.table == h.table && g.port == h.port
}

// SameAccess reports whether what came to a port in an earlier configuration is judged by s as before, so that it need
// not be judged again. port and before are the port in both.
func (s *Snapshot) SameAccess(port *routing.Port, earlier *Snapshot, before *routing.Port) bool {
	if port.Protocol != before.Protocol || port.Plain != before.Plain || port.Detect != before.Detect || len(port.Listeners) != len(before.Listeners) {
		return false
	}
	for i, l := range port.Listeners {
		was := before.Listeners[i]
		if l.Listener.Name != was.Listener.Name || l.Listener.Hostname != was.Listener.Hostname ||
			!s.Listeners[l.ID].guard.same(earlier.Listeners[was.ID].guard) {
			return false
		}
	}
	return true
}

// mayUpgrade reports whether a client that was allowed a request may have an upgrade to a protocol. What follows one is
// not judged, and protocols such as HTTP/2 and TLS bring further requests. So it is a connection for policies, other than
// the messages of a WebSocket, which belong to the request.
func mayUpgrade(s *policy.Subject, protocol string) bool {
	return protocol == "" || http1.EqualFold(protocol, "websocket") || s.Judge(&policy.Request{Protocol: policy.TCP}).Reason.Passes()
}

// portOf is the port that a peer is judged by.
func (g *guard) portOf(p *Peer) int32 {
	if g.port == 0 {
		return int32(p.Meant.Port())
	}
	return g.port
}

// subject is what the peer may do at a listener, which is found once for a connection and its policies. A connection may
// outlive the certificate that its client proved itself by; from then on the client is nobody.
func (p *Peer) subject(g *guard, now time.Time) *policy.Subject {
	port := g.portOf(p)
	if p.TLS != nil && p.TLS.Verified != nil && now.After(p.TLS.Verified.NotAfter) {
		return g.table.Subject(&policy.Peer{}, port)
	}
	if s := p.judgedBy.Load(); s != nil && s.Of(g.table, port) {
		return s
	}
	s := g.table.Subject(p.client(), port)
	p.judgedBy.Store(s)
	return s
}

// client is the peer as its certificate names it; the zero value without one that was verified.
func (p *Peer) client() *policy.Peer {
	if p.TLS == nil || p.TLS.ID.IsZero() {
		return &policy.Peer{}
	}
	id := p.TLS.ID
	out := &policy.Peer{ID: id.String()}
	if node, ok := id.Node(); ok {
		out.Node = node
	}
	var account bool
	if out.Namespace, out.Account, account = id.ServiceAccount(); !account || p.TLS.Verified == nil {
		return out
	}
	claims, err := claim.Of(p.TLS.Verified)
	if err != nil {
		return out // who the ServiceAccount is was proved; which pod it is was not
	}
	out.Pod = claims.Pod
	for _, o := range claims.Owners {
		out.Owners = append(out.Owners, policy.Owner{Kind: o.Kind, Name: o.Name})
	}
	return out
}

// guards gives the listeners that stand in front of workloads the policies of these. A workload that the configuration
// does not have is closed. Policies that did not change since the previous snapshot are not compiled again.
func (s *Snapshot) guards(cfg *model.Config, prev *Snapshot) {
	s.tables = map[string]*policy.Table{}
	for _, l := range s.Table.Listeners() {
		name := l.Listener.Workload
		if name == "" {
			continue
		}
		t := s.tables[name]
		if t == nil {
			t = guardTable(cfg, name, prev)
			s.tables[name] = t
		}
		s.Listeners[l.ID].guard = &guard{table: t, port: l.Listener.WorkloadPort}
	}
}

func guardTable(cfg *model.Config, name string, prev *Snapshot) *policy.Table {
	w := cfg.Workload(name)
	if w == nil {
		return policy.Compile(&model.Workload{Deny: model.DenyAll}, nil)
	}
	if prev != nil {
		if t := prev.tables[name]; t != nil && t.Is(w, cfg.Policies) {
			return t
		}
	}
	return policy.Compile(w, cfg.Policies)
}

// note adds what the access stage found to a line of the access log.
func (j *judged) note(r *telemetry.Record) {
	if !j.asked {
		return
	}
	r.Access, r.Source = j.reason.String(), j.source
	if j.policy != nil {
		r.Policy = policyName(j.policy)
	}
}

// policyName names what allowed something: the rule, and the binding that gives it to the client.
func policyName(p *model.Policy) string {
	if p.Binding.Name == "" {
		return p.Ref.String()
	}
	return p.Ref.String() + " by " + p.Binding.String()
}
