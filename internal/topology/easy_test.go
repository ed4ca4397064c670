package topology

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// source is a graph in the language of graph-easy, without labels and with numbers for names. What a reader should see of it comes along.
func source(g Graph) (text string, want picture) {
	id := map[string]string{}
	for i, v := range g.Nodes {
		id[v.ID] = fmt.Sprintf("n%d", i)
		text += fmt.Sprintf("[ n%d ]\n", i)
		want.nodes = append(want.nodes, id[v.ID])
	}
	edges := map[Edge]bool{}
	for _, e := range g.Edges {
		edges[e] = true
	}
	for _, e := range g.Edges {
		if !edges[e] {
			continue
		}
		back := Edge{e.To, e.From, e.Label}
		from, to, sign := id[e.From], id[e.To], "->"
		if e.From != e.To && edges[back] {
			from, to, sign = min(from, to), max(from, to), "<->"
		}
		delete(edges, e)
		delete(edges, back)
		text += fmt.Sprintf("[ %s ] %s [ %s ]\n", from, strings.Replace(sign, "-", "--", 1), to)
		want.arrows = append(want.arrows, fmt.Sprintf("%s %s %s: ", from, sign, to))
	}
	slices.Sort(want.nodes)
	slices.Sort(want.arrows)
	return text, want
}

// graphEasy runs Debian's graph-easy. It gives up on drawing some graphs, which is no error but no drawing.
func graphEasy(source string, options ...string) (text string, ok bool, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	c := exec.CommandContext(ctx, "graph-easy", append(options, "--timeout=20")...)
	c.Stdin = strings.NewReader(source)
	var out, complaints bytes.Buffer
	c.Stdout, c.Stderr = &out, &complaints
	if err := c.Run(); err != nil {
		return "", false, fmt.Errorf("graph-easy: %w: %s", err, complaints.String())
	}
	return out.String(), complaints.Len() == 0, nil
}

// easyGraphs is how many graphs to give to graph-easy: few, or all with TOPOLOGY=full, when graph-easy must be there.
func easyGraphs(t *testing.T, few, all int) (full bool, graphs int) {
	t.Helper()
	if os.Getenv("TOPOLOGY") == "full" {
		return true, all
	}
	if _, err := exec.LookPath("graph-easy"); err != nil {
		t.Skip("graph-easy is not installed")
	}
	return false, few
}

// TestNoLinesCrossThatGraphEasyKeepsApart draws 1,000 graphs with TOPOLOGY=full ("make test-topology"), or else the first few.
func TestNoLinesCrossThatGraphEasyKeepsApart(t *testing.T) {
	full, graphs := easyGraphs(t, 5, 1000)
	var drawn, apart atomic.Int32
	next := make(chan uint64)
	var wg sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wg.Go(func() {
			for seed := range next {
				g := randomGraph(seed)
				text, want := source(g)
				text, ok, err := graphEasy(text, "--as=boxart")
				if err != nil {
					t.Errorf("graph %d: %v", seed, err)
				}
				if !ok {
					continue
				}
				drawn.Add(1)
				theirs, err := read(text, boxart)
				if err != nil || !slices.Equal(theirs.nodes, want.nodes) || !slices.Equal(theirs.arrows, want.arrows) {
					t.Errorf("graph %d of graph-easy: %v\n got %q\nwant %q\n%s", seed, err, theirs.arrows, want.arrows, text)
				}
				if theirs.crossings == 0 {
					apart.Add(1)
				}
				drawing := Text(g, Options{})
				if mine, err := read(drawing, ours); err != nil || mine.crossings > theirs.crossings {
					t.Errorf("graph %d: %v: lines cross %d times, those of graph-easy %d times\n%s\n%s", seed, err, mine.crossings, theirs.crossings, drawing, text)
				}
			}
		})
	}
	for i := range graphs {
		next <- uint64(i)
	}
	close(next)
	wg.Wait()
	t.Logf("graph-easy drew %d of %d graphs, %d without a crossing", drawn.Load(), graphs, apart.Load())
	if apart.Load() < 800 && full {
		t.Error("graph-easy drew too few graphs to compare with")
	}
}

var easyEdge = regexp.MustCompile(`(?m)^\[ n(\d+) \](?: -- (.*))? --> \[ n(\d+) \]$`)

// TestGraphEasyReadsWhatIsWrittenForGraphviz holds edges and their labels to what another reader of that language sees.
func TestGraphEasyReadsWhatIsWrittenForGraphviz(t *testing.T) {
	_, graphs := easyGraphs(t, 2, 100)
	for seed := range uint64(graphs) {
		g := randomGraph(seed)
		for i := range g.Edges {
			if strings.ContainsAny(g.Edges[i].Label, `"\`) {
				g.Edges[i].Label = "" // graph-easy writes them in its own way
			}
		}
		text, ok, err := graphEasy(DOT(g), "--from=dot", "--as=txt")
		if err != nil || !ok {
			t.Fatalf("graph %d: %v\n%s", seed, err, DOT(g))
		}
		var ids []string
		for _, v := range g.Nodes {
			ids = append(ids, v.ID)
		}
		slices.Sort(ids)
		var got []Edge
		for _, m := range easyEdge.FindAllStringSubmatch(text, -1) {
			from, _ := strconv.Atoi(m[1])
			to, _ := strconv.Atoi(m[3])
			got = append(got, Edge{ids[from], ids[to], m[2]})
		}
		want := slices.Clone(g.Edges)
		for _, es := range []*[]Edge{&got, &want} {
			slices.SortFunc(*es, compareEdges)
			*es = slices.Compact(*es)
		}
		if !slices.Equal(got, want) {
			t.Errorf("graph %d: got %q, want %q\n%s", seed, got, want, text)
		}
	}
}
