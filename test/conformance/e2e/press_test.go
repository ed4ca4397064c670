package e2e

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"
)

// pressKinds is how many kinds of requests, streams and connections "caller press" has.
const pressKinds = 12

// pressed are a workload "web" that calls another one, "pay", in all ways at once, and what became of its calls.
type pressed struct {
	*world
	url    string // of the report, which no sidecar is in the way of
	counts map[string]*pressTally
}

// pressTally is what became of calls of one kind.
type pressTally struct {
	Answered int
	Slowest  int64 // ms
	Failed   map[string]*pressFailure
}

// pressFailure is how some of them failed; times are in ms.
type pressFailure struct {
	N           int
	First, Last int64
}

// newPressed starts the load on three pods.
func newPressed(t *testing.T, namespace string) *pressed {
	w := newWorldNamed(t, namespace)
	w.kubectl("", "label", "namespace", w.namespace, "weirmesh.github.io/inject=enabled")
	w.apply(`
apiVersion: tls.smi-spec.io/v1beta1
kind: TLSConfig
metadata: {name: all}
spec: {subjectNames: [pay], selector: {matchLabels: {}}}
`)
	w.callers("pay")
	w.kubectl("", "scale", "deployment/pay", "--replicas=3")
	// It has the address of the Service: names are asked of DNS, past sidecars.
	w.apply(fmt.Sprintf(`
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  selector: {app: web}
  ports: [{name: http, port: 80, targetPort: 8080}]
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}, annotations: {weirmesh.github.io/skip-inbound-ports: "9100"}}
    spec:
      terminationGracePeriodSeconds: 1
      containers: [{name: caller, image: "caller:dev", args: [press, "%s"]}]
`, w.kubectl("", "get", "service", "pay", "--output=jsonpath={.spec.clusterIP}")))
	w.rolledOut("pay", "web")
	p := &pressed{world: w, url: "http://" + w.kubectl("", "get", "pods", "--selector=app=web", "--output=jsonpath={.items[0].status.podIP}") + ":9100/"}
	p.more(10)
	return p
}

// read takes what became of calls since the last time.
func (p *pressed) read() error {
	ctx, cancel := context.WithTimeout(p.Context(), 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url, nil)
	if err != nil {
		return err
	}
	answer, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var since map[string]*pressTally
	if err := json.NewDecoder(answer.Body).Decode(&since); err != nil {
		return err
	}
	for kind, s := range since {
		t := p.counts[kind]
		if t == nil {
			t = &pressTally{Failed: map[string]*pressFailure{}}
			p.counts[kind] = t
		}
		t.Answered, t.Slowest = t.Answered+s.Answered, max(t.Slowest, s.Slowest)
		for how, f := range s.Failed {
			if all := t.Failed[how]; all == nil {
				t.Failed[how] = f
			} else {
				all.N, all.Last = all.N+f.N, f.Last
			}
		}
	}
	return nil
}

// anew forgets what became of calls.
func (p *pressed) anew() {
	p.Helper()
	p.counts = map[string]*pressTally{}
	p.eventually(p.read)
	p.counts = map[string]*pressTally{}
}

// more waits until so many more calls of each kind were answered.
func (p *pressed) more(n int) {
	p.Helper()
	if p.counts == nil {
		p.anew()
	}
	p.eventually(p.read)
	before := map[string]int{}
	for kind, t := range p.counts {
		before[kind] = t.Answered
	}
	p.eventually(func() error {
		if err := p.read(); err != nil {
			return err
		}
		if len(p.counts) < pressKinds {
			return fmt.Errorf("calls of %q alone", slices.Sorted(maps.Keys(p.counts)))
		}
		for kind, t := range p.counts {
			if t.Answered < before[kind]+n {
				how, _ := json.Marshal(t.Failed)
				return fmt.Errorf("%s: %d answered, failed %s", kind, t.Answered-before[kind], how)
			}
		}
		return nil
	})
}

// failing are calls that a fault may fail: those whose kind and failure match, at most so many. Nothing could have helped them, as why says.
type failing struct {
	calls string // a regular expression of "KIND: HOW"
	most  int
	why   string
}

// lastingEnds are the calls that last on one pod, or through one sidecar, which end with it. There are three: a gRPC stream, a WebSocket and a
// connection; and a new connection may be there for a moment.
var lastingEnds = failing{`^((gRPC stream|WebSocket|TCP): while it lasts|TCP, new connections: new connection): `, 4, "a stream or connection was there"}

// unknowable are calls that were sent and whose connection ended before an answer: nobody knows whether they were carried out.
func unknowable(most int) failing {
	return failing{`^(HTTP/(1.1|2) POST.*: 502 backend_reset|gRPC: grpc-status 14 backend_reset)$`, most, "it was sent, is not idempotent, and its connection ended: nobody knows whether it was carried out"}
}

// under has a fault happen, and waits until all calls are answered again. None may fail but as may says.
func (p *pressed) under(fault string, do func(), may ...failing) {
	p.Helper()
	p.anew()
	began := time.Now()
	do()
	took := time.Since(began)
	p.more(15)
	sent, slowest := 0, int64(0)
	failed := make([]int, len(may))
	var spans []string
	for _, kind := range slices.Sorted(maps.Keys(p.counts)) {
		t := p.counts[kind]
		sent, slowest = sent+t.Answered, max(slowest, t.Slowest)
		for _, how := range slices.Sorted(maps.Keys(t.Failed)) {
			f := t.Failed[how]
			sent += f.N
			i := slices.IndexFunc(may, func(m failing) bool { return regexp.MustCompile(m.calls).MatchString(kind + ": " + how) })
			if i < 0 {
				p.Errorf("%s: %d calls failed that nothing excuses: %s: %s", fault, f.N, kind, how)
				continue
			}
			failed[i] += f.N
			spans = append(spans, fmt.Sprintf("%d %s: %s, within %d ms", f.N, kind, how, f.Last-f.First))
		}
	}
	all := 0
	var why []string
	for i, m := range may {
		if all += failed[i]; failed[i] > 0 {
			why = append(why, fmt.Sprintf("%d: %s", failed[i], m.why))
		}
		if failed[i] > m.most {
			p.Errorf("%s: %d calls failed, at most %d can have: %s", fault, failed[i], m.most, m.why)
		}
	}
	p.Logf("| %s | %v | %d | %d | %d ms | %s |", fault, took.Round(100*time.Millisecond), sent, all, slowest, strings.Join(why, "; "))
	for _, s := range spans {
		p.Logf("    %s", s)
	}
}
