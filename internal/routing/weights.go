package routing

// Weights yields which part, 0 to 1, of a rule's requests its weights and those of splits send to each backend; leaf is
// nil for the backend's own service. It leaves out splits with matches: which part meets these, no weight says. A session
// keeps its backend, so sessions can shift what is measured.
func (r *Rule) Weights(yield func(b *Backend, leaf *Leaf, part float64)) {
	var sum float64
	for _, b := range r.Backends {
		sum += float64(b.Backend.Weight)
	}
	for _, b := range r.Backends {
		part := 0.0
		if sum > 0 {
			part = float64(b.Backend.Weight) / sum
		}
		if leaves := b.unconditional(); leaves != nil {
			shareOut(leaves, part, func(l *Leaf, part float64) { yield(b, l, part) })
		} else {
			yield(b, nil, part)
		}
	}
}

// unconditional returns the leaves of the split that takes each request which no split with matches took; nil if there
// is none.
func (w *way) unconditional() []*Leaf {
	if w.root == nil {
		return nil
	}
	for i := range w.root.splits {
		if len(w.root.splits[i].split.Matches) == 0 {
			return w.leaves[i]
		}
	}
	return nil
}

// shareOut divides a part among leaves. The last leaf of a split without any weight takes all of it.
func shareOut(leaves []*Leaf, part float64, yield func(*Leaf, float64)) {
	var sum float64
	for _, l := range leaves {
		if l.Leaf != nil {
			sum += float64(l.Leaf.Weight)
		}
	}
	for _, l := range leaves {
		switch {
		case l.Leaf == nil && sum == 0:
			yield(l, part)
		case l.Leaf == nil || sum == 0:
			yield(l, 0)
		default:
			yield(l, part*float64(l.Leaf.Weight)/sum)
		}
	}
}
