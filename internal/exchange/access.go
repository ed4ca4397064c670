package exchange

import "github.com/weirmesh/weir/internal/routing"

// access is where a policy will decide whether the client may have what it requests. It runs once the rule is known,
// before a filter answers, a copy is picked or anything is sent. A policy will get the peer with its verified
// certificate (peer.TLS.Verified), the request, and the decision. An error refuses the request. There are no policies
// yet, and everything passes.
func access(_ *Peer, _ *Request, _ *routing.Decision) error { return nil }
