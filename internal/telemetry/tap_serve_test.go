package telemetry

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

func TestTapQueriesSayWhatIsWrong(t *testing.T) {
	for query, want := range map[string]string{
		"": "", "method=GET&path=/a&status=5xx&rate=1000&for=1h": "", "status=none": "", "status=404": "", "window=x": "",
		"rate=0": "rate: ", "rate=1001": "rate: ", "rate=x": "rate: ", "for=2h": "for: ", "for=0s": "for: ", "for=1": "for: ",
		"status=6xx": "status: ", "status=99": "status: ", "status=x": "status: ", "status=xx": "status: ", "status=12xx": "status: ", "status=1000": "status: ",
		"path=" + strings.Repeat("/", 2000): "path and method: ",
	} {
		values, err := url.ParseQuery(query)
		if err != nil {
			t.Fatal(err)
		}
		if _, err = ParseTapQuery(values); (want == "") != (err == nil) || err != nil && !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%.40s: %v, want %q", query, err, want)
		}
	}
}

func TestTapQueriesRestrict(t *testing.T) {
	for query, want := range map[string]string{
		"": "a b c d", "method=GET": "a c d", "path=/x": "a b", "status=5xx": "b", "status=404": "c", "status=none": "d", "status=2xx&method=GET": "a",
	} {
		values, _ := url.ParseQuery(query)
		q, err := ParseTapQuery(values)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, x := range []Tapped{
			{Host: "a", Method: "GET", Path: "/x/1", Status: 200}, {Host: "b", Method: "POST", Path: "/x", Status: 503},
			{Host: "c", Method: "GET", Path: "/y", Status: 404}, {Host: "d", Method: "GET", Path: "/y"},
		} {
			if q.Wants(&x, TapSides{{}: true}) {
				got = append(got, x.Host)
			}
		}
		if strings.Join(got, " ") != want {
			t.Errorf("%s: %s, want %s", query, got, want)
		}
	}
}

func TestATapOverHTTP(t *testing.T) {
	r, a := New(), Side{Name: "a"}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		q, _ := ParseTapQuery(req.URL.Query())
		if err := r.ServeTap(w, req, q, func(context.Context) (TapSides, error) { return TapSides{{Name: "a"}: true}, nil }); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		}
	}))
	defer s.Close()
	resp, err := s.Client().Get(s.URL + "/?status=5xx")
	if err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(resp.Body)
	next := func() (l TapLine) {
		t.Helper()
		if !lines.Scan() {
			t.Fatalf("ended: %v", lines.Err())
		}
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			t.Fatal(err)
		}
		return l
	}
	if l := next(); l.Counts == nil || *l.Counts != (TapCounts{}) { // it is open
		t.Fatalf("%+v", l)
	}
	for _, x := range []Tapped{{To: a, Status: 200}, {To: Side{Name: "b"}, Status: 500}, {At: a, Status: 503, Path: "/<x>", Duration: time.Second}} {
		for _, tap := range r.Taps() {
			tap.Offer(&x)
		}
	}
	for l := next(); ; l = next() {
		if l.Request != nil {
			if l.Request.Path != "/<x>" || l.Request.Duration != time.Second {
				t.Errorf("%+v", l.Request)
			}
			break
		}
	}
	for l := next(); ; l = next() {
		if l.Counts == nil {
			t.Fatalf("%+v", l)
		}
		if *l.Counts == (TapCounts{Matched: 1, Shown: 1}) {
			break
		}
	}
	resp.Body.Close() // the reader leaves, and the place is free
	for deadline := time.Now().Add(time.Minute); r.Taps() != nil; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatal("the tap stays open")
		}
	}
	resp, err = s.Client().Get(s.URL + "/?for=1ms")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for lines = bufio.NewScanner(resp.Body); lines.Scan(); { // it ends by itself
	}
	for range maxTaps {
		if _, err := r.Tap(1, all); err != nil {
			t.Fatal(err)
		}
	}
	if resp, err := s.Client().Get(s.URL); err != nil || resp.StatusCode != 503 {
		t.Errorf("one more: %v, %v", resp, err)
	} else {
		resp.Body.Close()
	}
}

// TestATapOverHTTPFollowsWhoseItIs: it shows the requests of pods that come, and ends with the reason when it may not go on.
func TestATapOverHTTPFollowsWhoseItIs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, asked := New(), 0
		of := func(context.Context) (TapSides, error) {
			asked++
			if asked == 3 {
				return nil, errors.New("you may not any more")
			}
			return TapSides{{Name: strconv.Itoa(asked)}: true}, nil
		}
		q, _ := ParseTapQuery(nil)
		w := httptest.NewRecorder()
		done := make(chan error)
		go func() { done <- r.ServeTap(w, httptest.NewRequest("GET", "/", nil), q, of) }()
		for range 2 {
			synctest.Wait()
			for _, tap := range r.Taps() {
				tap.Offer(&Tapped{At: Side{Name: "1"}, Path: "/first"})
				tap.Offer(&Tapped{At: Side{Name: "2"}, Path: "/second"})
			}
			time.Sleep(tapAgain + time.Millisecond)
		}
		if err := <-done; err != nil || asked != 3 || r.Taps() != nil {
			t.Errorf("%v, asked %d times, taps %v", err, asked, r.Taps())
		}
		first, second := strings.Count(w.Body.String(), `"/first"`), strings.Count(w.Body.String(), `"/second"`)
		if first != 1 || second != 1 || !strings.HasSuffix(w.Body.String(), `{"counts":{"matched":2,"shown":2}}`+"\n"+`{"error":"you may not any more"}`+"\n") {
			t.Errorf("%d, %d of\n%s", first, second, w.Body)
		}
		refused := errors.New("no")
		if err := r.ServeTap(w, httptest.NewRequest("GET", "/", nil), q, func(context.Context) (TapSides, error) { return nil, refused }); err != refused || r.Taps() != nil {
			t.Errorf("who may not: %v", err)
		}
	})
}
