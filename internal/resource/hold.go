package resource

import (
	"os"
	"time"
)

// How long a file that lost something must stay unchanged before it is believed. Many programs empty a file and then
// write it, or remove it and create it again. Content that is read in between is not what the user means.
const (
	// holdShorter is for a file that became shorter in place.
	holdShorter = time.Second
	// holdEmpty is for one that holds no document any more, or is gone.
	holdEmpty = 2 * time.Second
	// holdMost is when a file is believed that keeps changing.
	holdMost = 10 * time.Second
)

// hold is a file that is not believed yet. Until then its earlier content counts.
type hold struct {
	info   os.FileInfo // as it was seen last; nil if the file is gone
	since  time.Time   // when it was first seen to have lost something
	seen   time.Time   // when it was first seen as it is
	length time.Duration
}

func (h *hold) end() time.Time {
	end := h.seen.Add(h.length)
	if most := h.since.Add(holdMost); most.Before(end) {
		return most
	}
	return end
}

// hold reports whether the earlier content of a file still counts. now is its present content, nil if the file is gone.
// A file that replaced another by being renamed is complete, however short, and so is one to which a symbolic link now leads. An empty one has to be
// renamed for certain, as one that is being made is empty, too. One that grew may be believed as soon as it is read.
func (r *reader) hold(path string, before, now *file) bool {
	if r.believe || before == nil || len(before.parts) == 0 {
		return false
	}
	length := holdEmpty
	another := now != nil && (before.info == nil || now.info == nil || !os.SameFile(before.info, now.info))
	if now != nil && len(now.parts) > 0 {
		if another || now.size >= before.size {
			return false
		}
		length = holdShorter
	} else if another && now.info != nil && (renamed(now.info) || before.place != "" && now.place != "" && before.place != now.place) {
		return false
	}
	at := r.clock()
	h := r.holds[path]
	if h == nil {
		h = &hold{since: at, seen: at}
		r.holds[path] = h
	}
	var info os.FileInfo
	if now != nil {
		info = now.info
	}
	if !sameState(h.info, info) {
		h.info, h.seen = info, at
	}
	h.length = length
	return at.Before(h.end())
}

// sameState reports whether nothing was written between two looks. Either may have found no file.
func sameState(a, b os.FileInfo) bool {
	if a == nil || b == nil {
		return a == nil && b == nil
	}
	return os.SameFile(a, b) && a.Size() == b.Size() && a.ModTime().Equal(b.ModTime())
}

// confirmed returns a channel that fires when the next file will be believed; nil if no file is on hold.
func (r *reader) confirmed() <-chan time.Time {
	var next time.Time
	for _, h := range r.holds {
		next = earliest(next, h.end())
	}
	if next.IsZero() {
		return nil
	}
	return time.After(max(next.Sub(r.clock()), 0))
}
