package telemetry

import (
	"bytes"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"
)

// combined is what parsers of the combined log format take a line for; some know no escapes, so a quote ends a field here.
var combined = regexp.MustCompile(`^([^ \[\]":]+|[0-9a-fA-F:.]+|\S*) - - \[(\d\d/[A-Z][a-z]{2}/\d{4}:\d\d:\d\d:\d\d [+-]\d{4})\] "([^"]*)" (\d{3}) (\d+|-) "([^"]*)" "([^"]*)"`)

// escape is how values are written.
func escape(s string) string {
	if s == "" {
		return "-"
	}
	var b strings.Builder
	for _, c := range []byte(s) {
		if c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			b.WriteString(`\x` + strconv.FormatInt(0x100|int64(c), 16)[1:])
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}

func TestTextLineIsTheCombinedFormat(t *testing.T) {
	r := record()
	r.UserAgent, r.Referer = "a\"b\nc\xff\\", "http://a.example/"
	const want = `192.0.2.1 - - [04/Mar/2026:05:06:07 +0000] "GET /cart?x=1 HTTP/1.1" 200 1024 "http://a.example/" "a\x22b\x0ac\xff\x5c"`
	if got := string(lineOf(Text, r, 0)); got != want+"\n" {
		t.Errorf("got  %swant %s", got, want)
	}
	r.Reason, r.Attempts = BackendReset, 2
	const pairs = ` host=shop.example duration_ms=1.234 client=192.0.2.1:5555 listener=default/gw/http route=default/shop rule=0 backend=default/v1:80 ` +
		`endpoint=10.0.0.1:8080 backend_connect_ms=0.200 backend_first_byte_ms=0.900 backend_duration_ms=1.000 attempts=2 bytes_in=5 reason=backend_reset ` +
		`mirror=default/v2:80,pending mirror=default/v3:80,dropped_in_flight request_id=abc ` +
		`traceparent=00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01`
	if got := string(lineOf(Extended, r, 0)); got != want+pairs+"\n" {
		t.Errorf("got  %swant %s", got, want+pairs)
	}
}

func TestTextLineOfWhatIsMissing(t *testing.T) {
	zone := time.FixedZone("", -5*3600)
	at := time.Date(2026, 3, 4, 5, 6, 7, 0, zone)
	for _, test := range []struct {
		record Record
		want   string
	}{
		{Record{Client: "[2001:db8::1]:443", Method: "HEAD", Path: "/", Target: "/?", Protocol: "HTTP/2.0", Status: 204},
			`2001:db8::1 - - [04/Mar/2026:05:06:07 -0500] "HEAD /? HTTP/2.0" 204 - "-" "-"`},
		{Record{Client: "[fe80::1%eth0]:80", Method: "GET", Target: "*", Protocol: "HTTP/1.0", Status: 0, Reason: ClientClosed},
			`fe80::1 - - [04/Mar/2026:05:06:07 -0500] "GET * HTTP/1.0" 499 - "-" "-"`},
		{Record{Client: "2001:db8::2", Status: 400, Reason: BadRequest, BytesOut: 7}, `2001:db8::2 - - [04/Mar/2026:05:06:07 -0500] "-" 400 7 "-" "-"`},
		{Record{Client: "192.0.2.7", Protocol: "TCP", BytesOut: 7}, `192.0.2.7 - - [04/Mar/2026:05:06:07 -0500] "-" 000 7 "-" "-"`},
		{Record{Method: "GET", Path: "/"}, `- - - [04/Mar/2026:05:06:07 -0500] "GET /" 499 - "-" "-"`},
	} {
		test.record.Time = at
		if got := string(lineOf(Text, &test.record, 0)); got != test.want+"\n" {
			t.Errorf("got  %swant %s", got, test.want)
		}
		if !combined.MatchString(test.want) {
			t.Errorf("parsers do not know %s", test.want)
		}
	}
}

func TestHeaderFieldsOfChoiceAreInTheLine(t *testing.T) {
	options := AccessLogOptions{
		RequestFields: []string{"X-Team", "Authorization", "x-team", "Cookie", "Accept"}, ResponseFields: []string{"Server", "Set-Cookie"}, Unmasked: []string{"cookie"},
	}
	r := record()
	r.RequestFields = []Field{{0, "a b"}, {0, `"c`}, {1, "Bearer x"}, {2, "id=1"}}
	r.ResponseFields = []Field{{1, "id=2"}}
	for format, want := range map[Format]string{
		JSON:     `,"request_headers":{"x-team":"a b, \"c","authorization":"***","cookie":"id=1"},"response_headers":{"set-cookie":"***"}}`,
		Text:     `"Moz\x22illa" request.x-team="a b, \x22c" request.authorization="***" request.cookie="id=1" response.set-cookie="***"`,
		Extended: `-01 request.x-team="a b, \x22c" request.authorization="***" request.cookie="id=1" response.set-cookie="***"`,
	} {
		var out bytes.Buffer
		options.Format = format
		l := NewAccessLog(&out, options)
		if got := strings.Join(l.RequestFields(), " ") + "|" + strings.Join(l.ResponseFields(), " "); got != "x-team authorization cookie accept|server set-cookie" {
			t.Errorf("asks for %s", got)
		}
		l.Log(r)
		closeLog(t, l)
		if !strings.HasSuffix(out.String(), want+"\n") {
			t.Errorf("got  %swant %s", out.String(), want)
		}
	}
}

func TestLinesOfAFieldAreBoundedTogether(t *testing.T) {
	var lines []Field
	for range 100 {
		lines = append(lines, Field{0, strings.Repeat("a", 60)})
	}
	for _, format := range []Format{JSON, Text} {
		l := &AccessLog{format: format, most: 100, request: logFields([]string{"x"}, nil)}
		r := &Record{RequestFields: lines}
		line := string(l.appendText(nil, r))
		if format == JSON {
			line = string(l.appendJSON(nil, r))
		}
		want := `"` + strings.Repeat("a", 60) + ", " + strings.Repeat("a", 38) + "...+" + strconv.Itoa(22+98*62) + `"`
		if !strings.Contains(line, want) {
			t.Errorf("%s has not %s", line, want)
		}
	}
	var names []string
	for i := range 100 {
		names = append(names, "x-"+strconv.Itoa(i))
	}
	if n := len(logFields(names, nil)); n != MaxLogFields {
		t.Errorf("%d fields", n)
	}
}

func TestFilterOfTheAccessLog(t *testing.T) {
	asked := 0
	none, all := func() bool { asked++; return false }, func() bool { asked++; return true }
	for name, test := range map[string]struct {
		filter Filter
		status int
		reason Reason
		route  string
		d      time.Duration
		want   bool
		asks   int
	}{
		"all":                               {Filter{}, 200, "", "", 0, true, 0},
		"sampled":                           {Filter{Sample: all}, 200, "", "", 0, true, 1},
		"not sampled":                       {Filter{Sample: none}, 404, "", "", time.Hour, false, 1},
		"failed, so not asked":              {Filter{Sample: none}, 404, NoRoute, "", 0, true, 0},
		"5xx of a backend":                  {Filter{Sample: none}, 500, "", "a/b", 0, true, 0},
		"slow":                              {Filter{MinDuration: time.Second}, 200, "", "", time.Second, true, 0},
		"fast":                              {Filter{MinDuration: time.Second}, 200, "", "", time.Second - 1, false, 0},
		"fast, failed":                      {Filter{MinDuration: time.Second}, 0, ClientClosed, "", 0, true, 0},
		"fast, sampled":                     {Filter{MinDuration: time.Second, Sample: all}, 200, "", "", 0, true, 1},
		"slow, so not asked":                {Filter{MinDuration: time.Second, Sample: none}, 200, "", "", time.Minute, true, 0},
		"of a class":                        {Filter{Statuses: []StatusRange{{200, 299}, {500, 599}}}, 503, "", "", 0, true, 0},
		"of no class":                       {Filter{Statuses: []StatusRange{{200, 299}, {500, 599}}}, 404, NoRoute, "", 0, false, 0},
		"of a reason":                       {Filter{Reasons: []Reason{BackendReset, NoRoute}}, 404, NoRoute, "", 0, true, 0},
		"of no reason":                      {Filter{Reasons: []Reason{BackendReset}}, 200, "", "", 0, false, 0},
		"of a route":                        {Filter{Routes: []string{"a/b"}, Sample: all}, 200, "", "a/b", 0, true, 1},
		"of another route, though it fails": {Filter{Routes: []string{"a/b"}, Sample: all}, 500, Internal, "a/c", 0, false, 0},
	} {
		asked = 0
		l := &AccessLog{filter: test.filter}
		if got := l.Wants(test.status, test.reason, test.route, test.d); got != test.want || asked != test.asks {
			t.Errorf("%s: %v, the sample was asked %d times", name, got, asked)
		}
	}
	if (*AccessLog)(nil).Wants(500, Internal, "", 0) {
		t.Error("no log wants a line")
	}
}
