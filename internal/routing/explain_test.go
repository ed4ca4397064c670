package routing

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// told lists candidates as "rule: why it lost".
func told(list []Candidate) (lines []string) {
	for _, c := range list {
		why := c.Lost
		if c.Wins {
			why = "wins"
		}
		lines = append(lines, fmt.Sprintf("%s %s: %s", c.Hostname, c.RuleName, why))
	}
	return lines
}

func explain(t *testing.T, table *Table, req *Request) Explanation {
	t.Helper()
	return table.Listeners()[0].Explain(req)
}

func TestExplainSaysWhyOthersLost(t *testing.T) {
	firefox := prefix("/cart")
	firefox.Headers = []model.ValueMatch{{Type: model.Regex, Name: "User-Agent", Value: ".*Firefox.*"}}
	table := tableOf(t,
		on("shop", []string{"shop.example"},
			withMethod(exact("/cart"), "POST"),
			firefox,
			withHeader(withHeader(prefix("/cart"), "version", "2"), "x", "y"),
			withQuery(prefix("/cart"), "beta", "on now"),
			withQuery(prefix("/cart"), "gamma", "1"),
			regex("/c.*t/x"),
			exact("/cart/"),
			prefix("/carts"),
		),
		on("wild", []string{"*.example"}, prefix("/cart"), prefix("/"), exact("/cart")),
		on("other", []string{"other.example"}, prefix("/cart")),
	)
	e := explain(t, table, &Request{
		Host: "shop.example", Method: "GET", Path: "/cart", Query: "beta=off+now", Fields: fieldMap{"user-agent": "curl"},
	})
	want := []string{
		`shop.example shop.0: method is "GET", wanted "POST"`,
		`shop.example shop.2: header "version" is absent, wanted "2"`,
		`shop.example shop.1: header "user-agent" is "curl", wanted regex ".*Firefox.*"`,
		`shop.example shop.3: query parameter "beta" is "off now", wanted "on now"`,
		`shop.example shop.4: query parameter "gamma" is absent, wanted "1"`,
		`shop.example shop.5: path is "/cart", wanted regex "/c.*t/x"`,
		`*.example wild.2: wins`,
		`*.example wild.0: less specific than the winner`,
		`*.example wild.1: less specific than the winner`,
	}
	if got := told(e.Candidates); !reflect.DeepEqual(got, want) {
		t.Errorf("candidates:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	want = []string{
		`shop.example shop.6: path is "/cart", wanted exact "/cart/"`,
		`shop.example shop.7: path is "/cart", wanted prefix "/carts"`,
	}
	if got := told(e.Near); !reflect.DeepEqual(got, want) {
		t.Errorf("near:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if !reflect.DeepEqual(e.Hostnames, []string{"shop.example", "*.example"}) {
		t.Errorf("hostnames %q", e.Hostnames)
	}
	if e.Winner == nil || e.Winner.RuleName != "wild.2" || e.Decision.Rule.Rule.Name != "wild.2" {
		t.Errorf("winner %+v", e.Winner)
	}
}

func TestExplainWithoutWinnerShowsTheNearest(t *testing.T) {
	table := tableOf(t, on("r", []string{"*.example"}, exact("/a/b"), prefix("/a/c"), prefix("/z"), regex("/v[0-9]")))
	e := explain(t, table, &Request{Host: "a.example", Method: "GET", Path: "/a/d"})
	if e.Winner != nil || e.Decision != (Decision{}) {
		t.Errorf("winner %+v", e.Winner)
	}
	if got, want := told(e.Candidates), []string{`*.example r.3: path is "/a/d", wanted regex "/v[0-9]"`}; !reflect.DeepEqual(got, want) {
		t.Errorf("candidates %q, want %q", got, want)
	}
	want := []string{
		`*.example r.0: path is "/a/d", wanted exact "/a/b"`,
		`*.example r.1: path is "/a/d", wanted prefix "/a/c"`,
		`*.example r.2: path is "/a/d", wanted prefix "/z"`,
	}
	if got := told(e.Near); !reflect.DeepEqual(got, want) {
		t.Errorf("near %q, want %q", got, want)
	}
	e = explain(t, table, &Request{Host: "example", Method: "GET", Path: "/a/b"})
	if e.Winner != nil || len(e.Hostnames)+len(e.Candidates)+len(e.Near) != 0 {
		t.Errorf("a host that no route names: %+v", e)
	}
}

func TestExplainIsBounded(t *testing.T) {
	var matches []model.Match
	for i := range 300 {
		matches = append(matches, withHeader(prefix("/a"), "v", fmt.Sprint(i)))
	}
	for range 30 {
		matches = append(matches, prefix("/a"))
	}
	for i := range 30 {
		matches = append(matches, prefix(fmt.Sprint("/a", i)))
	}
	table := tableOf(t, on("r", []string{"*"}, matches...))
	e := explain(t, table, &Request{Method: "GET", Path: "/a/b"})
	if e.Winner == nil || e.Winner.RuleName != "r.300" {
		t.Fatalf("winner %+v", e.Winner)
	}
	if len(e.Candidates) != maxBefore+1+maxAfter || e.OmittedBefore != 300-maxBefore || e.OmittedAfter != 29-maxAfter || len(e.Near) != maxNear {
		t.Errorf("%d candidates, %d and %d omitted, %d near", len(e.Candidates), e.OmittedBefore, e.OmittedAfter, len(e.Near))
	}
}

func TestExplanationIsPlainData(t *testing.T) {
	table := tableOf(t, on("r", []string{"*"}, withMethod(prefix("/a"), "POST"), exact("/b")))
	got, err := json.MarshalIndent(explain(t, table, &Request{Host: "h", Method: "GET", Path: "/a"}), "", " ")
	if err != nil {
		t.Fatal(err)
	}
	const want = `{
 "listener": "web",
 "host": "h",
 "path": "/a",
 "hostnames": [
  "*"
 ],
 "candidates": [
  {
   "hostname": "*",
   "rule": {
    "kind": "HTTPRoute",
    "namespace": "ns",
    "name": "r",
    "field": "rules[0]"
   },
   "ruleName": "r.0",
   "ruleIndex": 0,
   "matchIndex": 0,
   "match": {
    "path": {
     "type": "prefix",
     "value": "/a"
    },
    "method": "POST"
   },
   "lost": "method is \"GET\", wanted \"POST\""
  }
 ],
 "near": [
  {
   "hostname": "*",
   "rule": {
    "kind": "HTTPRoute",
    "namespace": "ns",
    "name": "r",
    "field": "rules[1]"
   },
   "ruleName": "r.1",
   "ruleIndex": 1,
   "matchIndex": 0,
   "match": {
    "path": {
     "type": "exact",
     "value": "/b"
    }
   },
   "lost": "path is \"/a\", wanted exact \"/b\""
  }
 ]
}`
	if string(got) != want {
		t.Errorf("got %s", got)
	}
}

func TestARouteNamedTwiceUnderAHostnameIsComparedOnce(t *testing.T) {
	route := on("r", []string{"a.example", "a.example", "*"}, prefix("/a"), prefix("/"))
	route.Attachments = append(route.Attachments, model.Attachment{Listener: "web", Hostnames: []string{"A.example"}})
	e := explain(t, tableOf(t, route), &Request{Host: "a.example", Method: "GET", Path: "/a"})
	want := []string{
		"a.example r.0: wins",
		"a.example r.1: less specific than the winner",
		"* r.0: less specific than the winner",
		"* r.1: less specific than the winner",
	}
	if got := told(e.Candidates); !reflect.DeepEqual(got, want) {
		t.Errorf("candidates %q, want %q", got, want)
	}
}
