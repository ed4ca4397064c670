package telemetry

import (
	"math"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

// classicBounds are the exposed buckets. Each is the upper bound of a fine bucket, so the counts are exact.
var classicBounds = [...]time.Duration{
	250 * time.Microsecond, 500 * time.Microsecond,
	time.Millisecond, 2500 * time.Microsecond, 5 * time.Millisecond,
	10 * time.Millisecond, 25 * time.Millisecond, 50 * time.Millisecond,
	100 * time.Millisecond, 250 * time.Millisecond, 500 * time.Millisecond,
	time.Second, 2500 * time.Millisecond, 5 * time.Second,
	10 * time.Second, 25 * time.Second, 50 * time.Second,
}

// nativeSchema makes buckets that grow by 2^(1/8), about 9 %: wider than the fine ones.
const nativeSchema = 3

// nativeIndex is the native bucket of each fine one, by its middle.
var nativeIndex = func() (of [latencyBuckets]int32) {
	for i := range of {
		low, high := bucketBounds(i)
		of[i] = int32(math.Ceil(math.Log2((low+high).Seconds()/2) * (1 << nativeSchema)))
	}
	return of
}()

// histogram is a Latency of fine buckets as a metric: a classic histogram, and for scrapers that speak protobuf a native one.
type histogram struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair
	values Latency
}

func newHistogram(d *prometheus.Desc, values Latency, route, rule, backend string) histogram {
	// In the order of the names, as the exposition demands.
	return histogram{d, []*dto.LabelPair{pair("backend", backend), pair("route", route), pair("rule", rule)}, values}
}

func pair(name, value string) *dto.LabelPair { return &dto.LabelPair{Name: &name, Value: &value} }

// Desc implements prometheus.Metric.
func (h histogram) Desc() *prometheus.Desc { return h.desc }

// Write implements prometheus.Metric.
func (h histogram) Write(out *dto.Metric) error {
	out.Label = h.labels
	out.Histogram = &dto.Histogram{
		SampleCount:   ptr(h.values.Count()),
		SampleSum:     ptr(float64(h.values.nanos) / 1e9),
		Schema:        ptr(int32(nativeSchema)),
		ZeroThreshold: ptr(0.0),
		ZeroCount:     ptr(uint64(0)),
	}
	h.classic(out.Histogram)
	h.native(out.Histogram)
	return nil
}

func (h histogram) classic(out *dto.Histogram) {
	rest, below := h.values.buckets, uint64(0)
	for _, bound := range classicBounds {
		for end := bucketOf(bound); len(rest) > 0 && int(rest[0].bucket) <= end; rest = rest[1:] {
			below += rest[0].n
		}
		out.Bucket = append(out.Bucket, &dto.Bucket{CumulativeCount: ptr(below), UpperBound: ptr(bound.Seconds())})
	}
}

// native writes spans of consecutive buckets and each bucket's difference to the previous one (Prometheus, "Native
// Histograms", Spans and deltas).
func (h histogram) native(out *dto.Histogram) {
	var (
		span  *dto.BucketSpan
		next  int32 // the index after the last bucket written
		count int64 // its count
	)
	for rest := h.values.buckets; len(rest) > 0; {
		index, n := nativeIndex[rest[0].bucket], int64(0)
		for ; len(rest) > 0 && nativeIndex[rest[0].bucket] == index; rest = rest[1:] {
			n += int64(rest[0].n)
		}
		if span == nil || index != next {
			span = &dto.BucketSpan{Offset: ptr(index - next), Length: ptr(uint32(0))}
			out.PositiveSpan = append(out.PositiveSpan, span)
		}
		*span.Length++
		out.PositiveDelta = append(out.PositiveDelta, n-count)
		next, count = index+1, n
	}
	if span == nil { // marks an empty histogram as native
		out.PositiveSpan = []*dto.BucketSpan{{Offset: ptr(int32(0)), Length: ptr(uint32(0))}}
	}
}

func ptr[T any](v T) *T { return &v }
