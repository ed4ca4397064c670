package telemetry

import (
	"bytes"
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
	in := json.NewDecoder(from)
	if err := expect(in, json.Delim('{')); err != nil {
		return Report{}, err
	}
	for in.More() {
		key, err := in.Token()
		if err != nil {
			return Report{}, err
		}
		switch key {
		case "began":
			err = in.Decode(&r.Began)
		case "time":
			err = in.Decode(&r.Time)
		case "edges":
			r.Edges, err = readEdges(in, edges)
		default:
			var ignored json.RawMessage
			err = in.Decode(&ignored)
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if err != nil {
			return Report{}, fmt.Errorf("%v: %w", key, err)
		}
	}
	return r, expect(in, json.Delim('}'))
}

func readEdges(in *json.Decoder, most int) (out []EdgeSnapshot, err error) {
	if start, err := in.Token(); start == nil || err != nil {
		return nil, err // null
	} else if start != json.Delim('[') {
		return nil, fmt.Errorf("%v in place of [", start)
	}
	out = []EdgeSnapshot{}
	for in.More() {
		if len(out) == most {
			return nil, fmt.Errorf("more than %d", most)
		}
		out = append(out, EdgeSnapshot{})
		e := &out[len(out)-1]
		if err := in.Decode(e); err != nil {
			return nil, err
		}
		size := 0
		for _, label := range e.values() {
			size += len(label)
		}
		if size > maxLabels {
			return nil, fmt.Errorf("one has labels of %d bytes, which is more than %d", size, maxLabels)
		}
	}
	return out, expect(in, json.Delim(']'))
}

func expect(in *json.Decoder, want json.Delim) error {
	got, err := in.Token()
	if err == nil && got != want {
		err = fmt.Errorf("%v in place of %v", got, want)
	}
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return err
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
	if rest, ok := bytes.CutPrefix(b, []byte(`{"nanos":`)); ok {
		digits, rest, _ := bytes.Cut(rest, []byte(`,"buckets":`))
		nanos, err := strconv.ParseUint(string(digits), 10, 64)
		if n := len(rest) - 1; err == nil && n > 0 && rest[n] == '}' {
			w.Nanos = nanos
			if err := w.Buckets.UnmarshalJSON(rest[:n]); err == nil {
				return nil
			}
		}
	}
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

// UnmarshalJSON implements json.Unmarshaler. Nearly all of a report are these numbers, so they are read by hand; that b
// is JSON, json has seen to.
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

// readPairs reads a list of pairs of numbers.
func readPairs(b []byte, take func(first, second uint64) error) error {
	accept := func(c byte) bool {
		for len(b) > 0 && (b[0] == ' ' || b[0] == '\n' || b[0] == '\t' || b[0] == '\r') {
			b = b[1:]
		}
		if len(b) == 0 || b[0] != c {
			return false
		}
		b = b[1:]
		return true
	}
	number := func() (n uint64, ok bool) {
		for ; len(b) > 0 && b[0] >= '0' && b[0] <= '9'; b, ok = b[1:], true {
			digit := uint64(b[0] - '0')
			if n > (math.MaxUint64-digit)/10 {
				return 0, false
			}
			n = 10*n + digit
		}
		return n, ok
	}
	if !accept('[') {
		return errPairs
	}
	for more := !accept(']'); more; {
		var first, second uint64
		ok := accept('[')
		if accept(' '); ok {
			first, ok = number()
		}
		if ok = ok && accept(','); ok {
			accept(' ')
			second, ok = number()
		}
		if !ok || !accept(']') {
			return errPairs
		}
		if err := take(first, second); err != nil {
			return err
		}
		if more = accept(','); !more && !accept(']') {
			return errPairs
		}
	}
	return nil
}

var errPairs = errors.New("the buckets of durations are no list of pairs of whole numbers, an index and a count")

// Report is the state of all edges now.
func (r *Registry) Report() Report {
	return Report{Began: r.began, Time: time.Now(), Edges: r.Edges()}
}
