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
	buf := make([]byte, 8<<10)
	all := make([]*requester, n)
	before := inUse()
	for i := range all {
		all[i] = &requester{c: dial(t, s.addr()), request: []byte(benchRequest), buf: buf}
		if err := all[i].do(); err != nil {
			t.Fatal(err)
		}
	}
	after := inUse()
	per := int64(after-before) / n
	t.Logf("%d bytes for each idle connection, with the client's side", per)
	if per > 16<<10 {
		t.Errorf("%d bytes for each idle connection", per)
	}
	runtime.KeepAlive(all)
}
