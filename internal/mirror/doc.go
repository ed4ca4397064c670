// Package mirror sends copies of requests to services whose answers it discards. An exchange begins a Leg with the head
// that its primary's backend gets. It writes the body into the Leg as the body passes, and asks for the outcome at its
// end. None of these calls waits. A copy that exceeds a bound is dropped and counted. A goroutine of the Set sends the
// copy over an upstream.Call of its own.
//
// Package routing decides which requests are copied, before a Leg begins. Package upstream provides connections,
// balancing and both protocols. The exchange uses this package.
package mirror
