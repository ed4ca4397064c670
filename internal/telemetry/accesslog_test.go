package telemetry

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func record() *Record {
	return &Record{
		Time:     time.Date(2026, 3, 4, 5, 6, 7, 89_012_345, time.UTC),
		Listener: "default/gw/http", Route: "default/shop", Rule: "0", Backend: "default/v1:80", Endpoint: "10.0.0.1:8080",
		Client: "192.0.2.1:5555", Method: "GET", Host: "shop.example", Path: "/cart", Query: "x=1", Protocol: "HTTP/1.1",
		Status: 200, Duration: 1_234_567 * time.Nanosecond, BackendConnect: 200 * time.Microsecond, BackendFirstByte: 900 * time.Microsecond,
		BackendDuration: time.Millisecond, Attempts: 1, BytesIn: 5, BytesOut: 1024,
		Mirrors:   []MirrorResult{{"default/v2:80", MirrorPending}, {"default/v3:80", MirrorDroppedInFlight}},
		RequestID: "abc", TraceParent: "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", UserAgent: `Moz"illa`,
	}
}

// lineOf is a record as one line of a log whose fields are bounded.
func lineOf(format Format, r *Record, most int) []byte {
	l := &AccessLog{format: format, most: most}
	if format == JSON {
		return l.appendJSON(nil, r)
	}
	return l.appendText(nil, r)
}

func closeLog(t *testing.T, l *AccessLog) {
	t.Helper()
	if err := l.Close(context.Background()); err != nil {
		t.Fatal(err)
	}
}

func TestJSONLineHasEveryField(t *testing.T) {
	const want = `{"time":"2026-03-04T05:06:07.089012Z","listener":"default/gw/http","route":"default/shop","rule":"0",` +
		`"backend":"default/v1:80","endpoint":"10.0.0.1:8080","client":"192.0.2.1:5555","method":"GET","host":"shop.example",` +
		`"path":"/cart","query":"x=1","protocol":"HTTP/1.1","status":200,"duration_ms":1.234,"backend_connect_ms":0.200,` +
		`"backend_first_byte_ms":0.900,"backend_duration_ms":1.000,"attempts":1,"bytes_in":5,"bytes_out":1024,"mirrors":[{"mirror":"default/v2:80","outcome":"pending"},` +
		`{"mirror":"default/v3:80","outcome":"dropped_in_flight"}],"request_id":"abc",` +
		`"traceparent":"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01","user_agent":"Moz\"illa"}` + "\n"
	if got := string(lineOf(JSON, record(), 0)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestJSONLineLeavesOutWhatIsEmpty(t *testing.T) {
	const want = `{"time":"0001-01-01T00:00:00.000000Z","status":0,"reason":"client_closed","duration_ms":0.000,"bytes_in":0,"bytes_out":0}` + "\n"
	if got := string(lineOf(JSON, &Record{Reason: ClientClosed}, 0)); got != want {
		t.Errorf("got  %swant %s", got, want)
	}
}

func TestLineSaysWhatOfAPathIsReadDifferently(t *testing.T) {
	r := &Record{Status: 400, Reason: AmbiguousPath, PathReading: "escaped_slash"}
	if got := string(lineOf(JSON, r, 1<<10)); !strings.Contains(got, `"reason":"ambiguous_path","path_reading":"escaped_slash",`) {
		t.Error(got)
	}
	if got := string(lineOf(Extended, r, 1<<10)); !strings.Contains(got, " reason=ambiguous_path path_reading=escaped_slash") {
		t.Error(got)
	}
}

func FuzzJSONStringIsThatOfTheLibrary(f *testing.F) {
	for _, s := range []string{"", "plain", "\"\\\b\f\n\r\t\x00\x1f\x7f", "\xff\xc3(", "é\u2028\u2029\ufffd😀", "<a href='&'>", "\xf0\x9f\x98", "\xed\xa0\x80"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		var want bytes.Buffer
		enc := json.NewEncoder(&want)
		enc.SetEscapeHTML(false)
		if err := enc.Encode(s); err != nil {
			t.Fatal(err)
		}
		if got := string(appendJSONString(nil, s)) + "\n"; got != want.String() {
			t.Errorf("%q: got %s, want %s", s, got, want.String())
		}
	})
}

func TestFieldsOfALineAreBounded(t *testing.T) {
	long := map[string]string{
		"plain": strings.Repeat("a", 60_000), "quotes": strings.Repeat(`"\\`, 30_000), "controls": strings.Repeat("\x01", 60_000),
		"bytes": strings.Repeat("\xff", 60_000), "runes": strings.Repeat("é\u2028😀", 9000), "spaces": strings.Repeat(" ", 60_000),
	}
	for name, text := range long {
		for _, format := range []Format{JSON, Extended} {
			r := record()
			r.Method, r.Host, r.Path, r.Query, r.UserAgent, r.Referer, r.RequestID, r.TraceParent = text, text, text, text, text, text, text, text
			var out bytes.Buffer
			l := NewAccessLog(&out, AccessLogOptions{Format: format})
			l.Log(r)
			closeLog(t, l)
			if n := out.Len(); n > 8*(DefaultMaxField+20)+1000 || n < 8*(DefaultMaxField-10) {
				t.Errorf("%s, format %d: the line has %d bytes", name, format, n)
			}
			if n := bytes.Count(out.Bytes(), []byte("...+")); n != 8 {
				t.Errorf("%s, format %d: %d fields are cut", name, format, n)
			}
			if format == JSON && !json.Valid(out.Bytes()) {
				t.Errorf("%s: not JSON: %s", name, out.Bytes())
			}
		}
	}
	r := record()
	r.Query = strings.Repeat("b", 2000)
	for most, want := range map[int]string{
		0: `"query":"` + strings.Repeat("b", DefaultMaxField) + `...+976",`, 100: `"query":"` + strings.Repeat("b", 100) + `...+1900",`,
		2000: `"query":"` + r.Query + `",`, -1: `"query":"` + r.Query + `",`,
	} {
		var out bytes.Buffer
		l := NewAccessLog(&out, AccessLogOptions{MaxField: most})
		l.Log(r)
		closeLog(t, l)
		if !strings.Contains(out.String(), want) {
			t.Errorf("bound %d: %s", most, out.String())
		}
	}
}

// A cut field is the beginning of the whole one, in complete characters, and within the bound.
func FuzzFieldsAreCutWhereCharactersEnd(f *testing.F) {
	f.Add("aé\xff\u2028\x00\"", 7)
	f.Fuzz(func(t *testing.T, s string, most int) {
		if most <= 0 || s == "" {
			t.Skip()
		}
		for _, encode := range []func(most int) string{
			func(most int) string { return strings.Trim(string(appendMember(nil, "", s, most)), `"`) },
			func(most int) string { return string(appendWord(nil, s, most)) },
		} {
			whole, cut := encode(0), encode(most)
			if cut == whole {
				if len(whole) > max(most, longestEscape*len(s)) {
					t.Errorf("%q is not cut to %d", s, most)
				}
				continue
			}
			kept := cut[:strings.LastIndex(cut, "...+")]
			if len(kept) > most || !strings.HasPrefix(whole, kept) {
				t.Errorf("%q cut to %d is %q", whole, most, cut)
			}
		}
	})
}

func FuzzLinesStayOneLine(f *testing.F) {
	f.Add("GET", "/a b\n", "x\"", "\\")
	f.Add("GET", "/\" 200 5 \"-\" \"-\"\r\n127.0.0.1 - - [", "\x1b[2J", "a\\\" \"b")
	f.Fuzz(func(t *testing.T, method, path, host, agent string) {
		r := &Record{Method: method, Path: path, Query: path, Host: host, UserAgent: agent, Referer: agent, Client: host, RequestID: agent,
			Mirrors: []MirrorResult{{Mirror: host}}, RequestFields: []Field{{0, agent}, {0, path}, {1, path}}, ResponseFields: []Field{{0, host}}}
		l := &AccessLog{request: logFields([]string{"X-A", "Cookie"}, nil), response: logFields([]string{"X-B"}, nil)}
		line := l.appendJSON(nil, r)
		var v struct {
			Path, Host string
			Request    map[string]string `json:"request_headers"`
			Response   map[string]string `json:"response_headers"`
		}
		if err := json.Unmarshal(line, &v); err != nil {
			t.Errorf("%q: %v", line, err)
		}
		valid := func(s string) string { return string([]rune(s)) } // a U+FFFD for each bad byte
		if v.Path != valid(path) || v.Request["x-a"] != valid(agent)+", "+valid(path) || v.Request["cookie"] != mask || v.Response["x-b"] != valid(host) {
			t.Errorf("path %q, fields %q and %q became %q", path, agent, host, line)
		}
		for _, format := range []Format{Text, Extended} {
			l.format = format
			text := l.appendText(nil, r)
			for _, line := range [][]byte{line, text} {
				if i := bytes.IndexFunc(line, func(c rune) bool { return c < 0x20 }); i != len(line)-1 {
					t.Errorf("control byte at %d of %q", i, line)
				}
			}
			if bytes.Count(text, []byte{'"'}) != 12 || bytes.Contains(text, []byte(`\"`)) {
				t.Errorf("quotes in %q", text)
			}
			if m := combined.FindSubmatch(text); m == nil || string(m[6]) != escape(agent) || string(m[7]) != escape(agent) {
				t.Errorf("not the combined format: %q", text)
			}
		}
	})
}

func TestCloseWritesWhatIsQueued(t *testing.T) {
	var out bytes.Buffer
	l := NewAccessLog(&out, AccessLogOptions{})
	const goroutines, each = 8, 500
	var wg sync.WaitGroup
	for range goroutines {
		wg.Go(func() {
			for range each {
				l.Log(record())
			}
		})
	}
	wg.Wait()
	closeLog(t, l)
	lines := 0
	for s := bufio.NewScanner(&out); s.Scan(); lines++ {
		if !json.Valid(s.Bytes()) {
			t.Fatalf("line %d is torn: %s", lines, s.Text())
		}
	}
	if lines != goroutines*each || l.Dropped() != 0 {
		t.Errorf("%d lines, %d dropped, want %d", lines, l.Dropped(), goroutines*each)
	}
	l.Log(record())
	if l.Dropped() != 1 {
		t.Error("a record after Close was not counted as dropped")
	}
	closeLog(t, l) // again is allowed
}

func TestLinesAreWrittenWithoutWaitingForMore(t *testing.T) {
	r, w := io.Pipe()
	l := NewAccessLog(w, AccessLogOptions{})
	in := bufio.NewReader(r)
	for range 3 {
		l.Log(record())
		if line, err := in.ReadString('\n'); err != nil || !json.Valid([]byte(line)) {
			t.Fatalf("%q, %v", line, err)
		}
	}
	closeLog(t, l)
}

func TestRecordsAreCopiedWhenLogged(t *testing.T) {
	var out bytes.Buffer
	l := NewAccessLog(&out, AccessLogOptions{})
	r := record()
	l.Log(r)
	*r = Record{Path: "/overwritten", Mirrors: r.Mirrors}
	r.Mirrors[0].Mirror = "overwritten"
	closeLog(t, l)
	if strings.Contains(out.String(), "overwritten") {
		t.Error(out.String())
	}
}

// gate is a writer that stands still until it is opened.
type gate struct {
	open    chan struct{}
	written bytes.Buffer
}

func (g *gate) Write(p []byte) (int, error) {
	<-g.open
	return g.written.Write(p)
}

func TestAFullQueueDropsAndCountsAndNeverBlocks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		size := len(lineOf(JSON, record(), 0))
		g := &gate{open: make(chan struct{})}
		l := NewAccessLog(g, AccessLogOptions{QueueBytes: 10*size + size/2})
		l.Log(record())
		time.Sleep(time.Second) // of the bubble's time: the writer now stands in Write
		for range 100 {
			l.Log(record())
		}
		if got := l.Dropped(); got != 91 {
			t.Errorf("%d dropped, want 91: ten fit, one of them in the writer's hands", got)
		}

		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if err := l.Close(ctx); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Close of a stuck log = %v", err)
		}
		close(g.open)
		closeLog(t, l)
		if lines := bytes.Count(g.written.Bytes(), []byte{'\n'}); lines != 10 {
			t.Errorf("%d lines, want 10", lines)
		}
	})
}

// disk is a writer that is full at times; then it accepts only a part.
type disk struct {
	room    int
	written bytes.Buffer
}

func (d *disk) Write(p []byte) (int, error) {
	n := min(len(p), d.room)
	d.room -= n
	d.written.Write(p[:n])
	if n < len(p) {
		return n, syscall.ENOSPC
	}
	return n, nil
}

func TestAFullDiskIsCountedLoggedOnceAndSurvived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		size := len(lineOf(JSON, record(), 0))
		d := &disk{room: size + size/2}
		var complaints bytes.Buffer
		l := NewAccessLog(d, AccessLogOptions{Logger: slog.New(slog.NewTextHandler(&complaints, nil))})
		log := func() {
			l.Log(record())
			time.Sleep(time.Second)
			synctest.Wait()
		}
		log() // fits
		log() // is torn in the middle
		log()
		log()
		if got := l.Dropped(); got != 3 {
			t.Errorf("%d dropped, want 3", got)
		}
		if got := strings.Count(complaints.String(), "level=ERROR"); got != 1 {
			t.Errorf("%d complaints, want 1:\n%s", got, complaints.String())
		}
		d.room = 1 << 20
		log()
		if !strings.Contains(complaints.String(), "written again") {
			t.Errorf("nothing said that it works again:\n%s", complaints.String())
		}
		closeLog(t, l)
		lines := strings.Split(strings.TrimSuffix(d.written.String(), "\n"), "\n")
		if len(lines) != 3 || !json.Valid([]byte(lines[0])) || json.Valid([]byte(lines[1])) || !json.Valid([]byte(lines[2])) {
			t.Errorf("want a whole line, a torn one, a whole one:\n%s", d.written.String())
		}
	})
}

func TestCloseReportsALastWriteThatFailed(t *testing.T) {
	l := NewAccessLog(&disk{}, AccessLogOptions{})
	l.Log(record())
	if err := l.Close(context.Background()); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("Close = %v", err)
	}
}

func TestDroppedRecordsOfTheAccessLogAreAMetric(t *testing.T) {
	r := New()
	l := NewAccessLog(io.Discard, AccessLogOptions{})
	r.WatchAccessLog(l)
	closeLog(t, l)
	l.Log(record())
	families, err := registryOf(r).Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == "weir_access_log_dropped_records_total" && f.Metric[0].Counter.GetValue() == 1 {
			return
		}
	}
	t.Error("the dropped record is not in the metrics")
}

func TestANilAccessLogDoesNothing(t *testing.T) {
	var l *AccessLog
	l.Log(record())
	closeLog(t, l)
	if l.Dropped() != 0 {
		t.Error("dropped")
	}
}

func TestLoggingDoesNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector makes sync.Pool lose things at random")
	}
	for _, format := range []Format{JSON, Text, Extended} {
		l := NewAccessLog(io.Discard, AccessLogOptions{
			Format: format, RequestFields: []string{"Accept", "Cookie"}, ResponseFields: []string{"Server"}, Filter: Filter{Sample: func() bool { return true }},
		})
		r := record()
		r.RequestFields, r.ResponseFields = []Field{{0, "a"}, {0, `"b`}, {1, "c"}}, []Field{{0, "s"}}
		for range 10_000 { // the buffers grow to their size
			l.Log(r)
		}
		if n := testing.AllocsPerRun(1000, func() {
			if l.Wants(r.Status, r.Reason, r.Route, r.Duration) {
				l.Log(r)
			}
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
		closeLog(t, l)
	}
}

func BenchmarkLog(b *testing.B) {
	for name, format := range map[string]Format{"json": JSON, "text": Text} {
		b.Run(name, func(b *testing.B) {
			l := NewAccessLog(io.Discard, AccessLogOptions{Format: format})
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				r := record()
				for pb.Next() {
					l.Log(r)
				}
			})
			_ = l.Close(context.Background())
		})
	}
}
