package routing

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// splitConfig leads two rules, /a and /b, to ns/root:80.
func splitConfig(splits ...model.Split) *model.Config {
	route := on("r", []string{"*"}, prefix("/a"), prefix("/b"), prefix("/c"))
	for i := range 2 {
		route.Rules[i].Backends = []model.Backend{{Service: "ns/root:80", Weight: 1}}
	}
	route.Rules[2].Backends = []model.Backend{{Service: "ns/other:80", Weight: 1}}
	for i := range splits {
		if splits[i].Root == "" {
			splits[i].Root = "ns/root:80"
		}
		if splits[i].Ref.Name == "" {
			splits[i].Ref = model.Ref{Kind: "TrafficSplit", Namespace: "ns", Name: fmt.Sprint("split", i)}
		}
	}
	return &model.Config{
		Listeners: []model.Listener{{Name: "web", Port: 80, Protocol: model.HTTP}},
		Routes:    []model.Route{route}, Splits: splits,
	}
}

func leaves(weights ...uint64) (out []model.Leaf) {
	for i, w := range weights {
		out = append(out, model.Leaf{Service: fmt.Sprintf("ns/leaf%d:80", i), Weight: w})
	}
	return out
}

func compiled(t testing.TB, cfg *model.Config, prev *Table) *Table {
	t.Helper()
	table, err := Compile(cfg, prev)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

// goes returns the service that the request is sent to, or the fault's reason.
func goes(t testing.TB, table *Table, rule int, req *Request) string {
	t.Helper()
	b := table.Rules()[rule].Pick()
	l := b.Leaf(req)
	switch {
	case l == nil:
		return b.Backend.Service
	case l != table.Leaves()[l.ID] || l.Backend != b:
		t.Fatalf("leaf %d of another backend", l.ID)
	case l.Fault != nil:
		return l.Fault.Reason
	}
	return l.Service
}

func TestEachBlockOfASplitIsExactWhicheverRuleLeadsThere(t *testing.T) {
	for _, weights := range [][]uint64{{90, 10}, {1000, 500}, {1000, 500, 0, 10}, {1, 1, 1}, {10, 100, 1500}, {3_000_000_000_000, 1_000_000_000_000}} {
		table := compiled(t, splitConfig(model.Split{Leaves: leaves(weights...)}), nil)
		reduced, sum, _ := reduce(weights)
		for block := range 5 {
			counts := map[string]uint64{}
			for i := range sum {
				counts[goes(t, table, int(i+uint64(block))%2, &Request{})]++
			}
			for i, w := range reduced {
				if got := counts[fmt.Sprintf("ns/leaf%d:80", i)]; got != w {
					t.Fatalf("weights %v, block %d: leaf %d got %d of %d, want %d", weights, block, i, got, sum, w)
				}
			}
		}
	}
}

func TestASplitIsExactAcrossGoroutinesAndTables(t *testing.T) {
	cfg := func() *model.Config { return splitConfig(model.Split{Leaves: leaves(2, 1)}) }
	table := compiled(t, cfg(), nil)
	var mu sync.Mutex
	counts := map[string]int{}
	const each, rounds = 1000, 6
	for range rounds {
		var wait sync.WaitGroup
		for g := range 4 {
			wait.Go(func() {
				own := map[string]int{}
				for range each {
					own[goes(t, table, g%2, &Request{})]++
				}
				mu.Lock()
				defer mu.Unlock()
				for k, n := range own {
					counts[k] += n
				}
			})
		}
		wait.Wait()
		table = compiled(t, cfg(), table) // 4000 is no multiple of 3: the next table must go on where this one stood
	}
	if want := map[string]int{"ns/leaf0:80": 4 * each * rounds / 3 * 2, "ns/leaf1:80": 4 * each * rounds / 3}; !reflect.DeepEqual(counts, want) {
		t.Errorf("got %v, want %v", counts, want)
	}
	other := cfg()
	other.Splits[0].Ref.Name = "another"
	if a, b := table.Rules()[0].Backends[0].root.splits[0].draw.sampler, compiled(t, other, table).Rules()[0].Backends[0].root.splits[0].draw.sampler; a == b {
		t.Error("a split of another provenance took the sampler over")
	}
}

func TestOneObjectThatSplitsTwoPortsHasTwoSamplers(t *testing.T) {
	ref := model.Ref{Kind: "TrafficSplit", Namespace: "ns", Name: "s"}
	cfg := splitConfig(model.Split{Ref: ref, Leaves: leaves(2, 1)}, model.Split{Ref: ref, Root: "ns/other:80", Leaves: leaves(2, 1)})
	table := compiled(t, cfg, nil)
	a, b := table.Rules()[0].Backends[0].root, table.Rules()[2].Backends[0].root
	if a == b || a.splits[0].draw.sampler == b.splits[0].draw.sampler {
		t.Error("they share")
	}
	next := compiled(t, splitConfig(cfg.Splits[1], cfg.Splits[0]), table)
	if next.Rules()[0].Backends[0].root.splits[0].draw.sampler != a.splits[0].draw.sampler {
		t.Error("the next table mixed them up")
	}
}

func TestSplitMatchesAreOredAndTheirConditionsAnded(t *testing.T) {
	header := func(name, value string) model.ValueMatch {
		return model.ValueMatch{Type: model.Regex, Name: name, Value: value}
	}
	table := compiled(t, splitConfig(model.Split{Leaves: leaves(1), Matches: []model.SplitMatch{
		{Methods: []string{"GET", "HEAD"}, Path: `/authors/\d+`},
		{Path: "/a|/b"},
		{Headers: []model.ValueMatch{header("User-Agent", "Fire.*"), header("cookie", ".*"), header("user-agent", ".*fox")}},
	}}), nil)
	const leaf, root = "ns/leaf0:80", "ns/root:80"
	for _, x := range []struct {
		method, path string
		fields       fieldMap
		want         string
	}{
		{"GET", "/authors/12", nil, leaf},
		{"HEAD", "/authors/12/edit", nil, leaf}, // anchored at the start only
		{"POST", "/authors/12", nil, leaf},      // by "/a"
		{"GET", "/x/authors/12", nil, root},
		{"GET", "/x/b", nil, root}, // an alternative is anchored too
		{"GET", "/b/x", nil, leaf},
		{"GET", "/", fieldMap{"user-agent": "Firefox", "cookie": ""}, leaf}, // an empty field is there
		{"GET", "/", fieldMap{"user-agent": "Firefox"}, root},               // an absent one is not
		{"GET", "/", fieldMap{"user-agent": "a Firefox", "cookie": "x"}, root},
		{"GET", "/", fieldMap{"user-agent": "Firefox 2", "cookie": "x"}, root}, // both conditions on one field hold
	} {
		req := &Request{Method: x.method, Path: x.path, Fields: x.fields}
		if x.fields == nil {
			req.Fields = nil
		}
		if got := goes(t, table, 0, req); got != x.want {
			t.Errorf("%s %s %v goes to %s, want %s", x.method, x.path, x.fields, got, x.want)
		}
	}
}

func TestTheFirstSplitThatAppliesTakesTheRequest(t *testing.T) {
	only := func(name, path string) model.Split {
		s := model.Split{Leaves: []model.Leaf{{Service: name, Weight: 1}}}
		if path != "" {
			s.Matches = []model.SplitMatch{{Path: path}}
		}
		return s
	}
	table := compiled(t, splitConfig(only("first", "/a/1"), only("second", "/a"), only("rest", ""), only("never", "")), nil)
	for path, want := range map[string]string{"/a/1": "first", "/a/2": "second", "/": "rest"} {
		if got := goes(t, table, 1, &Request{Path: path}); got != want {
			t.Errorf("%s goes to %s, want %s", path, got, want)
		}
	}
	if got := goes(t, table, 2, &Request{Path: "/a"}); got != "ns/other:80" {
		t.Errorf("a service without split goes to %s", got)
	}
}

func TestFaultsKeepTheirShareAndNoWeightIsAFault(t *testing.T) {
	table := compiled(t, splitConfig(model.Split{Leaves: []model.Leaf{
		{Service: "there", Weight: 3}, {Fault: &model.Fault{Status: 500, Reason: "BackendNotFound"}, Weight: 1},
	}}), nil)
	counts := map[string]int{}
	for range 8 {
		counts[goes(t, table, 0, &Request{})]++
	}
	if counts["there"] != 6 || counts["BackendNotFound"] != 2 {
		t.Errorf("got %v", counts)
	}
	table = compiled(t, splitConfig(model.Split{Leaves: leaves(0, 0)}), nil)
	if got := goes(t, table, 0, &Request{}); got != "NoBackend" {
		t.Errorf("no weight at all goes to %s", got)
	}
}

func TestALeafThatIsARootIsNotSplitAgain(t *testing.T) {
	table := compiled(t, splitConfig(
		model.Split{Leaves: []model.Leaf{{Service: "ns/root:80", Weight: 1}, {Service: "ns/other:80", Weight: 1}}},
		model.Split{Root: "ns/other:80", Leaves: leaves(1)},
	), nil)
	counts := map[string]int{}
	for range 10 {
		counts[goes(t, table, 0, &Request{})]++
	}
	if counts["ns/root:80"] != 5 || counts["ns/other:80"] != 5 {
		t.Errorf("got %v", counts)
	}
}

// TestLeafAgreesWithANaiveReference compares with the definition, on random splits and requests.
func TestLeafAgreesWithANaiveReference(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	pick := func(from ...string) string { return from[r.IntN(len(from))] }
	paths := []string{"/", "/a", "/a/b", "/b/a", "/ab"}
	for range 300 {
		var splits []model.Split
		for i := range r.IntN(4) {
			s := model.Split{Leaves: []model.Leaf{{Service: fmt.Sprint("leaf", i), Weight: 1}}}
			for range r.IntN(3) {
				m := model.SplitMatch{Path: pick("", "/a", "a|/b", "/a$", "/[ab]/")}
				for range r.IntN(2) {
					m.Methods = append(m.Methods, pick("GET", "POST"))
				}
				for range r.IntN(3) {
					m.Headers = append(m.Headers, model.ValueMatch{Type: model.MatchType(pick("exact", "regex")), Name: pick("x", "Y"), Value: pick("1", "1?", "")})
				}
				s.Matches = append(s.Matches, m)
			}
			splits = append(splits, s)
		}
		table := compiled(t, splitConfig(splits...), nil)
		for range 30 {
			fields := fieldMap{}
			for _, name := range []string{"x", "y"} {
				if r.IntN(2) == 0 {
					fields[name] = pick("", "1", "2", "1?")
				}
			}
			req := &Request{Method: pick("GET", "POST", "PUT"), Path: pick(paths...), Fields: fields}
			want := "ns/root:80"
			for i, s := range splits {
				if naiveSplit(&s, req, fields) {
					want = fmt.Sprint("leaf", i)
					break
				}
			}
			if got := goes(t, table, 0, req); got != want {
				t.Fatalf("%+v with %v goes to %s, want %s: %+v", req, fields, got, want, splits)
			}
			explained := table.Rules()[0].Backends[0].ExplainLeaf(req)
			takes := ""
			for _, e := range explained {
				if e.Takes {
					takes = e.Leaves[0].Service
				}
			}
			if (takes == "") != (want == "ns/root:80") || takes != "" && takes != want {
				t.Fatalf("explained as %+v, want %s", explained, want)
			}
		}
	}
}

func naiveSplit(s *model.Split, req *Request, fields fieldMap) bool {
	if len(s.Matches) == 0 {
		return true
	}
	return slices.ContainsFunc(s.Matches, func(m model.SplitMatch) bool {
		at := regexp.MustCompile(m.Path).FindStringIndex(req.Path)
		starts := m.Path == ""
		for n := range len(req.Path) + 1 { // some beginning of the path matches whole
			starts = starts || regexp.MustCompile("^(?:"+m.Path+")$").MatchString(req.Path[:n]) && at != nil && (m.Path != "/a$" || n == len(req.Path))
		}
		ok := starts && (len(m.Methods) == 0 || slices.Contains(m.Methods, req.Method))
		for _, h := range m.Headers {
			v, there := fields[map[string]string{"x": "x", "Y": "y"}[h.Name]]
			if h.Type == model.Exact {
				ok = ok && there && v == h.Value
			} else {
				ok = ok && there && regexp.MustCompile("^(?:"+h.Value+")$").MatchString(v)
			}
		}
		return ok
	})
}

func TestExplainLeafShowsSharesAndWhatFailed(t *testing.T) {
	m := model.SplitMatch{Methods: []string{"GET"}, Path: "/a", Headers: []model.ValueMatch{{Type: model.Regex, Name: "x", Value: "1"}}}
	table := compiled(t, splitConfig(
		model.Split{Matches: []model.SplitMatch{m}, Leaves: leaves(0, 5)},
		model.Split{Leaves: leaves(90, 10)},
	), nil)
	b := table.Rules()[0].Backends[0]
	shares := func(all []ExplainedSplit) string {
		text := ""
		for _, s := range all {
			text += fmt.Sprintf("%s takes %t lost %q", s.Split.Name, s.Takes, s.Lost)
			for _, l := range s.Leaves {
				text += fmt.Sprintf(" %s %d/%d", l.Service, l.Weight, l.WeightSum)
			}
			text += "\n"
		}
		return text
	}
	for _, x := range []struct {
		req  Request
		want string
	}{
		{Request{Method: "GET", Path: "/a", Fields: fieldMap{"x": "1"}}, "split0 takes true lost [] ns/leaf0:80 0/1 ns/leaf1:80 1/1\n"},
		{Request{Method: "GET", Path: "/a", Fields: fieldMap{"x": "2"}},
			`split0 takes false lost ["header \"x\" is \"2\", wanted regex \"1\""]` + "\nsplit1 takes true lost [] ns/leaf0:80 9/10 ns/leaf1:80 1/10\n"},
		{Request{Method: "GET", Path: "/b/a"},
			`split0 takes false lost ["path is \"/b/a\", wanted regex \"/a\" from its start"]` + "\nsplit1 takes true lost [] ns/leaf0:80 9/10 ns/leaf1:80 1/10\n"},
		{Request{Method: "PUT", Path: "/a"},
			`split0 takes false lost ["method is \"PUT\", wanted GET"]` + "\nsplit1 takes true lost [] ns/leaf0:80 9/10 ns/leaf1:80 1/10\n"},
	} {
		if got := shares(b.ExplainLeaf(&x.req)); got != x.want {
			t.Errorf("%+v: got %s, want %s", x.req, got, x.want)
		}
	}
	zero := compiled(t, splitConfig(model.Split{Leaves: leaves(0, 0)}), nil).Rules()[0].Backends[0].ExplainLeaf(&Request{})
	if got, want := shares(zero), "split0 takes true lost [] ns/leaf0:80 0/1 ns/leaf1:80 0/1  1/1\n"; got != want || zero[0].Leaves[2].Fault == nil {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestLeafDoesNotAllocate(t *testing.T) {
	table := compiled(t, splitConfig(
		model.Split{Matches: []model.SplitMatch{{Methods: []string{"PUT"}}, {Path: "/x"}, {Headers: []model.ValueMatch{{Type: model.Regex, Name: "X", Value: "a.*"}}}}, Leaves: leaves(1)},
		model.Split{Leaves: leaves(90, 10)},
	), nil)
	req := &Request{Method: "GET", Path: "/a", Fields: fieldMap{"x": "b"}}
	b := table.Rules()[0].Backends[0]
	if n := testing.AllocsPerRun(1000, func() { b.Leaf(req) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func TestAnInvalidSplitIsNamed(t *testing.T) {
	for want, s := range map[string]model.Split{
		"TrafficSplit ns/split0 matches[0].path: ":             {Matches: []model.SplitMatch{{Path: "("}}, Leaves: leaves(1)},
		"TrafficSplit ns/split0 matches[0].headers[0].value: ": {Matches: []model.SplitMatch{{Headers: []model.ValueMatch{{Type: model.Regex, Name: "x", Value: "["}}}}, Leaves: leaves(1)},
		"TrafficSplit ns/split0 leaves[0]: must have either ":  {Leaves: []model.Leaf{{Weight: 1}}},
	} {
		_, left := Compile(splitConfig(s), nil)
		if len(left) == 0 || !strings.HasPrefix(left[0].String(), want) {
			t.Errorf("got %v, want %s", left, want)
		}
	}
}

func BenchmarkLeaf(b *testing.B) {
	for name, cfg := range map[string]*model.Config{
		"none":    splitConfig(),
		"weights": splitConfig(model.Split{Leaves: leaves(90, 10)}),
		"match": splitConfig(model.Split{Leaves: leaves(90, 10), Matches: []model.SplitMatch{
			{Methods: []string{"GET"}, Headers: []model.ValueMatch{{Type: model.Regex, Name: "user-agent", Value: ".*Firefox.*"}}}}}),
	} {
		b.Run(name, func(b *testing.B) {
			backend := compiled(b, cfg, nil).Rules()[0].Backends[0]
			req := &Request{Method: "GET", Path: "/a", Fields: fieldMap{"user-agent": "Mozilla/5.0 Gecko/20100101 Firefox/128.0"}}
			b.ReportAllocs()
			for b.Loop() {
				backend.Leaf(req)
			}
		})
	}
}

func TestSplitNamesWhatLeafDrawsFromWithoutDrawing(t *testing.T) {
	table := compiled(t, splitConfig(
		model.Split{Matches: []model.SplitMatch{{Methods: []string{"PUT"}}}, Leaves: []model.Leaf{{Service: "ns/a:80", Weight: 1}}},
		model.Split{Matches: []model.SplitMatch{{Methods: []string{"GET"}}}, Leaves: []model.Leaf{{Service: "ns/a:80", Weight: 1}, {Service: "ns/b:80", Weight: 1}}},
	), nil)
	b := table.Rules()[0].Backends[0]
	drawn := map[string]int{}
	for i := range 100 {
		req := &Request{Method: []string{"GET", "PUT", "POST"}[i%3], Path: "/"}
		s := b.Split(req)
		for range 5 {
			if b.Split(req) != s {
				t.Fatal("another split takes the same request")
			}
		}
		l := b.Leaf(req)
		if (l == nil) != (s == nil) || l != nil && l.Split != s {
			t.Fatalf("%s: Split gives %v, Leaf %v", req.Method, s, l)
		}
		if req.Method == "GET" {
			drawn[l.Service]++
		}
	}
	if drawn["ns/a:80"] != drawn["ns/b:80"] {
		t.Errorf("asking for the split draws: %v", drawn)
	}
	if n := len(b.Leaves()); n != 3 {
		t.Errorf("%d leaves, want those of both splits", n)
	}
}
