package telemetry

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
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
		if err != nil {
			return Report{}, fmt.Errorf("%v: %w", key, err)
		}
	}
	return r, expect(in, json.Delim('}'))
}

func readEdges(in *json.Decoder, most int) (out []EdgeSnapshot, err error) {
	if err := expect(in, json.Delim('[')); err != nil {
		return nil, err
	}
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

// latencyWire is a Latency in a report: the buckets that are not empty, as pairs of index and count.
type latencyWire struct {
	Nanos   uint64      `json:"nanos"`
	Buckets [][2]uint64 `json:"buckets"`
}

// MarshalJSON implements json.Marshaler.
func (l Latency) MarshalJSON() ([]byte, error) {
	w := latencyWire{Nanos: l.nanos, Buckets: make([][2]uint64, len(l.buckets))}
	for i, b := range l.buckets {
		w.Buckets[i] = [2]uint64{uint64(b.bucket), b.n}
	}
	return json.Marshal(w)
}

// UnmarshalJSON implements json.Unmarshaler. It refuses buckets that there are not, those that come twice, and counts
// that together are too many to be counted.
func (l *Latency) UnmarshalJSON(b []byte) error {
	var w latencyWire
	if err := json.Unmarshal(b, &w); err != nil {
		return err
	}
	out := Latency{nanos: w.Nanos}
	if len(w.Buckets) > 0 {
		out.buckets = make([]bucketCount, 0, min(len(w.Buckets), allBuckets))
	}
	var seen [allBuckets]bool
	for _, p := range w.Buckets {
		i, n := p[0], p[1]
		if i >= uint64(len(seen)) {
			return fmt.Errorf("there is no bucket %d of durations", i)
		}
		if seen[i] {
			return fmt.Errorf("bucket %d of durations comes twice", i)
		}
		seen[i] = true
		if n > math.MaxUint64-out.total {
			return fmt.Errorf("the durations are too many to be counted")
		}
		if n > 0 {
			out.buckets = append(out.buckets, bucketCount{uint16(i), n})
			out.total += n
		}
	}
	slices.SortFunc(out.buckets, func(a, b bucketCount) int { return cmp.Compare(a.bucket, b.bucket) })
	*l = out
	return nil
}

// Report is the state of all edges now.
func (r *Registry) Report() Report {
	return Report{Began: r.began, Time: time.Now(), Edges: r.Edges()}
}
