package main

import (
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"time"
)

func TestBucketsAreNarrowAndLeaveNoGap(t *testing.T) {
	for bucket, from := 0, int64(0); from < int64(time.Hour); bucket++ {
		end := int64(bucketEnd(bucket))
		if bucketOf(from) != bucket || bucketOf(end) != bucket || bucketOf(end+1) != bucket+1 {
			t.Fatalf("bucket %d from %d to %d: these are in %d and %d, the next in %d", bucket, from, end, bucketOf(from), bucketOf(end), bucketOf(end+1))
		}
		if end-from > from/100 {
			t.Fatalf("bucket %d from %d to %d is wider than a hundredth", bucket, from, end)
		}
		from = end + 1
	}
}

func TestQuantilesOfMergedRoundsAreThoseOfAllSamples(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var all []int64
	merged := histogram{}
	for round := range 5 {
		h := histogram{}
		for range 10_000 {
			ns := int64(random.ExpFloat64() * float64(round+1) * 1e5)
			all = append(all, ns)
			h.add(ns)
		}
		text, err := json.Marshal(h) // as the generator sends it
		if err != nil {
			t.Fatal(err)
		}
		var read histogram
		if err := json.Unmarshal(text, &read); err != nil || !reflect.DeepEqual(read, h) {
			t.Fatalf("read %v, %v", read, err)
		}
		merged.merge(read)
	}
	slices.Sort(all)
	if merged.count() != uint64(len(all)) {
		t.Fatalf("%d are counted", merged.count())
	}
	for _, q := range []float64{0, 0.5, 0.99, 0.999, 1} {
		want := float64(all[min(int(q*float64(len(all))), len(all)-1)])
		if got := float64(merged.quantile(q)); got < want || got > want*1.01+1 {
			t.Errorf("quantile %v is %v, want %v", q, got, want)
		}
	}
	if got := (histogram{}).quantile(0.5); got != 0 {
		t.Errorf("nothing has the median %v", got)
	}
}
