package exchange

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/http1"
)

func TestALoopOfGRPCIsNotWorthAnotherTry(t *testing.T) {
	if got := statusOf(failLoop); got != "9" {
		t.Errorf("gRPC status %s, want 9 (FAILED_PRECONDITION)", got)
	}
}

// FuzzOwnMarkIsFound: the proxy finds its own mark, whatever others have put into Via and however proxies in between
// join its lines.
func FuzzOwnMarkIsFound(f *testing.F) {
	for _, s := range []string{"", "1.1 a", "(", "1.1 a (, 1.1 b", "\\", "1.1 a (b, c), ,,", "weir", "1.1", "\"", "1.1 weirx"} {
		f.Add(s, s)
	}
	h := newHops(&Options{Pseudonym: "weir", MaxHops: 1 << 30})
	f.Fuzz(func(t *testing.T, before, after string) {
		if !http1.ValidFieldValue(before) || !http1.ValidFieldValue(after) {
			t.Skip("no field has such a value: the parser refuses it")
		}
		for _, fields := range [][]http1.Field{
			{{Value: before, ID: http1.FieldVia}, h.requests[version11], {Value: after, ID: http1.FieldVia}},
			{{Value: strings.Join([]string{before, h.requests[version2].Value, after}, ", "), ID: http1.FieldVia}},
			{{Value: strings.Join([]string{before, h.requests[version10].Value}, ","), ID: http1.FieldWeirVia}},
		} {
			if h.judge(fields) != failLoop {
				t.Errorf("%q is no loop", fields)
			}
		}
		var members []string
		for _, m := range strings.Split(before, ",") {
			if m = strings.Trim(m, " \t"); m != "" {
				members = append(members, m)
			}
		}
		n := 0
		for list := before; list != ""; {
			var by string
			if by, list = nextHop(list); by != "" {
				n++
			}
		}
		if n != len(members) {
			t.Errorf("%q has %d members, not %d", before, len(members), n)
		}
	})
}

// TestPseudonymsDiffer: each process draws its name once, and no two processes have the same name.
func TestPseudonymsDiffer(t *testing.T) {
	var names []string
	for range 100 {
		h := newHops(&Options{Pseudonym: "not a token"})
		if !http1.ValidToken(h.name) || slices.Contains(names, h.name) {
			t.Fatalf("%q", h.name)
		}
		names = append(names, h.name)
	}
}
