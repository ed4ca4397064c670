package e2e

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

// needsDriver skips a test where the image of a program that carries releases out was not built ("make test-drivers").
func needsDriver(t *testing.T, image string) {
	t.Helper()
	if !slices.Contains(strings.Fields(os.Getenv("E2EIMAGES")), image) {
		t.Skipf("needs the image of %s, which E2EIMAGES does not name: make test-drivers", image)
	}
}

// source is the folder of a driver's module, with its manifests.
func (w *world) source(image string) string {
	w.Helper()
	out, err := exec.CommandContext(w.Context(), os.Getenv("WEIR_CLUSTER_PROGRAM"), "source", image).Output()
	if err != nil {
		w.Fatalf("where the manifests of %s are: %v", image, err)
	}
	return strings.TrimSpace(string(out))
}

// recorded is what a client of the mesh was answered, one request after the other, and which weights its TrafficSplit had meanwhile.
type recorded struct {
	answers []recordedAnswer
	weights []recordedWeight
	errs    []error
}

type recordedAnswer struct {
	at   time.Time
	text string // the status and the body
}

type recordedWeight struct {
	at     time.Time
	canary int // of 100
}

// record begins to send requests from a workload to a URL, and to watch the namespace's TrafficSplits, until the returned function is called.
func (w *world) record(from, url string) (ended func() *recorded) {
	w.Helper()
	r := &recorded{}
	var mu sync.Mutex
	failed := func(err error) {
		mu.Lock()
		defer mu.Unlock()
		r.errs = append(r.errs, err)
	}
	ctx, stop := context.WithCancel(w.Context())
	var all sync.WaitGroup
	all.Go(func() {
		for ctx.Err() == nil { // a client that has begun ends by itself
			text, err := install.Kubectl(w.Context(), "", "--namespace", w.namespace, "exec", "deployment/"+from, "--container=caller", "--", "/caller", "record", url, "10")
			if err != nil {
				failed(err)
				return
			}
			for line := range strings.Lines(text) {
				at, text, _ := strings.Cut(strings.TrimSpace(line), " ")
				ms, err := strconv.ParseInt(at, 10, 64)
				if err != nil {
					failed(fmt.Errorf("the client prints %q", line))
				}
				r.answers = append(r.answers, recordedAnswer{time.UnixMilli(ms), text})
			}
		}
	})
	all.Go(func() {
		cmd := exec.CommandContext(ctx, "kubectl", "--namespace", w.namespace, "get", "trafficsplits.split.smi-spec.io", "--watch",
			`--output=jsonpath={.spec.backends[*].service} {.spec.backends[*].weight}{"\n"}`) // a range would print the first object alone
		out, err := cmd.StdoutPipe()
		if err == nil {
			err = cmd.Start()
		}
		if err != nil {
			failed(err)
			return
		}
		for lines := bufio.NewScanner(out); lines.Scan(); {
			fields := strings.Fields(lines.Text())
			of := map[string]int{}
			for i := range len(fields) / 2 {
				of[fields[i]], _ = strconv.Atoi(fields[len(fields)/2+i])
			}
			canary := of["web-canary"]
			if len(of) != 2 || canary+of["web-primary"]+of["web-stable"] != 100 {
				failed(fmt.Errorf("the split is %q", lines.Text()))
			}
			if n := len(r.weights); n == 0 || r.weights[n-1].canary != canary {
				r.weights = append(r.weights, recordedWeight{time.Now(), canary})
			}
		}
		_ = cmd.Wait() // it is killed
	})
	w.Cleanup(func() { stop(); all.Wait() })
	return func() *recorded { stop(); all.Wait(); return r }
}

// Around a change of weights nobody knows for a moment which ones count.
const (
	afterChange  = 2 * time.Second
	beforeChange = time.Second
)

// check fails the test unless every request was answered, the canary had these weights, one after the other, and each block of a hundred
// answers while a weight stood had exactly that many of the canary. canary says which answers these are.
func (r *recorded) check(t *testing.T, canary func(recordedAnswer) bool, weights ...int) {
	t.Helper()
	for _, err := range r.errs {
		t.Error(err)
	}
	failures := 0
	for _, a := range r.answers {
		if !strings.HasPrefix(a.text, "200 v") {
			if failures++; failures <= 10 {
				t.Errorf("%s: %s", a.at.Format("15:04:05.000"), a.text)
			}
		}
	}
	t.Logf("%d requests, of which %d failed", len(r.answers), failures)
	var stood []int
	for i, weight := range r.weights {
		stood = append(stood, weight.canary)
		from, to := weight.at.Add(afterChange), time.Now()
		if i+1 < len(r.weights) {
			to = r.weights[i+1].at.Add(-beforeChange)
		}
		var of []bool
		for _, a := range r.answers {
			if a.at.After(from) && a.at.Before(to) {
				of = append(of, canary(a))
			}
		}
		blocks, wrong := blocksOf(of, weight.canary)
		t.Logf("%s: weight %d for %s: %d requests, %d blocks of 100", weight.at.Format("15:04:05.000"), weight.canary, to.Sub(weight.at).Round(100*time.Millisecond), len(of), blocks)
		if len(of) < 199 {
			t.Errorf("weight %d: among %d requests there need not be a whole block of 100", weight.canary, len(of))
		}
		if wrong > 0 {
			t.Errorf("weight %d: %d of %d blocks of 100 have another share", weight.canary, wrong, blocks)
		}
	}
	if !slices.Equal(stood, weights) {
		t.Errorf("the weights were %d, want %d", stood, weights)
	}
}

// blocksOf counts blocks of a hundred answers, one after the other, and those that do not have so many of the canary. Where the blocks of a weight
// began is not known, so of the hundred ways to divide the answers the best one counts: none but the right one fits them all.
func blocksOf(canary []bool, weight int) (blocks, wrong int) {
	for from := range min(100, max(0, len(canary)-99)) {
		all, bad := 0, 0
		for block := range slices.Chunk(canary[from:], 100) {
			if len(block) < 100 {
				break
			}
			has := 0
			for _, is := range block {
				if is {
					has++
				}
			}
			if all++; has != weight {
				bad++
			}
		}
		if from == 0 || bad < wrong {
			blocks, wrong = all, bad
		}
	}
	return blocks, wrong
}

// versioned is a workload whose pods answer with their version and name, "v1/web-...": its version and kind, and further fields of its spec, are left open.
const versioned = `
apiVersion: %s
metadata: {name: web}
spec:
  replicas: 2
  selector: {matchLabels: {app: web}}
%s
  template:
    metadata: {labels: {app: web}}
    spec:
      terminationGracePeriodSeconds: 15
      containers:
      - name: caller
        image: caller:dev
        args: [serve, "v1/$(POD)"]
        env: [{name: POD, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]
        ports: [{containerPort: 8080, name: web}]
        readinessProbe: {httpGet: {path: /, port: web}, periodSeconds: 1, timeoutSeconds: 10, failureThreshold: 12}
`

// meshService is a Service of such pods.
const meshService = `
apiVersion: v1
kind: Service
metadata: {name: %s}
spec: {selector: {app: web}, ports: [{name: http, port: 80, targetPort: 8080}]}
`

// says is whether an answer is of a pod of this version.
func (a recordedAnswer) says(version string) bool {
	return strings.HasPrefix(a.text, "200 "+version+"/")
}

// releaseVersioned changes the version.
func (w *world) releaseVersioned(kind, version string) {
	w.Helper()
	w.kubectl("", "patch", kind, "web", "--type=json", "--patch", fmt.Sprintf(`[{"op":"replace","path":"/spec/template/spec/containers/0/args/1","value":"%s/$(POD)"}]`, version))
}

// logs of a workload, for a test that has failed.
func (w *world) logs(of string) {
	if !w.Failed() {
		return
	}
	ctx, stop := context.WithTimeout(context.Background(), time.Minute)
	defer stop()
	text, err := install.Kubectl(ctx, "", append([]string{"--namespace", w.namespace, "logs"}, strings.Fields(of)...)...)
	w.Log(text, err)
}
