package cli_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/model"
)

// explained is a part of what "weir explain -o json" prints.
type explained struct {
	Request struct {
		Method, URL    string
		Headers, Notes []string
	}
	Listener struct{ Ref ref }
	Winner   *struct {
		Rule  ref
		Match model.Match
	}
	Reason  string
	Path    string
	Answer  *struct{ Status int }
	LeftOut []struct {
		Ref      ref
		Findings []struct{ Code, Message, Fix string }
	}
	Backends []struct {
		Ref       ref
		Forwarded struct{ Target, Host string }
	}
}

type ref struct {
	Kind, Name, Field string
	Origin            *struct {
		File string
		Line int
	}
}

func explainJSON(t *testing.T, stdin string, args ...string) explained {
	t.Helper()
	r := weir(stdin, append([]string{"explain", "-o", "json"}, args...)...)
	var e explained
	if err := json.Unmarshal([]byte(r.stdout), &e); err != nil {
		t.Fatalf("%v: %v\n%s%s", args, err, r.stdout, r.err)
	}
	return e
}

func TestExplainReadsCurlCommandsInAnyOrderOfTheirOptions(t *testing.T) {
	agent := []string{"User-Agent: curl/8", "Accept: */*"}
	form := append(slices.Clone(agent), "Content-Length: 3", "Content-Type: application/x-www-form-urlencoded")
	for _, c := range []struct {
		args         []string
		method, path string
		headers      []string
	}{
		{[]string{"curl", "-H", "a: b", "http://s/x"}, "GET", "/x", append(slices.Clone(agent), "a: b")},
		{[]string{"curl", "http://s/x", "--header=a: b"}, "GET", "/x", append(slices.Clone(agent), "a: b")},
		{[]string{"curl", "-sSkHa: b", "--url", "http://s/x", "-L"}, "GET", "/x", append(slices.Clone(agent), "a: b")},
		{[]string{"-XPUT", "http://s/x"}, "PUT", "/x", nil},
		{[]string{"curl", "-I", "http://s/x"}, "HEAD", "/x", agent},
		{[]string{"curl", "--head", "http://s/x"}, "HEAD", "/x", agent},
		{[]string{"curl", "-d", "a=b", "http://s/x"}, "POST", "/x", form},
		{[]string{"curl", "http://s/x", "--data-raw", "a=b"}, "POST", "/x", form},
		{[]string{"curl", "-G", "-d", "a=b", "--data-urlencode", "c=d e&", "http://s?x"}, "GET", "/", agent},
		{[]string{"curl", "-u", "me:pw", "http://s/"}, "GET", "/", append([]string{"Authorization: Basic bWU6cHc="}, agent...)},
		{[]string{"curl", "http://me:p%77@s/"}, "GET", "/", append([]string{"Authorization: Basic bWU6cHc="}, agent...)},
		{[]string{"curl", "-A", "Firefox", "-e", "http://r/", "-b", "a=b", "--compressed", "http://s/"}, "GET", "/",
			[]string{"User-Agent: Firefox", "Accept: */*", "Accept-Encoding: deflate, gzip, br, zstd", "Referer: http://r/", "Cookie: a=b"}},
		{[]string{"curl", "-H", "Accept:", "-H", "user-agent;", "http://s/"}, "GET", "/", []string{"user-agent:"}},
		{[]string{"curl", "http://s/a/./b/../c"}, "GET", "/a/c", agent},
		{[]string{"curl", "--json", "{}", "http://s/"}, "POST", "/",
			[]string{"User-Agent: curl/8", "Accept: application/json", "Content-Length: 2", "Content-Type: application/json"}},
		{[]string{"curl -H 'a: b' \\\n  \"http://s/x\" --http2 --no-progress-meter"}, "GET", "/x", append(slices.Clone(agent), "a: b")},
		{[]string{`curl 'http://s/x' -H $'a: \u0041\'b'`}, "GET", "/x", append(slices.Clone(agent), "a: A'b")},
	} {
		e := explainJSON(t, "", append([]string{examples + "canary", "--"}, c.args...)...)
		if e.Request.Method != c.method || e.Path != c.path || !slices.Equal(e.Request.Headers, c.headers) {
			t.Errorf("%q: %s %s %q, want %s %s %q", c.args, e.Request.Method, e.Path, e.Request.Headers, c.method, c.path, c.headers)
		}
	}
	if e := explainJSON(t, "", examples+"canary", "--", "curl", "--path-as-is", "http://s/a/../b"); len(e.Request.Notes) > 0 {
		t.Errorf("--path-as-is: %q", e.Request.Notes)
	}
	e := explainJSON(t, "curl -G -d a=b --data-urlencode 'c=d e&' 'http://shop.example?x' | jq .", examples+"canary", "--", "-")
	if len(e.Backends) == 0 || e.Backends[0].Forwarded.Target != "/?x&a=b&c=d+e%26" || !slices.Contains(e.Request.Notes, "what follows in the command is not looked at: | jq .") {
		t.Errorf("from the standard input: %+v", e)
	}
}

func TestExplainTellsWhatOfACurlCommandIsNotTakenIntoAccount(t *testing.T) {
	for _, args := range [][]string{
		{"-x", "http://p:1"}, {"-n"}, {"--digest"}, {"-K", "f"}, {"-b", "jar.txt"}, {"-d", "@body"}, {"-H", "@f"}, {"--unix-socket", "s"}, {"-E", "cert"},
		{"--haproxy-protocol"}, {"-z", "now"}, {"http://other.example/"}, {"-:", "http://b/"},
	} {
		e := explainJSON(t, "", append([]string{examples + "canary", "--", "curl", "http://shop.example/"}, args...)...)
		if len(e.Request.Notes) == 0 {
			t.Errorf("nothing is said of %q", args)
		}
	}
	if e := explainJSON(t, "", examples+"canary", "--", "curl", "-sSfkivLN4", "-o", "f", "-w", "x", "--max-time", "3", "--retry", "2", "--http1.1", "http://shop.example/"); len(e.Request.Notes) > 0 {
		t.Errorf("notes of what changes nothing: %q", e.Request.Notes)
	}
	for _, command := range []string{"curl --nonsense http://a/", "curl -H 'a: b http://a/", `curl "http://$HOST/"`, "curl `x` http://a/", "curl -H", "curl"} {
		weir("", "explain", examples+"canary", "--", command).want(t, 2)
	}
	weir("", "explain", "-", "--", "-").want(t, 2, "stderr:standard input")
}

func TestExplainGoesWhereCurlIsToldToConnect(t *testing.T) {
	for _, args := range [][]string{{"--connect-to", "::127.0.0.1:8080"}, {"--connect-to", "shop.example:80:[::1]:8080"}} {
		e := explainJSON(t, "", append([]string{examples + "header-match", "--", "curl", "http://shop.example/"}, args...)...)
		if e.Winner == nil || e.Backends[0].Forwarded.Host != "shop.example" {
			t.Errorf("%q: %+v", args, e)
		}
	}
	weir("", "explain", examples+"canary", "--", "curl", "http://s/", "--resolve", "s:80").want(t, 2, "stderr:--resolve")
	weir("", "explain", examples+"canary", "--", "curl", "http://s/", "--connect-to", "s:80").want(t, 2, "stderr:--connect-to")
}

// TestExplainSaysWhatTheWireAnswers sends what it explains.
func TestExplainSaysWhatTheWireAnswers(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	host := fmt.Sprintf("127.0.0.1:%d", w.port)
	many := make([]string, 0, 2*http1.DefaultFields)
	for i := range http1.DefaultFields {
		many = append(many, "-H", fmt.Sprintf("x-%d: y", i))
	}
	big := []string{}
	for i := range 9 {
		big = append(big, "-H", fmt.Sprintf("x-%d: %s", i, strings.Repeat("y", 8<<10)))
	}
	for _, c := range []struct {
		name, method, target string
		args                 []string
	}{
		{"plain", "GET", "/", nil},
		{"bytes that are no URI", "GET", "/é", nil},
		{"a space", "GET", "/a b", nil},
		{"an invalid escape", "GET", "/%zz", nil},
		{"NUL", "GET", "/%00", nil},
		{"lower case", "get", "/", nil},
		{"too long", "GET", "/" + strings.Repeat("a", http1.DefaultLine), nil},
		{"a field's name", "GET", "/", []string{"-H", "a b: x"}},
		{"a field's value", "GET", "/", []string{"-H", "a: \x01"}},
		{"Expect", "GET", "/", []string{"-H", "Expect: tea"}},
		{"many fields", "GET", "/", many},
		{"large fields", "GET", "/", big},
		{"host", "GET", "/", []string{"-H", "Host: a/b"}},
		{"no host", "GET", "/", []string{"-H", "Host:"}},
		{"two lengths", "POST", "/", []string{"-H", "Content-Length: 1", "-H", "Transfer-Encoding: chunked"}},
		{"coding", "POST", "/", []string{"-H", "Transfer-Encoding: gzip, chunked"}},
		{"hops", "GET", "/", []string{"-H", "Via: " + strings.Repeat("1.1 a, ", 20) + "1.1 b"}},
		{"Max-Forwards", "OPTIONS", "/", []string{"-H", "Max-Forwards: 0"}},
		{"Max-Forwards that is none", "TRACE", "/", []string{"-H", "Max-Forwards: x"}},
		{"OPTIONS *", "OPTIONS", "*", []string{"--request-target", "*"}},
	} {
		target := c.target
		if target == "*" {
			target = "/"
		}
		e := explainJSON(t, "", append([]string{w.dir, "--", "-X", c.method, "http://" + host + target}, c.args...)...)
		want := http.StatusOK
		if e.Answer != nil {
			want = e.Answer.Status
		}
		var lines []string
		hosted := false
		for i := 0; i+1 < len(c.args); i += 2 {
			if c.args[i] != "-H" {
				continue
			}
			hosted = hosted || strings.HasPrefix(c.args[i+1], "Host:")
			if c.args[i+1] != "Host:" {
				lines = append(lines, c.args[i+1])
			}
		}
		if !hosted {
			lines = append([]string{"Host: " + host}, lines...)
		}
		conn, err := net.Dial("tcp", host)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "%s %s HTTP/1.1\r\n%s\r\nConnection: close\r\n\r\n", c.method, c.target, strings.Join(lines, "\r\n"))
		answer, _ := io.ReadAll(conn)
		conn.Close()
		if !strings.HasPrefix(string(answer), fmt.Sprintf("HTTP/1.1 %d ", want)) {
			first, _, _ := strings.Cut(string(answer), "\r\n")
			t.Errorf("%s: the answer is %q, explain says %d: %s", c.name, first, want, e.Reason)
		}
	}
	w.weir.Stop()
}

// TestExplainedHeadIsReadBack has another reader read what options make.
func TestExplainedHeadIsReadBack(t *testing.T) {
	e := explainJSON(t, "", examples+"canary", "--", "curl", "-d", "a=b", "-u", "me:pw", "http://shop.example/x")
	r := httptest.NewRequest(e.Request.Method, e.Request.URL, strings.NewReader("a=b"))
	for _, h := range e.Request.Headers {
		name, value, _ := strings.Cut(h, ": ")
		r.Header.Set(name, value)
	}
	if user, password, ok := r.BasicAuth(); !ok || user != "me" || password != "pw" || r.FormValue("a") != "b" {
		t.Errorf("%q is not what was meant", e.Request.Headers)
	}
}

const leftOutRoutes = gateway + `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %s}
spec:
  parentRefs: [{name: %s}]
  hostnames: [shop.example]
  rules:
  - matches: [{path: {type: %s, value: "%s"}}]
    backendRefs: [{name: shop, port: %s}]
`

func TestExplainSaysWhichRouteIsLeftOut(t *testing.T) {
	for _, c := range []struct {
		args []any // of leftOutRoutes
		code string
	}{
		{[]any{"r", "edge", "RegularExpression", "/cart(", "80"}, "WR534"},
		{[]any{"r", "edgee", "PathPrefix", "/cart", "80"}, "WR520"},
		{[]any{"r", "edge", "PathPrefix", "cart", "80"}, "WR207"},
		{[]any{"r", "edge", "Exact", "/cart", `"80"`}, "WR204"},
	} {
		e := explainJSON(t, fmt.Sprintf(leftOutRoutes, c.args...), "-", "--", "http://shop.example:8080/cart")
		if e.Winner != nil || len(e.LeftOut) != 1 || e.LeftOut[0].Findings[0].Code != c.code || e.LeftOut[0].Findings[0].Fix == "" ||
			e.LeftOut[0].Ref.Origin == nil || e.LeftOut[0].Ref.Origin.Line == 0 {
			t.Errorf("%v: left out %+v, want the route with %s", c.args, e.LeftOut, c.code)
		}
		// Neither for another host nor for another path.
		for _, other := range []string{"http://other.example:8080/cart", "http://shop.example:8080/x"} {
			if e := explainJSON(t, fmt.Sprintf(leftOutRoutes, c.args...), "-", "--", other); len(e.LeftOut) > 0 && (c.code != "WR534" && c.code != "WR207" || strings.Contains(other, "other")) {
				t.Errorf("%v: %s: left out %+v, want nothing", c.args, other, e.LeftOut)
			}
		}
	}
	text := fmt.Sprintf(leftOutRoutes, "r", "edge", "RegularExpression", "/cart(", "80")
	weir(text, "explain", "-", "--", "http://shop.example:8080/cart").want(t, 3, "the answer is 404", "left out    HTTPRoute default/r rules[0], which would take the request", "WR534", "fix: ")
	// What is served, if only by 500, is not left out.
	text = fmt.Sprintf(leftOutRoutes, "r", "edge", "PathPrefix", "/cart", "81")
	if e := explainJSON(t, text, "-", "--", "http://shop.example:8080/cart"); e.Winner == nil || len(e.LeftOut) > 0 {
		t.Errorf("a rule that answers 500 is told to be left out: %+v", e.LeftOut)
	}
	// A rule that would go before the one that takes the request.
	text = fmt.Sprintf(leftOutRoutes, "r", "edge", "RegularExpression", "/cart(", "80") + strings.TrimPrefix(fmt.Sprintf(leftOutRoutes, "all", "edge", "PathPrefix", "/", "80"), gateway)
	if e := explainJSON(t, text, "-", "--", "http://shop.example:8080/cart"); e.Winner == nil || e.Winner.Rule.Name != "all" {
		t.Errorf("explanation = %+v", e)
	}
	weir(strings.Replace(gateway, "protocol: HTTP", "protocol: HTTQ", 1), "explain", "-", "--", "http://shop.example:8080/").want(t, 3, "left out    Gateway default/edge", "WR5")
	weir(gateway+"---\napiVersion: gateway.networking.k8s.io/v1\nkind: HttpRoute\nmetadata: {name: x}\n", "explain", "-", "--", "http://a:8080/").want(t, 3, "could not be read", "WR115")
}

func TestExplainListsTheListenersThereAre(t *testing.T) {
	weir("", "explain", examples+"tls", "--", "https://stranger.example/").want(t, 3, "the answer is 404; there is: default/edge/", " for ")
	weir("", "explain", examples+"canary", "--", "tcp://shop.example:1").want(t, 3, "nothing listens for tcp on port 1; there is: http on *:8080")
}

func TestExplainHasOriginsEverywhereInOneForm(t *testing.T) {
	for _, args := range [][]string{
		{examples + "header-match", "--", "http://shop.example:8080/cart"},
		{examples + "split-ab-test", "--", "http://website:8080/", "-H", "user-agent: Firefox"},
		{examples + "mirror-several", "--", "http://shop.example/a"},
		{examples + "tcp-route", "--", "tcp://127.0.0.1:6379"},
		{examples + "path-policy", "--", "http://shop.example/admin%2Fx"},
	} {
		r := weir("", append([]string{"explain", "-o", "json"}, args...)...)
		var all any
		if err := json.Unmarshal([]byte(r.stdout), &all); err != nil {
			t.Fatal(err)
		}
		n := 0
		var walk func(x any)
		walk = func(x any) {
			switch x := x.(type) {
			case []any:
				for _, y := range x {
					walk(y)
				}
			case map[string]any:
				if x["kind"] != nil && x["name"] != nil {
					n++
					if at, ok := x["origin"].(map[string]any); !ok || at["file"] == nil || at["line"] == nil {
						t.Errorf("%q: %v has no origin", args, x)
					}
				}
				for _, y := range x {
					walk(y)
				}
			}
		}
		if walk(all); n < 2 {
			t.Errorf("%q: %d references in\n%s", args, n, r.stdout)
		}
	}
}
