package tracing

import (
	"strings"
	"testing"
	"time"
)

const example = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

func TestParseTakesVersionZeroAlone(t *testing.T) {
	for _, c := range []struct {
		text, sent string // sent is "" if the text is invalid
	}{
		{example, example},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff", "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-03"},
		{"00-00000000000000000000000000000001-0000000000000001-02", "00-00000000000000000000000000000001-0000000000000001-02"},
		{"", ""},
		{"00", ""},
		{" " + example, ""},
		{example + " ", ""},
		{example + "-00", ""},
		{example[:54], ""},
		{"01" + example[2:], ""},
		{"ff" + example[2:], ""},
		{strings.ToUpper(example), ""},
		{strings.Replace(example, "4bf9", "4bF9", 1), ""},
		{strings.Replace(example, "4bf9", "4bg9", 1), ""},
		{strings.Replace(example, "-", "_", 1), ""},
		{example[:35] + "_" + example[36:], ""},
		{example[:52] + "_" + example[53:], ""},
		{example[:53] + "0x", ""},
		{"00-00000000000000000000000000000000-00f067aa0ba902b7-01", ""},
		{"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01", ""},
	} {
		got, ok := Parse(c.text)
		if ok != (c.sent != "") {
			t.Errorf("Parse(%q): valid is %v", c.text, ok)
		}
		if ok && got.String() != c.sent || !ok && got != (Context{}) {
			t.Errorf("Parse(%q) is %q, want %q", c.text, got, c.sent)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(example)
	f.Add("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-ff")
	f.Add("00-")
	f.Fuzz(func(t *testing.T, s string) {
		c, ok := Parse(s)
		if !ok {
			return
		}
		text := c.String()
		if !c.Valid() || text[:53] != s[:53] {
			t.Errorf("%q became %q", s, text)
		}
		if again, ok := Parse(text); !ok || again != c {
			t.Errorf("%q is not read back", text)
		}
	})
}

func TestParentDecidesAndElseTheShare(t *testing.T) {
	asked, answer := 0, false
	tr := New(Options{Take: func() bool { asked++; return answer }})
	now := time.Now()
	parent, _ := Parse(example)
	if !tr.Sample(parent, now) {
		t.Error("a sampled parent was not followed")
	}
	parent.Flags = 0
	if tr.Sample(parent, now) {
		t.Error("a parent that is not sampled was not followed")
	}
	if asked != 0 {
		t.Error("the share was asked about a request with a parent")
	}
	if tr.Sample(Context{}, now) {
		t.Error("the share's answer was not followed")
	}
	answer = true
	if !tr.Sample(Context{}, now) || asked != 2 {
		t.Error("the share's answer was not followed")
	}
}

// TestClientsCannotHaveMoreTracedThanTheRate sends requests that all ask to be traced.
func TestClientsCannotHaveMoreTracedThanTheRate(t *testing.T) {
	sink := &discard{}
	tr := New(Options{Sink: sink, Take: func() bool { return true }, Rate: 10})
	parent, _ := Parse(example)
	count := func(now time.Time, attempts int) (taken int) {
		for range 100 {
			if tr.Sample(parent, now) {
				taken++
				for range attempts {
					tr.BeginAttempt(parent, "", now)
				}
			}
		}
		return taken
	}
	now := tr.began
	if n := count(now, 0); n != 10 {
		t.Errorf("%d requests at once, want 10", n)
	}
	if n := count(now.Add(500*time.Millisecond), 0); n != 5 {
		t.Errorf("%d requests half a second later, want 5", n)
	}
	if n := count(now.Add(time.Hour), 1); n != 5 {
		t.Errorf("%d requests with an attempt each, want 5", n)
	}
	if got := tr.Limited(); got != 90+95+95 {
		t.Errorf("%d are counted as limited, want 280", got)
	}
	for i := range 20 { // attempts may exceed the rate, and take it from those that follow
		tr.BeginAttempt(parent, "", now.Add(time.Hour+time.Duration(i)))
	}
	if n := count(now.Add(time.Hour+2*time.Second), 0); n != 0 {
		t.Errorf("%d requests after many attempts, want 0", n)
	}
}

type discard struct{}

func (d *discard) Begin(Context, Kind, string, time.Time) Span { return nil }

func TestEndpointIsAURLWithoutSecrets(t *testing.T) {
	for _, text := range []string{"", "collector:4318", "grpc://collector", "http://", "http://:4318", "http://me:secret@collector", "http://collector?key=secret", "http://collector#secret", "http://[secret"} {
		if _, err := Endpoint(text); err == nil || strings.Contains(err.Error(), "secret") {
			t.Errorf("%q: the error is %v", text, err)
		}
	}
	for text, want := range map[string]string{"http://c:4318": "http://c:4318/v1/traces", "https://c/": "https://c/v1/traces", "https://c/otlp/x": "https://c/otlp/x", "http://[::1]:4318": "http://[::1]:4318/v1/traces"} {
		if got, err := Endpoint(text); err != nil || got != want {
			t.Errorf("%q: %v, %v", text, got, err)
		}
	}
}
