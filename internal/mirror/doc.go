// Package mirror carries copies of requests to services whose answers nobody waits for. An exchange begins a Leg with the head that its primary's backend
// gets, writes the body into it as it passes, and asks at its end what became of it: none of that waits, and what does not fit is dropped and counted. A
// goroutine of the Set sends the copy over an upstream.Call of its own.
//
// Which requests are copied is decided before (see routing); connections, balancing and both protocols are upstream's. The exchange uses it.
package mirror
