package rollout

// Scale makes weights percentages if their proportion allows, and else as small as that allows. ok is false if one is above
// the most.
func Scale(weights []int64, most int64) (out []int64, ok bool) {
	var divisor, sum int64
	for _, w := range weights {
		sum += w
		for a := w; a != 0; {
			divisor, a = a, divisor%a
		}
	}
	if sum == 0 {
		return weights, true
	}
	if hundredth := sum / 100; sum%100 == 0 && divisor%hundredth == 0 {
		divisor = hundredth
	}
	for _, w := range weights {
		if w/divisor > most {
			return nil, false
		}
		out = append(out, w/divisor)
	}
	return out, true
}
