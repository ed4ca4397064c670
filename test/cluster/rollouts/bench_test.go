package rollouts

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

const (
	// carrierFor is the environment variable with the kubeconfig by which this program is a controller, and no test.
	carrierFor = "WEIR_TEST_CARRIER"
	// benchNamespaces is among how many namespaces the Rollouts are.
	benchNamespaces = 20
	// approvals is how many steps a second are approved.
	approvals = 20
	// The goals.
	goalDecided = time.Second
	goalMemory  = 600 << 20
	goalWrites  = 12 // a step
)

// carried is what a controller in a process of its own did.
type carried struct {
	Writes map[string]int // by method and resource
	Peak   int64          // bytes resident
}

// counter counts the writes that it lets pass.
type counter struct {
	to http.RoundTripper
	mu sync.Mutex
	by map[string]int
}

func (c *counter) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Method != http.MethodGet {
		parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
		what := r.Method
		for i, p := range parts {
			if p == "namespaces" && i+2 < len(parts) {
				what += " " + parts[i+2]
				if len(parts) > i+4 {
					what += "/" + parts[i+4]
				}
			}
		}
		c.mu.Lock()
		c.by[what]++
		c.mu.Unlock()
	}
	return c.to.RoundTrip(r)
}

// carrier carries Rollouts out until it is interrupted, and says what it did.
func carrier() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	kube.SetLogger(slog.New(slog.DiscardHandler))
	of, err := kube.Config(os.Getenv(carrierFor), "")
	if err != nil {
		return err
	}
	count := &counter{by: map[string]int{}}
	of.Wrap(func(to http.RoundTripper) http.RoundTripper { count.to = to; return count })
	c, err := kube.NewClient(of)
	if err != nil {
		return err
	}
	defer c.Close()
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	if err := (&release.Controller{Client: c, Providers: provider.All(), Instance: "bench", Logger: log}).Run(ctx); err != nil {
		return err
	}
	out := carried{Writes: count.by}
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kilobytes, err := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			if err != nil {
				return err
			}
			out.Peak = kilobytes << 10
		}
	}
	return json.NewEncoder(os.Stdout).Encode(out)
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
		if err := admin.List(f.Context(), list); err != nil {
			f.Fatal(err)
		}
		n := 0
		example := ""
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
// on, what the controller weighs at most, and how much it writes for a step. With GOALS it fails if a goal is missed.
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
		fmt.Sprintf(shop, "Deployment", "replicas: 2", "{canary: {"+route+", steps: [{traffic: 10%, replicas: 1}, {traffic: 50%, replicas: 1}]}}"))
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
	cmd := exec.Command("/proc/self/exe")
	cmd.Env = append(os.Environ(), carrierFor+"="+server.Kubeconfig)
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	defer cmd.Process.Kill()

	for b.Loop() {
		f.wait(rollouts.PhaseHealthy, 0)
		f.each(func(name types.NamespacedName) error {
			var u unstructured.Unstructured
			u.SetAPIVersion("apps/v1")
			u.SetKind("Deployment")
			return admin.Patch(b.Context(), f.object(u, name), client.RawPatch(types.JSONPatchType, []byte(`[{"op":"replace","path":"/spec/template/spec/containers/0/image","value":"v2"}]`)))
		})
		f.wait(rollouts.PhaseProgressing, 1)
		took := f.decisions()
		f.wait(rollouts.PhaseProgressing, 2)
		took = append(took, f.decisions()...)
		f.wait(rollouts.PhaseHealthy, 0)
		slices.Sort(took)
		p99 := took[len(took)*99/100]
		b.ReportMetric(took[len(took)/2].Seconds()*1e3, "ms/p50")
		b.ReportMetric(p99.Seconds()*1e3, "ms/p99")
		if os.Getenv("GOALS") != "" && p99 > goalDecided {
			b.Errorf("steps are decided on within %s (p99), the goal is %s", p99, goalDecided)
		}
	}

	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		b.Fatal(err)
	}
	var did carried
	if err := json.NewDecoder(out).Decode(&did); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
	total := 0
	for what, count := range did.Writes {
		b.Logf("%6.2f %s", float64(count)/float64(2*n), what)
		total += count
	}
	writes := float64(total) / float64(2*n)
	b.ReportMetric(writes, "writes/step")
	b.ReportMetric(float64(did.Peak)/(1<<20), "MB/peak")
	if os.Getenv("GOALS") != "" && (writes > goalWrites || did.Peak > goalMemory) {
		b.Errorf("%.1f writes a step and %d MB at most, the goals are %d and %d", writes, did.Peak>>20, goalWrites, goalMemory>>20)
	}
}
