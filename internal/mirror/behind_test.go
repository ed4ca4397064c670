package mirror

import (
	"net/http"
	"testing"

	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/telemetry"
)

func TestBytesBehindAnAnswerToACopyEndItsConnection(t *testing.T) {
	peertest.EachBehind(t, func(t *testing.T, side *peertest.TLS, test peertest.BehindCase, name string, split peertest.Segments) {
		first := true
		b := &peertest.Segmented{T: t, TLS: side, Answer: func(*http.Request) peertest.Segments {
			if first {
				first = false
				return split
			}
			return peertest.Segments{Records: []string{peertest.OK}, Now: -1}
		}}
		to := peertest.ToMirror(b.Address())
		side.Reach(&to)
		f := newFixture(t, Options{}, to)
		for range 2 {
			head := get("/")
			head.Method = test.Method
			f.copy(head, nil)
			f.wait(t, 1)
			b.Flush()
		}
		if n := b.Accepted(); n != 2 {
			t.Errorf("%s, %s: %d connections, want 2", test.Name, name, n)
		}
		f.expect(t, map[telemetry.MirrorOutcome]uint64{telemetry.MirrorSent: 2})
		f.Close(t.Context())
	})
}
