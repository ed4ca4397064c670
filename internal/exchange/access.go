package exchange

import "github.com/weirmesh/weir/internal/routing"

// access is where a policy will be asked whether the client may have what it asks for: once the rule is known, and before a filter answers, a copy is
// picked or anything is sent. It will be given who is at the other end of the connection, with the certificate that was verified (peer.TLS.Verified), the
// request, and what it was matched to; an error refuses the request. There are no policies yet, and everything passes.
func access(_ *Peer, _ *Request, _ *routing.Decision) error { return nil }
