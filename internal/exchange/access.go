package exchange

import "github.com/weirmesh/weir/internal/routing"

// asked is what a peer asks for: a request, or a connection whose bytes nobody reads, that has led to a rule.
type asked struct {
	listener *routing.Listener
	rule     *routing.Rule
	// request and match are the request, as it came and in the form that rules compare: host in lower case, path
	// normalised. Both are nil for a relayed connection.
	request *Request
	match   *routing.Request
}

// judge is what decides in the access stage. It returns why the peer may not have what it asks for, nil if it may. A
// client's identity is peer.TLS.Verified and, at listeners that have an identity themselves, peer.TLS.ID; nothing else
// that the client says counts. A connection may outlive Verified. A judge does no I/O, and allocates only to refuse.
type judge func(peer *Peer, a asked) *Failure

// access is the access stage, the same one for requests and for relayed connections. It runs once the rule is known:
// before a filter answers, a fault is told, a copy is picked or anything is dialled. There are no policies yet: without
// a judge everything passes.
func (s *Snapshot) access(peer *Peer, a asked) *Failure {
	if s.judge == nil {
		return nil
	}
	return s.judge(peer, a)
}
