package rollout

import (
	"slices"
	"testing"
)

func TestWeightsKeepTheirProportion(t *testing.T) {
	for _, c := range []struct {
		in, out []int64
		most    int64
		ok      bool
	}{
		{[]int64{560, 140}, []int64{80, 20}, 100, true},
		{[]int64{560, 140, 300}, []int64{56, 14, 30}, 100, true},
		{[]int64{100, 0}, []int64{100, 0}, 100, true},
		{[]int64{99, 1, 200}, []int64{33, 0, 67}, 10, false},
		{[]int64{99, 1, 200}, []int64{99, 1, 200}, 200, true},
		{[]int64{0, 0}, []int64{0, 0}, 1, true},
		{nil, nil, 1, true},
	} {
		out, ok := Scale(c.in, c.most)
		if ok != c.ok || ok && !slices.Equal(out, c.out) {
			t.Errorf("%v in numbers up to %d is %v, %t, want %v, %t", c.in, c.most, out, ok, c.out, c.ok)
		}
	}
}
