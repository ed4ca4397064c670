package routing

import (
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/model"
)

// TestPatternsOfOthersAreCountedApart has two namespaces on one hostname whose patterns take all that each account holds: neither takes of the other's.
func TestPatternsOfOthersAreCountedApart(t *testing.T) {
	route := func(namespace string, day int, pattern string, matches int) model.Route {
		r := model.Route{
			Ref: model.Ref{Kind: "HTTPRoute", Namespace: namespace, Name: "r"}, Created: time.Date(2026, 1, day, 0, 0, 0, 0, time.UTC),
			Attachments: []model.Attachment{{Listener: "l", Hostnames: []string{"shop.example"}}},
		}
		for range matches {
			m := model.Match{Path: model.PathMatch{Type: model.Prefix, Value: "/"}, Headers: []model.ValueMatch{{Type: model.Regex, Name: "cookie", Value: pattern}}}
			r.Rules = append(r.Rules, model.Rule{Ref: r.Ref, Matches: []model.Match{m}, Fault: &model.Fault{Status: 500, Reason: "Test"}})
		}
		return r
	}
	last := route("first", 3, "y*", 1)
	last.Rules[0].Matches[0].Headers = nil
	const pattern = "x{0,1000}z" // 2,003 instructions
	for _, c := range []struct {
		name          string
		first, others int // matches with the pattern
		length        int
		want          Excess
	}{
		{"others' alone", 0, 2, model.MaxSharedValue, NoExcess},
		{"others' that are too many", 0, 5, model.MaxSharedValue, ExcessField},
		{"its own", 1, 0, 8000, NoExcess},
		{"its own that are too many", 2, 0, 8000, ExcessField},
		{"both, each as much as it may", 1, 2, 8000, NoExcess},
	} {
		cfg := &model.Config{
			Listeners: []model.Listener{{Name: "l", Port: 80, Protocol: model.HTTP}},
			Routes:    []model.Route{route("first", 1, pattern, c.first), route("other", 2, pattern, c.others), last},
		}
		if c.first == 0 {
			cfg.Routes[0] = last
			cfg.Routes[0].Created = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			cfg.Routes = cfg.Routes[:2]
		}
		table, left := Compile(cfg, nil)
		if len(left) > 0 {
			t.Fatal(left)
		}
		req := Request{Host: "shop.example", Method: "GET", Path: "/", Fields: oneField{"cookie", strings.Repeat("y", c.length)}}
		var d Decision
		found := table.Listeners()[0].Match(&req, &d)
		if req.Excess() != c.want || found != (c.want == NoExcess) {
			t.Errorf("%s: found %v, excess %v, want %v", c.name, found, req.Excess(), c.want)
		}
	}
}

type oneField struct{ name, value string }

func (f oneField) Field(name string) (string, bool) { return f.value, name == f.name }
