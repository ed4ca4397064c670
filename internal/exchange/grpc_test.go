package exchange

import (
	"math"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/http2"
)

// A server that knows a call's deadline may reset the call before its client notices.
func TestACancelledCallHasTheStatusThatItsClientWouldGiveIt(t *testing.T) {
	cancelled := callFailure(&http2.StreamError{Code: http2.Cancel, Remote: true})
	for _, c := range []struct {
		name, timeout string
		failure       *Failure
		want          string
	}{
		{"by the server", "", cancelled, "1"},
		{"long before its deadline", "1H", cancelled, "1"},
		{"after its deadline", "1n", cancelled, "4"},
		{"with a timeout that is none", "1x", cancelled, "1"},
		{"reset for another reason", "1n", callFailure(&http2.StreamError{Code: http2.InternalError, Remote: true}), "14"},
	} {
		ex := &Exchange{from: Origin{Start: time.Now().Add(-time.Second)}}
		if c.timeout != "" {
			ex.req.Fields = []http1.Field{{Name: "grpc-timeout", Value: c.timeout}}
		}
		if got := ex.grpcStatus(c.failure); got != c.want {
			t.Errorf("a call that is cancelled %s has status %s, want %s", c.name, got, c.want)
		}
	}
}

func TestTimeoutsOfCalls(t *testing.T) {
	for text, want := range map[string]time.Duration{
		"1n": 1, "20u": 20 * time.Microsecond, "1m": time.Millisecond, "3S": 3 * time.Second, "2M": 2 * time.Minute, "5H": 5 * time.Hour,
		"99999999H": math.MaxInt64, "99999999M": 99999999 * time.Minute, "0m": 0,
		"": -1, "m": -1, "1": -1, "123456789m": -1, "-1m": -1, "+1m": -1, "1 m": -1, "1h": -1, "1.5S": -1,
	} {
		got, ok := grpcTimeout(text)
		if !ok {
			got = -1
		}
		if got != want {
			t.Errorf("%q is %v, want %v", text, got, want)
		}
	}
}
