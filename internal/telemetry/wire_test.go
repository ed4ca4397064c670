package telemetry

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
	"time"
)

// TestAReportSurvivesItsWire with all that is counted, and stays as large as what it tells.
func TestAReportSurvivesItsWire(t *testing.T) {
	r := New()
	e := r.Edge(web)
	for range 10_000 {
		e.Observe(rand.Uint32(), rand.IntN(3) > 0, time.Duration(rand.Int64N(1<<rand.IntN(42))))
	}
	r.Edge(EdgeLabels{Out: true, Service: "shop/cart"}).Observe(0, true, time.Second)
	sent := r.Report()
	b, err := json.Marshal(sent)
	if err != nil {
		t.Fatal(err)
	}
	got, err := ReadReport(bytes.NewReader(b), 2)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := ReadReport(bytes.NewReader(b), 1); err == nil || err.Error() != "edges: more than 1" {
		t.Errorf("two edges: %v", err)
	}
	for n := range b[:len(b)-1] {
		if _, err := ReadReport(bytes.NewReader(b[:n]), 2); err == nil {
			t.Errorf("%s is taken for a report", b[:n])
		}
	}
	if !got.Began.Equal(sent.Began) || !got.Time.Equal(sent.Time) || got.Began.IsZero() {
		t.Errorf("times %v %v, want %v %v", got.Began, got.Time, sent.Began, sent.Time)
	}
	if !reflect.DeepEqual(got.Edges, sent.Edges) {
		t.Errorf("%s\nread as %+v\nwant %+v", b, got.Edges, sent.Edges)
	}
	one, err := json.Marshal(got.Edges[0])
	if want := `{"out":true,"service":"shop/cart","success":1,"failure":0,"latency":{"nanos":1000000000,"buckets":[[315,1]]}}`; err != nil || string(one) != want {
		t.Errorf("%s, want %s", one, want)
	}
}

func TestReportsThatAreNone(t *testing.T) {
	for text, want := range map[string]string{
		`{"buckets":[[515,1]]}`:                                   "there is no bucket 515 of durations",
		`{"buckets":[[3,1],[3,1]]}`:                               "bucket 3 of durations comes twice",
		`{"buckets":[[3,18446744073709551615],[4,1]]}`:            "the durations are too many to be counted",
		`{"buckets":[[3,18446744073709551615],[4,0]],"nanos":-1}`: "",
		`{"buckets":[[-1,1]]}`:                                    errPairs.Error(),
		`{"buckets":[[1,18446744073709551616]]}`:                  errPairs.Error(),
		`{"buckets":[[1,1.5]]}`:                                   errPairs.Error(),
		`{"buckets":[[1]]}`:                                       errPairs.Error(),
		`{"buckets":[[1,2,3]]}`:                                   errPairs.Error(),
		`{"buckets":[[,2]]}`:                                      "",
		`{"buckets":[1,2]}`:                                       errPairs.Error(),
		`{"buckets":{}}`:                                          errPairs.Error(),
		`{"buckets":"x"}`:                                         errPairs.Error(),
		`{"buckets":[["1",2]]}`:                                   errPairs.Error(),
	} {
		var l Latency
		err := json.Unmarshal([]byte(text), &l)
		if err == nil || want != "" && err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
		if l.Count() != 0 {
			t.Errorf("%s: it counts %d", text, l.Count())
		}
	}
}

// TestDurationsAddUp: what is taken away and put back is the same, and percentiles are those of all.
func TestDurationsAddUp(t *testing.T) {
	var x, y latencyCounts
	for i := range 4000 {
		d := time.Duration(1 + rand.Int64N(int64(time.Second)))
		if i < 1000 {
			x.bucket(d).Add(1)
		} else {
			y.bucket(d).Add(1)
		}
	}
	latency := func(c *latencyCounts) Latency {
		var sum LatencySum
		c.addTo(&sum)
		return sum.Latency()
	}
	a, b := latency(&x), latency(&y)
	sum := a.Plus(b)
	if a.Count() != 1000 || b.Count() != 3000 || sum.Count() != 4000 {
		t.Fatalf("%d and %d are %d", a.Count(), b.Count(), sum.Count())
	}
	if !reflect.DeepEqual(sum.Minus(a), b) || !reflect.DeepEqual(sum.Minus(b), a) || sum.Minus(sum).Count() != 0 || sum.Minus(sum).Quantile(0.5) != 0 {
		t.Error("what was added cannot be taken away")
	}
	if d := a.Minus(sum); d.Count() != 0 {
		t.Errorf("less than nothing is %d", d.Count())
	}
	if got := (Latency{}).Plus(a).Minus(Latency{}); !reflect.DeepEqual(got, a) {
		t.Error("nothing added is something")
	}
	if p := sum.Quantile(0.9); p < 850*time.Millisecond || p > 950*time.Millisecond {
		t.Errorf("p90 %v", p)
	}
}

func FuzzReportIsReadOrRefused(f *testing.F) {
	f.Add([]byte(`{"began":"2026-01-01T00:00:00Z","time":"2026-01-01T00:00:01Z","edges":[{"peer":{"kind":"Pod","name":"a"},"success":1,"latency":{"nanos":1,"buckets":[[3,1]]}}]}`))
	f.Add([]byte(`{}`))
	f.Add([]byte(`{"edges":[],"more":{"a":[1]}}`))
	f.Add([]byte(`{"edges":[{"latency":{"buckets":[[496,18446744073709551615],[0,1]]}}]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		var r Report
		if r, err := ReadReport(bytes.NewReader(b), 10); err == nil && len(r.Edges) > 10 {
			t.Fatalf("%d edges", len(r.Edges))
		}
		if json.Unmarshal(b, &r) != nil {
			return
		}
		again, err := json.Marshal(r)
		if err != nil {
			return // a year of five digits
		}
		var s Report
		if err := json.Unmarshal(again, &s); err != nil {
			t.Fatalf("%s: %v", again, err)
		}
		if read, err := ReadReport(bytes.NewReader(again), len(s.Edges)); err == nil && !reflect.DeepEqual(read, s) ||
			err != nil && !strings.Contains(err.Error(), "labels") {
			t.Fatalf("%s is read as %+v, want %+v: %v", again, read, s, err)
		}
		for i := range r.Edges {
			l := r.Edges[i].Latency
			if q := l.Quantile(0.99); q < 0 || l.Count() != s.Edges[i].Latency.Count() {
				t.Fatalf("%s: p99 %v, %d durations", again, q, l.Count())
			}
		}
	})
}

// FuzzEdgeIsReadAsByJSON: what is read by hand means the same to json, and what json writes is read by hand.
func FuzzEdgeIsReadAsByJSON(f *testing.F) {
	for _, text := range []string{
		`{"at":{"kind":"Pod","namespace":"shop","name":"web"},"out":true,"peer":{"kind":"Pod","name":"a"},"route":"a/b","service":"a/c:80","backend":"a/d:80","success":1,"failure":0,"latency":{"nanos":1,"buckets":[[3,1],[4,2]]}}`,
		`{"success":0,"failure":18446744073709551615,"latency":{"nanos":0,"buckets":[]}}`,
		`{"success":01,"failure":0,"latency":{"nanos":00,"buckets":[[03,1]]}}`,
		`{"success":1,"failure":0,"latency":{"nanos":1,"buckets":[[3,1]]x}}`,
		`{"success":1,"failure":0,"latency":{"nanos":1,"buckets":[ [ 3 , 1 ] ] }}`,
		`{"peer":{,"name":"a"},"success":1,"failure":0,"latency":{"nanos":1,"buckets":[]}}`,
		`{"peer":{"name":"a\u0062"},"success":1,"failure":0,"latency":null}`,
		"{\"route\":\"\xff\",\"success\":1,\"failure\":0,\"latency\":{\"nanos\":1,\"buckets\":[]}}",
		"{\"route\":\"\x01\",\"success\":1,\"failure\":0,\"latency\":{\"nanos\":1,\"buckets\":[]}}",
		`{"success":1,"failure":0,"latency":{"nanos":1,"buckets":[]},"success":2}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		var byHand, byJSON EdgeSnapshot
		read, err := byHand.read(b), json.Unmarshal(b, &byJSON)
		if read && (err != nil || !reflect.DeepEqual(byHand, byJSON)) {
			t.Fatalf("%s: %+v by hand, %+v by json, %v", b, byHand, byJSON, err)
		}
		if err != nil {
			return
		}
		again, err := json.Marshal(byJSON)
		if err != nil {
			t.Fatal(err)
		}
		byHand = EdgeSnapshot{}
		if !byHand.read(again) && !strings.Contains(string(again), `\`) || !reflect.DeepEqual(byHand, byJSON) && !strings.Contains(string(again), `\`) {
			t.Fatalf("%s: %+v by hand, want %+v", again, byHand, byJSON)
		}
	})
}

// TestReportsThatAreLarge end with an error before they take memory, but for what is ignored.
func TestReportsThatAreLarge(t *testing.T) {
	long := strings.Repeat("x", maxValue)
	for _, text := range []string{`{"began":"` + long + `"}`, `{"edges":[{"route":"` + long + `"}]}`, `{"` + long + `":1}`, `{"edges":` + strings.Repeat("[", maxValue+1)} {
		if _, err := ReadReport(strings.NewReader(text), 10); err == nil || len(err.Error()) > 200 {
			t.Errorf("%.20s: %v", text, err)
		}
	}
	if r, err := ReadReport(strings.NewReader(`{"later":[{"a":["`+long+`\"]}"]}],"edges":[{"success":1,"failure":0,"latency":{"nanos":1,"buckets":[]}}]}`), 10); err != nil || len(r.Edges) != 1 {
		t.Errorf("%+v, %v", r, err)
	}
}
