package process

import (
	"math"
	"runtime/debug"
	"testing"
)

func TestThisMachineIsKnown(t *testing.T) {
	if m := ThisMachine(); m.Memory <= 0 || m.Files < 0 {
		t.Errorf("%+v", m)
	}
}

func TestTheCollectorKeepsWithinTheControlGroup(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	for _, x := range []struct{ set, group, want int64 }{
		{math.MaxInt64, 512 << 20, 512 << 20 / 10 * 9},
		{math.MaxInt64, math.MaxInt64, math.MaxInt64},
		{100 << 20, 512 << 20, 100 << 20}, // GOMEMLIMIT
	} {
		debug.SetMemoryLimit(x.set)
		if CollectWithin(x.group); debug.SetMemoryLimit(-1) != x.want {
			t.Errorf("group %d, set %d: %d, want %d", x.group, x.set, debug.SetMemoryLimit(-1), x.want)
		}
	}
}
