package exchange

import (
	"regexp"
	"testing"
)

func TestUUIDsAreOfVersion4(t *testing.T) {
	for _, n := range []uint64{0, ^uint64(0), 0x0123456789abcdef} {
		if got := string(appendUUID([]byte("x"), n, n))[1:]; !uuidForm.MatchString(got) {
			t.Errorf("%x: %s", n, got)
		}
	}
	if got := string(appendUUID(nil, 0x0123456789ab0def, 0x3123456789abcdef)); got != "01234567-89ab-4def-b123-456789abcdef" {
		t.Error(got)
	}
}

func BenchmarkRequestID(b *testing.B) {
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		ex := Exchange{pipe: &Pipeline{requestID: newIDField(&Options{RequestIDs: RequestIDsMissing, RequestIDField: "X-Request-Id"})}}
		for pb.Next() {
			ex.scratch, ex.id = ex.scratch[:0], requestID{}
			ex.identify()
		}
	})
}

var uuidForm = regexp.MustCompile(`^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$`)
