package mirror

import (
	"net/http"
	"sync/atomic"
	"testing"

	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Bytes that a backend's system holds back until the answer to a copy is acknowledged are not taken for the answer to the
// next copy.
func TestBytesBehindAnAnswerToACopyWaitForNoOther(t *testing.T) {
	const warm = 4
	peertest.EachTransport(t, func(t *testing.T, side *peertest.TLS) {
		for _, test := range peertest.BehindCases {
			if test.Behind != peertest.Poison {
				continue
			}
			var n atomic.Int32
			b := &peertest.Holding{TLS: side, Answer: func(*http.Request) (answer, behind string) {
				if n.Add(1) == warm {
					return test.Answer, test.Behind
				}
				return peertest.OK, ""
			}}
			to := peertest.ToMirror(b.Address(t))
			side.Reach(&to)
			f := newFixture(t, Options{}, to)
			for i := 1; i <= warm+1; i++ {
				head := get("/")
				if i == warm {
					head.Method = test.Method
				}
				f.copy(head, nil)
				f.wait(t, 1)
				if i == warm {
					b.Sent()
				}
			}
			if n := b.Accepted(); n != 2 {
				t.Errorf("%s: %d connections, want 2", test.Name, n)
			}
			f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: warm + 1})
			f.Close(t.Context())
		}
	})
}
