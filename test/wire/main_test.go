package main

import (
	"bytes"
	"context"
	"os/exec"
	"slices"
	"testing"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) { weirtest.Main(m) }

func TestMalformedAndAmbiguousMessages(t *testing.T) {
	for _, tool := range []string{"node", "javac", "nginx"} {
		if _, err := exec.LookPath(tool); err != nil {
			t.Skipf("%s is not installed: make setup", tool)
		}
	}
	// All seeds, and a part of what grew of them.
	every, malformed, refused := 10, 1000, 200
	if testing.Short() {
		every, malformed, refused = 25, 600, 130
	}
	s, err := run(context.Background(), options{mutations: defaultMutations, answers: defaultAnswers, every: every, slow: true, weir: weirtest.Path(t), show: 20})
	if s != nil {
		var report bytes.Buffer
		s.report(&report)
		t.Logf("\n%s", report.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(s.problems) > 0 {
		t.Errorf("%d problems", len(s.problems))
	}
	if s.cases["malformed or cut off"] < malformed || s.replayed < 100 || s.outcomes["502"] < refused {
		t.Error("too few cases reached the proxy to say anything")
	}
}

func TestCorpusIsTheSameEachTimeAndLargeEnough(t *testing.T) {
	all := corpus(defaultMutations)
	if again := corpus(defaultMutations); !slices.EqualFunc(all, again, func(a, b kase) bool { return a.name == b.name && bytes.Equal(a.bytes, b.bytes) }) {
		t.Error("two calls differ")
	}
	seen := map[string]bool{}
	malformed := 0
	for _, k := range all {
		if seen[string(k.bytes)] {
			t.Errorf("%s: occurs twice", k.name)
		}
		seen[string(k.bytes)] = true
		if expect(append(slices.Clone(k.bytes), sentinel...)).last.verdict != good {
			malformed++
		}
	}
	if malformed < 5000 {
		t.Errorf("%d malformed requests, want 5000", malformed)
	}
	if answers := answerCorpus(defaultAnswers); len(answers) < 500 {
		t.Errorf("%d answers", len(answers))
	}
}

// Where a seed says what becomes of it, the grammar must agree: they were written apart.
func TestSeedsAgreeWithTheGrammar(t *testing.T) {
	for _, s := range seeds() {
		e := expect(append([]byte(s.bytes), sentinel...))
		switch {
		case s.want < 0:
		case s.want == 0 && len(e.forwarded) == 0:
			t.Errorf("§%s %s: is to be forwarded, the grammar says %+v", s.section, s.name, e)
		case s.want >= 400 && !slices.Contains(e.last.statuses, s.want) && !slices.ContainsFunc(e.answers, func(a []int) bool { return slices.Contains(a, s.want) }):
			t.Errorf("§%s %s: is to be answered %d, the grammar says %+v", s.section, s.name, s.want, e)
		}
	}
}
