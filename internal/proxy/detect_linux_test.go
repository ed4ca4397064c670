package proxy

import (
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/peertest"
)

// TestARequestDoesNotWaitForAnEndpointThatIsBeingConnected and the server waits for the end of that.
func TestARequestDoesNotWaitForAnEndpointThatIsBeingConnected(t *testing.T) {
	s := serve(t, detecting(t, peertest.Unaccepting(t)), func(o *Options) { o.Upstream.ConnectTimeout, o.DrainTimeout = patience, 100*time.Millisecond })
	k := newTalk(t, s.addr())
	until(t, "the endpoint is not being connected", func() bool { return len(s.binds[0].relays.list()) == 1 })
	time.Sleep(quietTime)
	begun := time.Now()
	k.send(getAndStay)
	getsHello(t, k)
	if time.Since(begun) > patience/2 {
		t.Error("the request waited")
	}
	if len(s.binds[0].relays.list()) != 1 {
		t.Error("the endpoint is not being connected any more")
	}
}
