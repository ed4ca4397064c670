package prometheus

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	web  = telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "web-1"}
	cart = telemetry.Side{Kind: "Pod", Namespace: "shop", Name: "cart.1"}
)

// vector is an answer of Prometheus: labels as JSON, and their values.
func vector(samples ...string) string {
	var all []string
	for i := 0; i+1 < len(samples); i += 2 {
		all = append(all, fmt.Sprintf(`{"metric":%s,"value":[1700000000,"%s"]}`, samples[i], samples[i+1]))
	}
	return `{"status":"success","data":{"resultType":"vector","result":[` + strings.Join(all, ",") + `]}}`
}

// fake answers as a Prometheus, by the family that a query is about, and keeps the queries.
type fake struct {
	counts, buckets, began string
	status                 int
	queries                []string
	request                *http.Request
}

func (f *fake) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	q := r.FormValue("query")
	f.queries, f.request = append(f.queries, q), r
	if f.status != 0 {
		w.WriteHeader(f.status)
	}
	switch {
	case strings.HasPrefix(q, "count("):
		io.WriteString(w, f.began)
	case strings.Contains(q, telemetry.EdgeDurations):
		io.WriteString(w, f.buckets)
	default:
		io.WriteString(w, f.counts)
	}
}

func open(t *testing.T, h http.Handler, change func(*Options)) *Store {
	t.Helper()
	server := httptest.NewServer(h)
	t.Cleanup(server.Close)
	o := Options{URL: server.URL}
	if change != nil {
		change(&o)
	}
	s, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

const (
	toCart  = `"at_kind":"Pod","at_namespace":"shop","at_name":"web-1","direction":"to","peer_kind":"Pod","peer_namespace":"shop","peer_name":"cart.1","service":"shop/cart:80"`
	fromWeb = `"at_kind":"Pod","at_namespace":"shop","at_name":"cart.1","direction":"from","peer_kind":"Pod","peer_namespace":"shop","peer_name":"web-1"`
)

func good() *fake {
	return &fake{
		counts: vector(`{`+toCart+`,"result":"success"}`, "90", `{`+toCart+`,"result":"failure"}`, "10", `{`+fromWeb+`,"result":"success"}`, "7"),
		buckets: vector(`{`+toCart+`,"le":"0.005"}`, "40", `{`+toCart+`,"le":"0.01"}`, "90", `{`+toCart+`,"le":"+Inf"}`, "100",
			`{`+fromWeb+`,"le":"1.0"}`, "7", `{`+fromWeb+`,"le":"+Inf"}`, "7"),
		began: vector(),
	}
}

func TestAnswersOfPrometheus(t *testing.T) {
	f := good()
	s := open(t, f, nil)
	before := time.Now()
	a, err := s.Ask(context.Background(), metrics.Question{Window: 28 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	if a.Window != 30*time.Second || a.Time.After(time.Now()) || before.Sub(a.Time) > 5*time.Second || a.Time.Unix()%5 != 0 {
		t.Errorf("window %v to %v", a.Window, a.Time)
	}
	if len(a.Traffic) != 2 {
		t.Fatalf("%+v", a.Traffic)
	}
	in, out := a.Traffic[0], a.Traffic[1]
	if want := (telemetry.EdgeLabels{At: cart, Peer: web}); in.EdgeLabels != want || in.Success != 7 || in.Failure != 0 || in.Latency.Count() != 7 {
		t.Errorf("%+v", in)
	}
	if want := (telemetry.EdgeLabels{At: web, Out: true, Peer: cart, Service: "shop/cart:80"}); out.EdgeLabels != want || out.Success != 90 || out.Failure != 10 || out.Latency.Count() != 100 {
		t.Errorf("%+v", out)
	}
	if p := out.Latency.Quantile(0.65); p != 7500*time.Microsecond {
		t.Errorf("p65 %v", p)
	}
	if len(f.queries) != 2 || f.request.FormValue("time") != fmt.Sprint(a.Time.Unix()) {
		t.Errorf("%d queries at %s", len(f.queries), f.request.FormValue("time"))
	}
}

// TestAnswersAreRestricted, though a Prometheus says more than it was asked for.
func TestAnswersAreRestricted(t *testing.T) {
	for want, q := range map[string]metrics.Question{
		"Pod shop/cart.1 7;":                     {At: []telemetry.Side{cart}},
		"Pod shop/web-1 90;":                     {With: []telemetry.Side{cart}},
		"Pod shop/cart.1 7; Pod shop/web-1 90;":  {At: []telemetry.Side{web}, With: []telemetry.Side{web}},
		"":                                       {At: []telemetry.Side{}},
		"Pod shop/cart.1 7; Pod shop/web-1 90; ": {Sum: true},
	} {
		f := good()
		a, err := open(t, f, nil).Ask(context.Background(), q)
		if err != nil {
			t.Errorf("%+v: %v", q, err)
		}
		var b strings.Builder
		for _, row := range a.Traffic {
			fmt.Fprintf(&b, "%v %d; ", row.At, row.Success)
			if q.Sum && row.Peer != (telemetry.Side{}) {
				t.Errorf("a sum has a peer: %+v", row)
			}
		}
		if got := b.String(); strings.TrimSpace(got) != strings.TrimSpace(want) {
			t.Errorf("%+v: %s, want %s", q, got, want)
		}
		if want == "" && len(f.queries) > 0 {
			t.Errorf("for nobody it asked %s", f.queries)
		}
	}
}

func TestSelectors(t *testing.T) {
	odd := telemetry.Side{Kind: "Gateway", Name: "a\"b\\c|.*\n"}
	many := make([]telemetry.Side, maxSides+1)
	for name, c := range map[string]struct {
		q    metrics.Question
		want []string
	}{
		"all":         {metrics.Question{}, []string{``}},
		"nobody":      {metrics.Question{At: []telemetry.Side{}, With: []telemetry.Side{}}, nil},
		"one":         {metrics.Question{At: []telemetry.Side{cart}}, []string{`at_kind="Pod",at_namespace="shop",at_name="cart.1"`}},
		"either":      {metrics.Question{At: []telemetry.Side{{}}, With: []telemetry.Side{web}}, []string{`at_kind="",at_namespace="",at_name=""`, `peer_kind="Pod",peer_namespace="shop",peer_name="web-1"`}},
		"one of both": {metrics.Question{At: []telemetry.Side{}, With: []telemetry.Side{web}}, []string{`peer_kind="Pod",peer_namespace="shop",peer_name="web-1"`}},
		"some":        {metrics.Question{With: []telemetry.Side{cart, web, cart}}, []string{`peer_kind="Pod",peer_namespace="shop",peer_name=~"cart\\.1|web-1"`}},
		"quoted":      {metrics.Question{With: []telemetry.Side{odd, web}}, []string{`peer_kind=~"Gateway|Pod",peer_namespace=~"|shop",peer_name=~"a\"b\\\\c\\|\\.\\*\n|web-1"`}},
		"quoted one":  {metrics.Question{With: []telemetry.Side{odd}}, []string{`peer_kind="Gateway",peer_namespace="",peer_name="a\"b\\c|.*\n"`}},
		"many":        {metrics.Question{At: many}, []string{``}},
	} {
		if got := selectors(c.q); fmt.Sprintf("%q", got) != fmt.Sprintf("%q", c.want) {
			t.Errorf("%s:\n%q\nwant\n%q", name, got, c.want)
		}
	}
}

func TestGrids(t *testing.T) {
	now := time.UnixMilli(1_700_000_123_456)
	for _, c := range []struct {
		window, step time.Duration
		want         string
	}{
		{time.Second, 5 * time.Second, "1 of 5s to 120s"},
		{30 * time.Second, 5 * time.Second, "6 of 5s to 120s"},
		{31 * time.Second, 5 * time.Second, "7 of 5s to 120s"},
		{150 * time.Second, 5 * time.Second, "30 of 5s to 120s"},
		{155 * time.Second, 5 * time.Second, "16 of 10s to 120s"},
		{time.Hour, 5 * time.Second, "30 of 2m0s to 40s"},
		{30 * time.Second, 1500 * time.Millisecond, "20 of 1.5s to 122s"},
	} {
		g := newGrid(now, c.window, c.step)
		if got := fmt.Sprintf("%d of %v to %ds", g.steps, g.step, g.end.Unix()-1_700_000_000); got != c.want || g.end.UnixMilli()%g.step.Milliseconds() != 0 {
			t.Errorf("%v in steps of %v: %s, want %s", c.window, c.step, got, c.want)
		}
	}
}

// TestErrorsSayWhatToDo with what others said kept short.
func TestErrorsSayWhatToDo(t *testing.T) {
	long := strings.Repeat("no <b>way</b> ", 100)
	failure := func(kind, text string) string {
		return fmt.Sprintf(`{"status":"error","errorType":"%s","error":"%s"}`, kind, text)
	}
	for name, c := range map[string]struct {
		fake fake
		want string // after the URL
	}{
		"no page":        {fake{status: 404, counts: "404 page not found"}, " answered 404: client error: 404: 404 page not found; see whether /api/v1/query has a path before it there, such as /prometheus"},
		"token":          {fake{status: 401, counts: "no"}, " answered 401: client error: 401: no; see that the user, the password or the token is right"},
		"tenant":         {fake{status: 401, counts: "no org id\n"}, " answered 401: client error: 401: no org id; it wants a tenant"},
		"limit":          {fake{status: 422, counts: failure("execution", "query processing would load too many samples into memory")}, " answered 422: query processing would load too many samples into memory; ask about fewer resources or a shorter window, or raise its limit"},
		"long":           {fake{status: 500, counts: long}, " answered 500: server error: 500: " + long[:200-len("server error: 500: ")] + "..."},
		"no JSON":        {fake{counts: "<html>"}, ` answered 200: `},
		"scalar":         {fake{counts: `{"status":"success","data":{"resultType":"scalar","result":[1,"2"]}}`}, " answered with *model.Scalar in place of a vector"},
		"partial":        {fake{counts: strings.Replace(good().counts, `{"status"`, `{"warnings":["store x did not answer"],"status"`, 1)}, " answered in part: store x did not answer"},
		"NaN":            {fake{counts: vector(`{"result":"success"}`, "NaN")}, `: weir_edge_requests_total{result="success"}: NaN is no number of requests`},
		"half":           {fake{counts: vector(`{"result":"success"}`, "1.5")}, `: weir_edge_requests_total{result="success"}: 1.5 is no number of requests`},
		"less":           {fake{counts: vector(`{"result":"success"}`, "-1")}, `: weir_edge_requests_total{result="success"}: -1 is no number of requests`},
		"no bound":       {fake{counts: good().counts, buckets: vector(`{}`, "1")}, `: weir_edge_request_duration_seconds_bucket{}: the bucket has no bound`},
		"native buckets": {fake{counts: good().counts, buckets: vector()}, " has weir_edge_requests_total, but no buckets of weir_edge_request_duration_seconds: let it scrape classic histograms (always_scrape_classic_histograms: true)"},
		"no proxies":     {fake{counts: vector(), began: vector()}, ` has no weir_began_timestamp_seconds{cluster="a\"b"}: let it scrape the proxies, and see that it keeps the families weir_edge_* and this one`},
		"redirect":       {fake{status: 302}, " answered 302: bad response code 302; it redirects to another place, whose URL is to be given"},
	} {
		t.Run(name, func(t *testing.T) {
			s := open(t, &c.fake, func(o *Options) { o.Matchers = map[string]string{"cluster": `a"b`} })
			a, err := s.Ask(context.Background(), metrics.Question{Window: time.Minute})
			if want := "the Prometheus at " + s.options.URL + c.want; err == nil || !strings.HasPrefix(err.Error(), want) || len(err.Error()) > len(want)+300 || a.Traffic != nil {
				t.Errorf("%v\nwant %s", err, want)
			}
		})
	}
	// PromQL's own remarks are about the query, and that there was no traffic is no error.
	remark := strings.Replace(good().counts, `{"status"`, `{"warnings":["PromQL info: x"],"status"`, 1)
	if _, err := open(t, &fake{counts: remark, buckets: good().buckets}, nil).Ask(context.Background(), metrics.Question{}); err != nil {
		t.Error(err)
	}
	if a, err := open(t, &fake{counts: vector(), began: vector(`{}`, "3")}, nil).Ask(context.Background(), metrics.Question{}); err != nil || len(a.Traffic) != 0 || a.Window != 5*time.Second {
		t.Errorf("%+v, %v", a, err)
	}
}

func TestAnswersAreBounded(t *testing.T) {
	s := open(t, good(), func(o *Options) { o.MaxBytes = 100 })
	if _, err := s.Ask(context.Background(), metrics.Question{}); err == nil || !strings.Contains(err.Error(), "the answer has more than 100 bytes: ask about fewer resources") {
		t.Error(err)
	}
	release := make(chan struct{})
	defer close(release)
	s = open(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }), func(o *Options) { o.Timeout = 10 * time.Millisecond })
	if _, err := s.Ask(context.Background(), metrics.Question{}); err == nil || err.Error() != "the Prometheus at "+s.options.URL+": it did not answer in 10ms" {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := s.Ask(ctx, metrics.Question{}); err == nil || !strings.HasSuffix(err.Error(), ": context canceled") {
		t.Error(err)
	}
}

func TestWhoAsks(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	ask := func(change func(*Options)) *http.Request {
		f := good()
		if _, err := open(t, f, change).Ask(context.Background(), metrics.Question{}); err != nil {
			t.Fatal(err)
		}
		return f.request
	}
	if r := ask(nil); r.Header.Get("Authorization") != "" || r.Header.Get("X-Scope-OrgID") != "" || r.URL.Path != "/api/v1/query" {
		t.Errorf("%s %v", r.URL, r.Header)
	}
	r := ask(func(o *Options) { o.Username, o.PasswordFile = "u", write("password", " p \n") })
	if u, p, _ := r.BasicAuth(); u != "u" || p != " p " {
		t.Errorf("%q, %q", u, p)
	}
	r = ask(func(o *Options) {
		o.TokenFile, o.Tenant, o.URL = write("token", "t\n"), "team-a", o.URL+"/prometheus/"
	})
	if r.Header.Get("Authorization") != "Bearer t" || r.Header.Get("X-Scope-OrgID") != "team-a" || r.URL.Path != "/prometheus/api/v1/query" {
		t.Errorf("%s %v", r.URL, r.Header)
	}
	_, err := open(t, good(), func(o *Options) { o.TokenFile = filepath.Join(dir, "none") }).Ask(context.Background(), metrics.Question{})
	if err == nil || !strings.Contains(err.Error(), "the token: open ") {
		t.Error(err)
	}

	secure := httptest.NewTLSServer(good())
	defer secure.Close()
	ca := write("ca.pem", string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: secure.Certificate().Raw})))
	for file, ok := range map[string]bool{ca: true, "": false} {
		s, err := New(Options{URL: secure.URL, CAFile: file})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.Ask(context.Background(), metrics.Question{}); (err == nil) != ok {
			t.Errorf("authority %q: %v", file, err)
		}
		s.Close()
	}
}

// TestCredentialsStayWithTheServer: a redirect is not followed.
func TestCredentialsStayWithTheServer(t *testing.T) {
	elsewhere := good()
	other := httptest.NewServer(elsewhere)
	defer other.Close()
	token := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(token, []byte("t"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := open(t, http.RedirectHandler(other.URL+"/api/v1/query", http.StatusTemporaryRedirect), func(o *Options) { o.TokenFile = token })
	if _, err := s.Ask(context.Background(), metrics.Question{}); err == nil || len(elsewhere.queries) != 0 {
		t.Errorf("%v, %v", err, elsewhere.queries)
	}
}

func TestOptionsThatAreWrong(t *testing.T) {
	const u = "http://p:9090"
	for want, o := range map[string]Options{
		`the URL of Prometheus, "", is not like`:               {},
		`the URL of Prometheus, "p:9090", is not like`:         {URL: "p:9090"},
		`the URL of Prometheus has a user`:                     {URL: "http://u:secret@p:9090"},
		`there is a token for Prometheus, and a user`:          {URL: u, TokenFile: "t", Username: "u", PasswordFile: "p"},
		`a user for Prometheus takes a name and a file`:        {URL: u, Username: "u"},
		`the matcher "a b" for Prometheus is no label`:         {URL: u, Matchers: map[string]string{"a b": "c"}},
		`the matcher "at_name" for Prometheus is no label`:     {URL: u, Matchers: map[string]string{"at_name": "c"}},
		`the authorities of Prometheus: open /none`:            {URL: u, CAFile: "/none"},
		`the authorities of Prometheus: /dev/null has no cert`: {URL: u, CAFile: "/dev/null"},
	} {
		_, err := New(o)
		if err == nil || !strings.HasPrefix(err.Error(), want) || strings.Contains(err.Error(), "secret") {
			t.Errorf("%+v: %v, want %s", o, err, want)
		}
	}
}

// TestQueriesAreWhole: what is opened is closed, in every form of question.
func TestQueriesAreWhole(t *testing.T) {
	f := good()
	s := open(t, f, func(o *Options) { o.Matchers = map[string]string{"cluster": "x", "a": `"`} })
	for _, q := range []metrics.Question{{}, {At: []telemetry.Side{web}}, {At: []telemetry.Side{web}, With: []telemetry.Side{web, cart}}, {Sum: true}, {Sum: true, With: []telemetry.Side{web}}} {
		f.queries = nil
		if _, err := s.Ask(context.Background(), q); err != nil {
			t.Fatal(err)
		}
		for _, text := range f.queries {
			if n := strings.Count(text, `a="\"",cluster="x"`); n < 10 || n != strings.Count(text, "{") {
				t.Errorf("%d of %d selectors are of the targets: %s", n, strings.Count(text, "{"), text)
			}
			text = regexp.MustCompile(`"(\\.|[^"\\])*"`).ReplaceAllString(text, "")
			depth := 0
			for _, c := range text {
				switch c {
				case '(', '{', '[':
					depth++
				case ')', '}', ']':
					depth--
				}
				if depth < 0 {
					break
				}
			}
			if depth != 0 {
				t.Errorf("%s", text)
			}
		}
	}
}

func FuzzAnyAnswerIsReadOrRefused(f *testing.F) {
	f.Add([]byte(good().counts), []byte(good().buckets))
	f.Add([]byte(vector(`{"result":"success"}`, "1e300")), []byte(vector(`{"le":"NaN"}`, "1")))
	f.Add([]byte(`{"status":"error","error":"x","errorType":"y"}`), []byte(`{}`))
	fake := good()
	server := httptest.NewServer(fake)
	f.Cleanup(server.Close)
	s, err := New(Options{URL: server.URL})
	if err != nil {
		f.Fatal(err)
	}
	f.Cleanup(s.Close)
	f.Fuzz(func(t *testing.T, counts, buckets []byte) {
		fake.counts, fake.buckets = string(counts), string(buckets)
		fake.queries = nil
		a, err := s.Ask(context.Background(), metrics.Question{})
		if err != nil {
			if len(err.Error()) > 2000 {
				t.Errorf("a long error: %v", err)
			}
			return
		}
		for _, row := range a.Traffic {
			if q := row.Latency.Quantile(0.99); q < 0 || q > 50*time.Second {
				t.Errorf("p99 %v", q)
			}
		}
		if _, err := json.Marshal(a); err != nil {
			t.Error(err)
		}
	})
}
