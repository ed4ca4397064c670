package telemetry

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"strconv"
	"time"
)

// Report is what a proxy tells of its edges: a state since it began, from which what happened between two reports can be
// told. Its JSON is what proxies and stores exchange.
type Report struct {
	// Began tells one run of the proxy from the next: with another value, all counts began again at zero.
	Began time.Time `json:"began"`
	// Time is when the report was made.
	Time time.Time `json:"time"`
	// Edges are sorted by their labels.
	Edges []EdgeSnapshot `json:"edges"`
}

// maxLabels bounds the bytes of an edge's labels: names have at most 253 each.
const maxLabels = 2048

// ReadReport reads a report as JSON, of at most so many edges. The reader bounds its bytes; what follows the report is
// left unread.
func ReadReport(from io.Reader, edges int) (Report, error) {
	var r Report
	in := parts{in: bufio.NewReader(from)}
	err := in.object(func(key string) (err error) {
		switch key {
		case "began":
			err = in.into(&r.Began)
		case "time":
			err = in.into(&r.Time)
		case "edges":
			r.Edges, err = readEdges(&in, edges)
		default:
			err = in.skip()
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			err = fmt.Errorf("%s: %w", key, err)
		}
		return err
	})
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	if err != nil {
		return Report{}, err
	}
	return r, nil
}

func readEdges(in *parts, most int) (out []EdgeSnapshot, err error) {
	if c, err := in.peek(); err != nil {
		return nil, err
	} else if c != '[' {
		return nil, in.into(&out) // null, or an error
	}
	out = []EdgeSnapshot{}
	err = in.list(func() error {
		if len(out) == most {
			return fmt.Errorf("more than %d", most)
		}
		b, err := in.value()
		if err != nil {
			return err
		}
		out = append(out, EdgeSnapshot{})
		e := &out[len(out)-1]
		if !e.read(b) {
			*e = EdgeSnapshot{}
			if err := json.Unmarshal(b, e); err != nil {
				return err
			}
		}
		size := 0
		for _, label := range e.values() {
			size += len(label)
		}
		if size > maxLabels {
			return fmt.Errorf("one has labels of %d bytes, which is more than %d", size, maxLabels)
		}
		return nil
	})
	return out, err
}

// read reads what json writes of an edge, and reports false for what is written otherwise, even if it means the same.
func (e *EdgeSnapshot) read(b []byte) bool {
	c := cursor{b}
	if !c.accept("{") {
		return false
	}
	if c.accept(`"at":`) && !c.side(&e.At) {
		return false
	}
	e.Out = c.accept(`"out":true,`)
	if c.accept(`"peer":`) && !c.side(&e.Peer) {
		return false
	}
	for _, label := range []struct {
		key   string
		value *string
	}{{`"route":`, &e.Route}, {`"service":`, &e.Service}, {`"backend":`, &e.Backend}} {
		if c.accept(label.key) && !(c.text(label.value) && c.accept(",")) {
			return false
		}
	}
	return c.accept(`"success":`) && c.number(&e.Success) && c.accept(`,"failure":`) && c.number(&e.Failure) && c.accept(`,"latency":`) &&
		len(c.b) > 0 && c.b[len(c.b)-1] == '}' && e.Latency.UnmarshalJSON(c.b[:len(c.b)-1]) == nil
}

// latencyWire is a Latency in a report.
type latencyWire struct {
	Nanos   uint64      `json:"nanos"`
	Buckets bucketsWire `json:"buckets"`
}

// bucketsWire are the buckets that are not empty, as pairs of index and count.
type bucketsWire []bucketCount

// MarshalJSON implements json.Marshaler.
func (l Latency) MarshalJSON() ([]byte, error) {
	return json.Marshal(latencyWire{l.nanos, l.buckets})
}

// UnmarshalJSON implements json.Unmarshaler. It refuses buckets that there are not, those that come twice, and counts
// that together are too many to be counted.
func (l *Latency) UnmarshalJSON(b []byte) error {
	var w latencyWire
	if err := w.read(b); err != nil {
		return err
	}
	out := Latency{buckets: w.Buckets, nanos: w.Nanos}
	for _, b := range w.Buckets {
		if b.n > math.MaxUint64-out.total {
			return fmt.Errorf("the durations are too many to be counted")
		}
		out.total += b.n
	}
	*l = out
	return nil
}

// read reads what MarshalJSON wrote without asking json once more, and what is written otherwise with it.
func (w *latencyWire) read(b []byte) error {
	c := cursor{b}
	if c.accept(`{"nanos":`) && c.number(&w.Nanos) && c.accept(`,"buckets":`) {
		if n := len(c.b) - 1; n > 0 && c.b[n] == '}' && w.Buckets.UnmarshalJSON(c.b[:n]) == nil {
			return nil
		}
	}
	*w = latencyWire{}
	return json.Unmarshal(b, w)
}

// MarshalJSON implements json.Marshaler.
func (w bucketsWire) MarshalJSON() ([]byte, error) {
	b := []byte{'['}
	for i, c := range w {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(append(b, '['), uint64(c.bucket), 10)
		b = strconv.AppendUint(append(b, ','), c.n, 10)
		b = append(b, ']')
	}
	return append(b, ']'), nil
}

// UnmarshalJSON implements json.Unmarshaler. Nearly all of a report are these numbers, so they are read by hand.
func (w *bucketsWire) UnmarshalJSON(b []byte) error {
	var counts [allBuckets]uint64
	var seen [allBuckets]bool
	used := 0
	err := readPairs(b, func(i, n uint64) error {
		switch {
		case i >= uint64(len(counts)):
			return fmt.Errorf("there is no bucket %d of durations", i)
		case seen[i]:
			return fmt.Errorf("bucket %d of durations comes twice", i)
		}
		seen[i] = true
		if counts[i] = n; n > 0 {
			used++
		}
		return nil
	})
	if err != nil {
		return err
	}
	*w = nil
	if used > 0 {
		*w = make(bucketsWire, 0, used)
	}
	for i, n := range counts {
		if n > 0 {
			*w = append(*w, bucketCount{uint16(i), n})
		}
	}
	return nil
}

// readPairs reads a list of pairs of numbers, and nothing after it.
func readPairs(b []byte, take func(first, second uint64) error) error {
	c := cursor{b}
	if !c.token('[') {
		return errPairs
	}
	for more := !c.token(']'); more; {
		var first, second uint64
		if !c.token('[') || !c.space().number(&first) || !c.token(',') || !c.space().number(&second) || !c.token(']') {
			return errPairs
		}
		if err := take(first, second); err != nil {
			return err
		}
		if more = c.token(','); !more && !c.token(']') {
			return errPairs
		}
	}
	if len(c.space().b) > 0 {
		return errPairs
	}
	return nil
}

var errPairs = errors.New("the buckets of durations are no list of pairs of whole numbers, an index and a count")

// Report is the state of all edges now.
func (r *Registry) Report() Report {
	return Report{Began: r.began, Time: time.Now(), Edges: r.Edges()}
}
