package upstream

import (
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/socket"
)

// Each exchange sends two segments: the request, and the acknowledgement of the answer. Without Put's, the next request
// would be both.
func TestPutAcknowledgesWhatWasReceived(t *testing.T) {
	const exchanges = 100
	srv := echoServer(t)
	e := one(t, newSet(t, Options{}), srv.address())
	sent := func(c *Conn) (n uint32) {
		c.raw.Control(func(fd uintptr) {
			info, err := socket.Info(fd)
			if n = info.Segs_out; err != nil {
				t.Error(err)
			}
		})
		return n
	}
	var before, after uint32
	for i := range 2 * exchanges {
		c, _, err := e.Get(time.Time{})
		if err != nil {
			t.Fatal(err)
		}
		if i == exchanges { // acknowledgements are delayed only after some exchanges
			before = sent(c)
		}
		if _, err := c.Ask([]byte("a line\n")); err != nil {
			t.Fatal(err)
		}
		c.Discard(len(c.Buffered()))
		e.Put(c)
		after = sent(c)
	}
	if n := after - before; n < 2*exchanges {
		t.Errorf("%d segments for %d exchanges, want twice as many", n, exchanges)
	}
	if n := srv.accepted(); n != 1 {
		t.Errorf("%d connections", n)
	}
}
