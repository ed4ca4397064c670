// Package policy decides whether a client may have what it asks a workload for. Judge is the one place where that is
// decided, for requests, connections and datagrams alike; Explain says why, from the same conditions.
//
// It is pure. It does not know what a user wrote (dialect/access makes the model's policies of that), reads no
// certificate (the caller says who the peer is) and answers nobody (exchange does).
package policy

import "github.com/weirmesh/weir/internal/model"

// Peer is a client, as its verified certificate names it. The zero value is a client without one, whom no policy allows
// anything.
type Peer struct {
	// ID is the whole SPIFFE ID; empty means that the client is not known.
	ID string
	// Foreign means that the ID is of another trust domain. The other fields say nothing then: their names are those of
	// another cluster.
	Foreign bool
	// Namespace and Account are those of the client's ServiceAccount.
	Namespace, Account string
	// Pod is the name of the client's pod, Owners what runs the pod, directly or indirectly.
	Pod    string
	Owners []Owner
	// Node is the name of a node whose own identity this is. A pod has none: that it runs on a node does not make it
	// the node.
	Node string
}

// UnknownName stands for the name of an object that is there and whose name is not known, such as that of one of a
// Deployment's pods. No object can have it, so only sources of any name are met.
const UnknownName = "*"

// PeerOf is the client that a workload's pods are, in a trust domain.
func PeerOf(w *model.Workload, trustDomain string) *Peer {
	p := &Peer{ID: AccountID(trustDomain, w.Ref.Namespace, w.Account), Namespace: w.Ref.Namespace, Account: w.Account, Pod: UnknownName}
	for _, g := range w.Groups {
		switch g.Kind {
		case model.KindPod:
			p.Pod = g.Name
		case model.KindService, model.KindServiceAccount, model.KindIdentityBinding:
		default:
			p.Owners = append(p.Owners, Owner{g.Kind, g.Name})
		}
	}
	if w.Ref.Kind == "Deployment" { // which runs them by one
		p.Owners = append(p.Owners, Owner{"ReplicaSet", UnknownName})
	}
	return p
}

// AccountID is the SPIFFE ID of a ServiceAccount.
func AccountID(trustDomain, namespace, account string) string {
	return "spiffe://" + trustDomain + "/ns/" + namespace + "/sa/" + account
}

// Owner is an object that owns a pod, in the pod's namespace.
type Owner struct{ Kind, Name string }

// Protocol is what a client asks by.
type Protocol uint8

const (
	// HTTP is one request. TCP is a connection that is passed on without being understood, UDP datagrams.
	HTTP Protocol = iota
	TCP
	UDP
)

// Request is what a client asks for.
type Request struct {
	Protocol Protocol
	// Method, Path and Fields are an HTTP request's. Path is in the form that Path returns. If fields name another method
	// for frameworks to take (X-HTTP-Method-Override, X-HTTP-Method, X-Method-Override), a policy must allow both.
	Method string
	Path   string
	// Ambiguous means that servers read the path in different ways. Then only a policy for all paths allows it.
	Ambiguous bool
	// Fields may be nil: no fields.
	Fields Fields
}

// Fields are the header fields of a request.
type Fields interface {
	// Field returns the value of a field by its lower-case name, several lines joined by a comma.
	Field(name string) (value string, ok bool)
}

// Reason is why a verdict is as it is, and the name of that in logs and metrics.
type Reason uint8

const (
	// Allowed: a policy allows it.
	Allowed Reason = iota
	// Ungoverned: no policy names the workload, and nothing is denied by default.
	Ungoverned
	// NoIdentity: the client has no verified identity.
	NoIdentity
	// UnknownSource: no policy of the workload has the client among its sources.
	UnknownSource
	// NotPermitted: no policy that has the client among its sources allows what it asks for.
	NotPermitted
	// AmbiguousPath: as NotPermitted, and servers would read the path in different ways.
	AmbiguousPath
	// TooMuchWork: the request is too long for the patterns it would have to be matched with (model.MaxMatchWork).
	TooMuchWork

	reasons = iota
)

var reasonNames = [reasons]string{"allowed", "ungoverned", "no_identity", "unknown_source", "not_permitted", "ambiguous_path", "too_much_work"}

// String is the reason's name in logs and metrics.
func (r Reason) String() string { return reasonNames[r] }

// Passes reports whether the client may have what it asks for.
func (r Reason) Passes() bool { return r == Allowed || r == Ungoverned }

// Verdict is the answer of Judge.
type Verdict struct {
	Reason Reason
	// Policy allows it; nil if none does.
	Policy *model.Policy
}

// Path returns the form of a path in which policies judge it, from its normal form (model.NormalizePath): as the
// backend sees it once it has decoded the escapes of characters that may also stand in a path unescaped. So "%40" is
// "@". Paths of which servers differ in what they decode are ambiguous anyway (Request.Ambiguous). The result may share
// scratch's memory, whose rest is returned.
func Path(normal string, scratch []byte) (string, []byte) { return model.PlainPath(normal, scratch) }
