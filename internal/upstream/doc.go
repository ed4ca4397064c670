// Package upstream holds the services that requests are forwarded to: their endpoints, the choice between them, their
// health, and the connections kept open to them.
//
// An exchange is a Call: a request, sent to an endpoint over HTTP/1.1 or HTTP/2, and its answer. The caller decides
// what happens to the answer, whether another endpoint is tried and when to give up. Callers are proxy's exchanges and
// mirrors. The package knows no routes (see routing).
//
// A Set lives as long as the process. Apply turns a configuration into an immutable Snapshot. The state of endpoints
// (connections, health, counters) is keyed by address, protocol and TLS identity. It lives in the Set and so survives a
// change of the configuration.
//
// Below calls are connections with a read buffer, for HTTP/1.1 and for connections without an exchange:
//
//	e := snapshot.Service(name, clientCertificate).Pick(nil)
//	c, reused, err := e.Get(deadline)   // or Dial; err is a *ConnectError or a *TLSError and already counts against e
//	c.WriteBy(t, slack); c.ReadBy(t, slack)
//	c.Write(head); c.Fill(); c.Buffered(); c.Discard(n) ...
//	e.Answered(status) when a response head came, e.Failed() when the connection broke before one did
//	e.Put(c) when the response was read to its end and the connection persists, else c.Close()
//
// and streams, over HTTP/2:
//
//	s, sent, err := e.Open(head, body, end, &wait) // err as above
//	s.Send(body[sent:], end); s.AwaitHead(until); s.Next(until) ...
//	e.Answered(status) when a response head came, s.Blame(err) when the stream failed
//	s.Close()
package upstream
