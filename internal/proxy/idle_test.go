package proxy

import (
	"runtime"
	"testing"
)

func TestIdleConnectionHoldsNoBuffers(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector needs memory of its own")
	}
	addr := cannedBackend(t, cannedResponse(1024))
	s := serve(t, plain(addr))
	inUse := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc + m.StackInuse
	}
	const n = 500
	before := inUse()
	all := requesters(t, s.addr(), n)
	after := inUse()
	per := int64(after-before) / n
	t.Logf("%d bytes for each idle connection, with the client's side", per)
	if per > 3<<10 {
		t.Errorf("%d bytes for each idle connection", per)
	}
	runtime.KeepAlive(all)
}
