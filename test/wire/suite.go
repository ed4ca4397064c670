package main

import (
	"bufio"
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/weirmesh/weir/test/freeport"
)

type options struct {
	mutations, answers, every, show int
	slow                            bool
	weir                            string
}

// lane is a listener with a backend of its own: one case at a time is on it.
type lane struct {
	address string
	backend *recorder
}

// suite is one run.
type suite struct {
	opt     options
	lanes   []*lane
	slow    *lane
	answers *scripted
	admin   string
	readers []*reader

	mu        sync.Mutex
	seen      map[[32]byte]bool
	cases     map[string]int // by what they are
	statuses  map[int]int    // of refusals
	forwarded int            // requests
	replayed  int            // distinct ones
	disagreed map[string]int // by parser
	outcomes  map[string]int // of answers
	problems  []string
}

const laneCount = 4

func run(ctx context.Context, opt options) (s *suite, err error) {
	dir, err := os.MkdirTemp("", "weir-wire-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s = &suite{opt: opt, seen: map[[32]byte]bool{}, cases: map[string]int{}, statuses: map[int]int{}, disagreed: map[string]int{}, outcomes: map[string]int{}}
	if opt.weir == "" {
		s.opt.weir = filepath.Join(dir, "weir")
		build := exec.CommandContext(ctx, "go", "build", "-o", s.opt.weir, "github.com/weirmesh/weir/cmd/weir")
		build.Stderr = os.Stderr
		if err := build.Run(); err != nil {
			return nil, fmt.Errorf("building weir: %w", err)
		}
	}
	var stopReaders func()
	if s.readers, stopReaders, err = startReaders(ctx, dir); err != nil {
		return nil, err
	}
	defer stopReaders()
	stopWeir, err := s.startWeir(ctx, dir)
	if err != nil {
		return nil, err
	}
	defer stopWeir()

	var slow sync.WaitGroup
	if opt.slow {
		slow.Go(func() { s.runSlow(slowCases()) })
	}
	all := corpus(opt.mutations)
	var cases []kase
	for i, k := range all {
		if k.want >= 0 || i%max(1, opt.every) == 0 {
			cases = append(cases, k)
		}
	}
	err = s.runRequests(ctx, cases)
	slow.Wait()
	if err != nil {
		return s, err
	}
	s.checkMetrics()
	if err := s.runAnswers(ctx, answerCorpus(opt.answers), max(1, opt.every)); err != nil {
		return s, err
	}
	return s, nil
}

// manifest routes one port to one service.
const manifest = `
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %[1]s}
spec:
  gatewayClassName: weir
  listeners: [{name: http, port: %[2]d, protocol: HTTP}]
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: %[1]s}
spec:
  parentRefs: [{name: %[1]s}]
  rules: [{name: all, backendRefs: [{name: %[1]s, port: 80}]}]
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s}
spec:
  ports: [{name: http, port: 80, targetPort: %[3]d}]
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-1, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{name: http, port: %[3]d}]
endpoints: [{addresses: [127.0.0.1]}]
---`

// startWeir runs weir with the lanes.
func (s *suite) startWeir(ctx context.Context, dir string) (stop func(), err error) {
	var stops stops
	stop = stops.all
	defer func() {
		if err != nil {
			stop()
		}
	}()
	var config strings.Builder
	add := func(name string, backend int) (address string, err error) {
		port, err := freeport.Take()
		fmt.Fprintf(&config, manifest, name, port, backend)
		return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), err
	}
	for i := range laneCount + 1 {
		r, err := newRecorder()
		if err != nil {
			return nil, err
		}
		stops = append(stops, r.close)
		l := &lane{backend: r}
		if l.address, err = add(fmt.Sprintf("lane-%d", i), r.port()); err != nil {
			return nil, err
		}
		if s.lanes = append(s.lanes, l); i == laneCount {
			s.slow, s.lanes = l, s.lanes[:laneCount]
		}
	}
	if s.answers, err = newScripted(); err != nil {
		return nil, err
	}
	stops = append(stops, s.answers.close)
	if s.answers.address, err = add("answers", s.answers.port()); err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(file, []byte(config.String()), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, s.opt.weir, "run", "--address", "127.0.0.1", "--admin", "127.0.0.1:0", "--drain-timeout", "1s",
		"--header-timeout", "2s", "--max-body", strconv.Itoa(limitBody), "--via-name", pseudonym, file)
	stderr, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	serving := make(chan string, 1)
	var log bytes.Buffer
	var logged sync.WaitGroup
	logged.Go(func() {
		defer close(serving)
		admin := regexp.MustCompile(`msg=serving.* admin=(\S+)`)
		for scanner := bufio.NewScanner(stderr); scanner.Scan(); {
			log.Write(append(scanner.Bytes(), '\n'))
			if m := admin.FindStringSubmatch(scanner.Text()); m != nil {
				serving <- m[1]
			}
		}
	})
	stops = append(stops, func() {
		_ = cmd.Process.Signal(os.Interrupt)
		logged.Wait()
		if err := cmd.Wait(); err != nil {
			s.fail("weir", fmt.Sprintf("ended with %v:\n%s", err, log.String()))
		}
		if i := strings.Index(log.String(), "panic"); i >= 0 {
			s.fail("weir", "panicked:\n"+log.String()[i:])
		}
	})
	select {
	case admin, ok := <-serving:
		if !ok {
			return nil, errors.New("weir does not serve: " + log.String())
		}
		s.admin = strings.TrimSuffix(admin, "/")
	case <-time.After(patience):
		return nil, errors.New("weir does not serve in time")
	}
	return stop, nil
}

// first is true for bytes that were not replayed yet.
func (s *suite) first(b []byte) bool {
	sum := sha256.Sum256(b)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.forwarded++
	if s.seen[sum] {
		return false
	}
	s.seen[sum] = true
	s.replayed++
	return true
}

func (s *suite) disagree(reader string) {
	s.mu.Lock()
	s.disagreed[reader]++
	s.mu.Unlock()
}

func (s *suite) fail(name, problem string) {
	s.mu.Lock()
	s.problems = append(s.problems, name+": "+problem)
	s.mu.Unlock()
}

func (s *suite) count(k *kase, e *expectation, statuses []int, problems []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cases["all"]++
	switch {
	case e.last.verdict != good:
		s.cases["malformed or cut off"]++
	case k.want == 0 || len(e.forwarded) != 2 || !slices.Contains(e.answers[0], 200):
		s.cases["well-formed, ambiguous to some"]++
	default:
		s.cases["well-formed mutations"]++
	}
	if n := len(statuses); n > 0 && statuses[n-1] >= 400 {
		s.statuses[statuses[n-1]]++
	} else if len(e.forwarded) == 0 && n == 0 {
		s.statuses[0]++
	}
	for _, p := range problems {
		s.problems = append(s.problems, fmt.Sprintf("%s: %s\n\t%.600q", k.name, p, k.bytes))
	}
}

var failureLine = regexp.MustCompile(`(?m)^weir_request_failures_total\{reason="([^"]*)",route="([^"]*)"[^}]*\} (\S+)$`)

// failures are the counts of failed exchanges by reason, for the routes whose name has the prefix.
func (s *suite) failures(prefix string) map[string]int {
	resp, err := http.Get(s.admin + "/metrics")
	if err != nil {
		s.fail("metrics", err.Error())
		return nil
	}
	defer resp.Body.Close()
	b, _ := io.ReadAll(resp.Body)
	all := map[string]int{}
	for _, m := range failureLine.FindAllSubmatch(b, -1) {
		if strings.HasPrefix(string(m[2]), prefix) {
			n, _ := strconv.ParseFloat(string(m[3]), 64)
			all[string(m[1])] += int(n)
		}
	}
	return all
}

// checkMetrics looks whether any of the clients' faults was counted as another's.
func (s *suite) checkMetrics() {
	client := []string{"bad_request", "head_too_large", "body_too_large", "bad_body", "unsupported", "client_timeout", "client_closed", "client_protocol"}
	counted := s.failures("")
	if counted["bad_request"] == 0 {
		s.fail("metrics", "no bad request was counted")
	}
	for reason, n := range counted {
		if n > 0 && !slices.Contains(client, reason) {
			s.fail("metrics", fmt.Sprintf("%d requests failed by %s, which is no client's fault", n, reason))
		}
	}
}

// report prints the summary.
func (s *suite) report(w io.Writer) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, p := range s.problems {
		if i == s.opt.show {
			fmt.Fprintf(w, "... and %d more\n", len(s.problems)-i)
			break
		}
		fmt.Fprintln(w, p)
	}
	row := func(name string, n int) { fmt.Fprintf(w, "%-44s %7d\n", name, n) }
	row("requests", s.cases["all"])
	for _, name := range []string{"malformed or cut off", "well-formed, ambiguous to some", "well-formed mutations"} {
		row("  "+name, s.cases[name])
	}
	var statuses []int
	for status := range s.statuses {
		statuses = append(statuses, status)
	}
	sort.Ints(statuses)
	for _, status := range statuses {
		name := fmt.Sprintf("  refused with %d", status)
		if status == 0 {
			name = "  cut off, no answer"
		}
		row(name, s.statuses[status])
	}
	row("forwarded", s.forwarded)
	row("  distinct, each read by four parsers", s.replayed)
	for _, r := range s.readers {
		row("  disagreements of "+r.name, s.disagreed[r.name])
	}
	var outcomes []string
	for o := range s.outcomes {
		outcomes = append(outcomes, o)
	}
	sort.Strings(outcomes)
	total := 0
	for _, o := range outcomes {
		total += s.outcomes[o]
	}
	row("answers", total)
	for _, o := range outcomes {
		row("  "+o, s.outcomes[o])
	}
	row("problems", len(s.problems))
}
