package rollouts

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

const (
	// carrierFor is the environment variable with the kubeconfig by which this program is a controller, and no test.
	carrierFor = "WEIR_TEST_CARRIER"
	// benchNamespaces is among how many namespaces the Rollouts are.
	benchNamespaces = 20
	// approvals is how many steps a second are approved.
	approvals = 20
	// goalDecided is for how long the controller may have known of an approval, at the 99th percentile, when it sends its decision.
	goalDecided = time.Second
	// goalMemory is in bytes, resident at most.
	goalMemory = 600 << 20
	// goalWrites is for a stage of a release, on average: its begin to the first pause, a step, its end.
	goalWrites = 12
)

// newVersion is another image, and what the admission webhook adds to it.
const newVersion = `[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"v2"},
	{"op":"add","path":"/spec/paused","value":true},{"op":"add","path":"/metadata/labels/rollouts.weirmesh.github.io~1held","value":"unpaused"}]`

// carrier carries Rollouts out until its input ends. For each line of it, it says what was measured so far.
func carrier() error {
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	kube.SetLogger(slog.New(slog.DiscardHandler))
	of, err := clientcmd.BuildConfigFromFlags("", os.Getenv(carrierFor))
	if err != nil {
		return err
	}
	of.QPS = -1 // as the controller's own
	m := &measure{writes: map[string]int{}, approved: map[string]time.Time{}}
	of.Wrap(func(to http.RoundTripper) http.RoundTripper { m.to = to; return m })
	c, err := kube.NewClient(of)
	if err != nil {
		return err
	}
	defer c.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	var running sync.WaitGroup
	var failed error
	running.Go(func() {
		failed = (&release.Controller{Client: c, Providers: provider.All(), Workloads: workload.Fixed(), Instance: "bench", Logger: log}).Run(ctx)
	})
	out := json.NewEncoder(os.Stdout)
	for in := bufio.NewScanner(os.Stdin); in.Scan() && err == nil; {
		so := m.so()
		if so.Peak, err = peak(); err == nil {
			err = out.Encode(so)
		}
	}
	stop()
	running.Wait()
	return errors.Join(err, failed)
}

// peak is how many bytes of this process were resident at most.
func peak() (int64, error) {
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kilobytes << 10, err
		}
	}
	return 0, errors.New("/proc/self/status has no VmHWM")
}

// subject is a controller in a process of its own.
type subject struct {
	*testing.B
	cmd *exec.Cmd
	in  io.WriteCloser
	out *json.Decoder
	// before is what was measured when a stage began.
	before measured
}

func startSubject(b *testing.B) *subject {
	b.Helper()
	s := &subject{B: b, cmd: exec.Command("/proc/self/exe")}
	s.cmd.Env = append(os.Environ(), carrierFor+"="+server.Kubeconfig)
	s.cmd.Stderr = os.Stderr
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	out, err := s.cmd.StdoutPipe()
	if err == nil {
		s.out = json.NewDecoder(out)
		if s.in, err = s.cmd.StdinPipe(); err == nil {
			err = s.cmd.Start()
		}
	}
	if err != nil {
		b.Fatal(err)
	}
	return s
}

// measured is what was measured so far.
func (s *subject) measured() (m measured) {
	s.Helper()
	_, err := io.WriteString(s.in, "\n")
	if err == nil {
		err = s.out.Decode(&m)
	}
	if err != nil {
		s.Fatal(err)
	}
	return m
}

// writes reports how many writes a stage took for each of n Rollouts, and begins the next stage.
func (s *subject) writes(stage string, n int) float64 {
	s.Helper()
	now, total := s.measured(), 0
	for _, what := range slices.Sorted(maps.Keys(now.Writes)) {
		if count := now.Writes[what] - s.before.Writes[what]; count > 0 {
			s.Logf("%s: %6.2f %s", stage, float64(count)/float64(n), what)
			total += count
		}
	}
	s.before = now
	s.ReportMetric(float64(total)/float64(n), "writes/"+stage)
	return float64(total) / float64(n)
}

func (s *subject) stop() {
	s.Helper()
	if err := errors.Join(s.in.Close(), s.cmd.Wait()); err != nil {
		s.Error(err)
	}
}

// fleet are the shops of a benchmark.
type fleet struct {
	*testing.B
	all []types.NamespacedName
}

// each does something for all, many at a time.
func (f *fleet) each(do func(name types.NamespacedName) error) {
	f.Helper()
	var wait sync.WaitGroup
	queue := make(chan types.NamespacedName)
	for range 16 {
		wait.Go(func() {
			for name := range queue {
				if err := do(name); err != nil {
					f.Errorf("%s: %v", name, err)
				}
			}
		})
	}
	for _, name := range f.all {
		queue <- name
	}
	close(queue)
	wait.Wait()
	if f.Failed() {
		f.FailNow()
	}
}

func (f *fleet) object(gvk unstructured.Unstructured, name types.NamespacedName) *unstructured.Unstructured {
	u := gvk.DeepCopy()
	u.SetNamespace(name.Namespace)
	u.SetName(name.Name)
	return u
}

func emptyRollout() unstructured.Unstructured {
	var u unstructured.Unstructured
	u.SetGroupVersionKind(rolloutKind)
	return u
}

// wait waits until all are in a phase, and if a step is given, wait at it.
func (f *fleet) wait(phase rollouts.Phase, step int32) {
	f.Helper()
	last := time.Now()
	best := -1
	for {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(rolloutKind.GroupVersion().WithKind("RolloutList"))
		err := admin.List(f.Context(), list) // a busy API server may not answer
		n := 0
		example := fmt.Sprint("they cannot be listed: ", err)
		if err == nil {
			example = ""
		}
		for i := range list.Items {
			s := statusOf(f.B, &list.Items[i])
			if s.Phase == phase && (step == 0 || s.CurrentStepIndex == step && s.CurrentStepState == rollouts.StepPaused) {
				n++
			} else if example == "" {
				example = fmt.Sprintf("%s: %+v", list.Items[i].GetName(), s)
			}
		}
		if n == len(f.all) {
			return
		}
		if n > best {
			best, last = n, time.Now()
		} else if time.Since(last) > enough {
			f.Fatalf("%d of %d Rollouts are %s, step %d; for example %s", n, len(f.all), phase, step, example)
		}
		time.Sleep(500 * time.Millisecond)
	}
}

func statusOf(t testing.TB, u *unstructured.Unstructured) (s rollouts.Status) {
	t.Helper()
	text, err := json.Marshal(u.Object["status"])
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// decisions approves a step of all, so many a second, and returns how long each took to be decided on.
func (f *fleet) decisions() (all []time.Duration) {
	f.Helper()
	ctx, cancel := context.WithCancel(f.Context())
	defer cancel()
	watcher, err := client.NewWithWatch(config(), client.Options{Scheme: kube.Scheme()})
	if err != nil {
		f.Fatal(err)
	}
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(rolloutKind.GroupVersion().WithKind("RolloutList"))
	changes, err := watcher.Watch(ctx, list)
	if err != nil {
		f.Fatal(err)
	}
	defer changes.Stop()
	var mu sync.Mutex
	approved := map[types.NamespacedName]time.Time{}
	var wait sync.WaitGroup
	wait.Go(func() {
		for range f.all {
			for {
				e, ok := <-changes.ResultChan()
				if !ok {
					f.Error("the watch ended")
					return
				}
				u, is := e.Object.(*unstructured.Unstructured)
				if !is || e.Type != watch.Modified {
					continue
				}
				s := statusOf(f.B, u)
				name := client.ObjectKeyFromObject(u)
				mu.Lock()
				at, ok := approved[name]
				if ok && s.CurrentStepState != rollouts.StepReady && s.CurrentStepState != rollouts.StepPaused {
					all = append(all, time.Since(at))
					delete(approved, name)
					mu.Unlock()
					break
				}
				mu.Unlock()
			}
		}
	})
	tick := time.NewTicker(time.Second / approvals)
	defer tick.Stop()
	for _, name := range f.all {
		<-tick.C
		mu.Lock()
		approved[name] = time.Now()
		mu.Unlock()
		err := admin.Status().Patch(ctx, f.object(emptyRollout(), name), client.RawPatch(types.MergePatchType, []byte(`{"status":{"currentStepState":"StepReady","canaryStatus":{"currentStepState":"StepReady"}}}`)))
		if err != nil {
			f.Fatal(err)
		}
	}
	wait.Wait()
	slices.Sort(all)
	return all
}

// BenchmarkManyRollouts has ROLLOUTS Rollouts (default 1,000) progress at once: how soon steps that are approved are decided
// on ("decided" from the request to the watch of somebody else, "own" from its arrival at the controller to the decision's
// request), what the controller weighs at most, and how much it writes for each stage of a release. With GOALS it fails if a
// goal is missed.
func BenchmarkManyRollouts(b *testing.B) {
	n := 1000
	if text := os.Getenv("ROLLOUTS"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			b.Fatal(err)
		}
	}
	f := &fleet{B: b}
	for i := range n {
		f.all = append(f.all, types.NamespacedName{Namespace: fmt.Sprintf("bench-%d", i%benchNamespaces), Name: fmt.Sprintf("web-%d", i)})
	}
	for i := range benchNamespaces {
		if err := admin.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("bench-%d", i)}}); err != nil {
			b.Fatal(err)
		}
	}
	text := strings.NewReplacer("name: web}", "name: NAME}", "name: web,", "name: NAME,", "app: web", "app: NAME", "httpRouteName: web", "httpRouteName: NAME", "service: web", "service: NAME").Replace(
		fmt.Sprintf(shop, "Deployment", "replicas: 2", "{canary: {"+route+", steps: [{traffic: 10%, replicas: 1}, {traffic: 50%, replicas: 1}]}}", "apps/v1"))
	f.each(func(name types.NamespacedName) error {
		for part := range strings.SplitSeq(strings.ReplaceAll(text, "NAME", name.Name), "\n---\n") {
			u := &unstructured.Unstructured{}
			if err := yaml.Unmarshal([]byte(part), &u.Object); err != nil {
				return err
			}
			u.SetNamespace(name.Namespace)
			if err := admin.Create(b.Context(), u); err != nil {
				return err
			}
		}
		return nil
	})
	s := startSubject(b)
	defer s.cmd.Process.Kill()

	for b.Loop() {
		f.wait(rollouts.PhaseHealthy, 0)
		s.before = s.measured()
		f.each(func(name types.NamespacedName) error {
			var u unstructured.Unstructured
			u.SetAPIVersion("apps/v1")
			u.SetKind("Deployment")
			return admin.Patch(b.Context(), f.object(u, name), client.RawPatch(types.JSONPatchType, []byte(newVersion)))
		})
		f.wait(rollouts.PhaseProgressing, 1)
		total := s.writes("begin", n)
		took := f.decisions()
		f.wait(rollouts.PhaseProgressing, 2)
		total += s.writes("step", n)
		took = append(took, f.decisions()...)
		f.wait(rollouts.PhaseHealthy, 0)
		total += s.writes("end", n)
		slices.Sort(took)
		report := func(what string, all []time.Duration) (p99 time.Duration) {
			b.ReportMetric(all[len(all)/2].Seconds()*1e3, "ms/p50-"+what)
			p99 = all[len(all)*99/100]
			b.ReportMetric(p99.Seconds()*1e3, "ms/p99-"+what)
			return p99
		}
		did := s.measured()
		all, own := report("decided", took), report("own", did.Own)
		b.ReportMetric(total/3, "writes/mean")
		b.ReportMetric(float64(did.Peak)/(1<<20), "MB/peak")
		if all > goalDecided && own <= goalDecided {
			b.Logf("Of %s until a step is decided on (p99), %s are the controller's: the API server, and Kubernetes' controllers beside it, take the rest on this machine.", all.Round(time.Millisecond), own.Round(time.Millisecond))
		}
		if os.Getenv("GOALS") != "" && (own > goalDecided || total/3 > goalWrites || did.Peak > goalMemory) {
			b.Errorf("missed is a goal: steps are decided on within %s (p99, goal %s), %.1f writes (goal %d), %d MB at most (goal %d)", own, goalDecided, total/3, goalWrites, did.Peak>>20, goalMemory>>20)
		}
	}
	s.stop()
}
