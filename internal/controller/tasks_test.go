package controller

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/task"
	"github.com/weirmesh/weir/internal/telemetry"
)

// plane makes a replica of flags whose API server knows ConfigMaps and nothing else. Nothing of it runs.
func plane(t testing.TB, args ...string) *controlPlane {
	t.Helper()
	api := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("content-type", "application/json")
		switch r.URL.Path {
		case "/api":
			_, _ = io.WriteString(w, `{"kind": "APIVersions", "versions": ["v1"]}`)
		case "/apis":
			_, _ = io.WriteString(w, `{"kind": "APIGroupList", "apiVersion": "v1", "groups": []}`)
		default:
			_, _ = io.WriteString(w, `{"kind": "APIResourceList", "groupVersion": "v1", "resources": [{"name": "configmaps", "namespaced": true, "kind": "ConfigMap", "verbs": ["get", "list", "watch"]}]}`)
		}
	}))
	t.Cleanup(api.Close)
	config := filepath.Join(t.TempDir(), "config")
	err := os.WriteFile(config, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": [{"name": "a", "cluster": {"server": "`+api.URL+`"}}], "contexts": [{"name": "a", "context": {"cluster": "a"}}]}`), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	o := NewOptions()
	f := pflag.NewFlagSet("controller", pflag.ContinueOnError)
	o.Flags(f)
	args = append([]string{"--kubeconfig", config, "--proxy-image", "weir:1", "--name", "a", "--admin", "127.0.0.1:0", "--feed-address", "127.0.0.1:0", "--conversion-address", "127.0.0.1:0"}, args...)
	if err := errors.Join(f.Parse(args), o.validate()); err != nil {
		t.Fatal(err)
	}
	log := telemetry.NewLines(io.Discard, telemetry.LinesOptions{})
	t.Cleanup(func() { _ = log.Close(context.Background()) })
	c, err := newControlPlane(o, slog.New(slog.DiscardHandler), log)
	if err != nil {
		t.Fatal(err)
	}
	s, err := c.listen(c.adminHandler(t.Context()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.close)
	c.group = task.NewGroup(c.log, c.tasks(t.Context(), s)...)
	return c
}

func names(all []task.Status, which func(task.Status) bool) (out []string) {
	for _, s := range all {
		if which(s) {
			out = append(out, s.Name)
		}
	}
	return out
}

func TestOnlyTheLeaderWritesToTheCluster(t *testing.T) {
	all := plane(t).group.Status()
	leaders := names(all, func(s task.Status) bool { return s.Lease })
	want := []string{"infrastructure", "reconciliation", "statuses", "events", "gateway classes", "conversion bundles"}
	if !slices.Equal(leaders, want) {
		t.Errorf("the leader's tasks are %q, want %q", leaders, want)
	}
	others := names(all, func(s task.Status) bool { return !s.Lease })
	if want := []string{"admin", "configuration", "authority", "replicas", "lease", "conversion webhook", "feed"}; !slices.Equal(others, want) {
		t.Errorf("every replica's tasks are %q, want %q", others, want)
	}
}

func TestWhatIsSwitchedOffIsNoTask(t *testing.T) {
	c := plane(t, "--admin", "off", "--conversion-address", "off")
	off := names(c.group.Status(), func(s task.Status) bool { return s.Name == "admin" || strings.HasPrefix(s.Name, "conversion") })
	if len(off) > 0 {
		t.Errorf("%q are there", off)
	}
}

// TestTasksAreSeen holds that /status and the metrics have every task, under one name.
func TestTasksAreSeen(t *testing.T) {
	c := plane(t)
	admin := httptest.NewServer(c.adminHandler(t.Context()))
	defer admin.Close()
	get := func(path string) string {
		resp, err := http.Get(admin.URL + path)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, err := io.ReadAll(resp.Body)
		if err != nil || resp.StatusCode != http.StatusOK {
			t.Fatalf("%s: %s %s %v", path, resp.Status, body, err)
		}
		return string(body)
	}
	var status struct {
		Tasks []struct {
			Name, State, LastError string
			Lease                  bool
			Failures               *int
		}
	}
	if err := json.Unmarshal([]byte(get("/status")), &status); err != nil {
		t.Fatal(err)
	}
	metrics := get("/metrics")
	if len(status.Tasks) != len(c.group.Status()) {
		t.Errorf("/status has %d tasks of %d", len(status.Tasks), len(c.group.Status()))
	}
	if !strings.Contains(metrics, "\nweir_log_dropped_lines_total 0\n") {
		t.Error("/metrics lacks weir_log_dropped_lines_total")
	}
	for _, s := range status.Tasks {
		if s.State != "standby" || s.Failures == nil || *s.Failures != 0 || s.LastError != "" {
			t.Errorf("%+v", s)
		}
		for _, line := range []string{"weir_controller_task_running{task=\"" + s.Name + "\"} 0\n", "weir_controller_task_failures_total{task=\"" + s.Name + "\"} 0\n"} {
			if !strings.Contains(metrics, line) {
				t.Errorf("/metrics lacks %s", line)
			}
		}
	}
}

func TestAReplicaIsReadyForItsWebhookAndItsFeed(t *testing.T) {
	c := plane(t)
	if ok, why := c.group.Ready(); ok || why != "no certificate yet" {
		t.Errorf("at first: %v, %q", ok, why)
	}
	c.converting.Store(true)
	if ok, why := c.group.Ready(); ok || why != "the cluster is not known yet" {
		t.Errorf("without a feed: %v, %q", ok, why)
	}
	c.feeding.Store(true)
	if ok, why := c.group.Ready(); !ok || why != "" {
		t.Errorf("with both: %v, %q", ok, why)
	}
	c.converting.Store(false)
	if ok, _ := c.group.Ready(); ok {
		t.Error("without the webhook it is ready")
	}
	if c = plane(t, "--conversion-address", "off"); true {
		c.feeding.Store(true)
		if ok, why := c.group.Ready(); !ok {
			t.Errorf("without a webhook: %q", why)
		}
	}
}

// TestATaskListensAgain holds that a wrong address ends the process at once, and a task that begins anew has a socket of its own.
func TestATaskListensAgain(t *testing.T) {
	s, err := open("--feed-address", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	first, err := s.listen()
	if err != nil {
		t.Fatal(err)
	}
	s.address = first.Addr().String()
	if _, err := s.listen(); err == nil || !strings.HasPrefix(err.Error(), "--feed-address: ") {
		t.Errorf("the port is in use: %v", err)
	}
	first.Close()
	second, err := s.listen()
	if err != nil {
		t.Fatal(err)
	}
	second.Close()
	s.close()
	if _, err := open("--feed-address", "127.0.0.1:none"); err == nil {
		t.Error("a port that is none is accepted")
	}
	if s, err = open("--feed-address", "127.0.0.1:0"); err != nil {
		t.Fatal(err)
	}
	address := s.first.Addr().String()
	s.close()
	if again, err := open("--feed-address", address); err != nil {
		t.Errorf("a socket that no task took is left open: %v", err)
	} else {
		again.close()
	}
}

func TestAReplicaThatIsAskedToEndFeedsOnAndDoesNotLead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked, ask := context.WithCancel(t.Context())
		ctx, end := after(asked, 5*time.Second)
		defer end()
		c := &controlPlane{Options: NewOptions(), group: task.NewGroup(slog.New(slog.DiscardHandler), task.Task{
			Name: "leading", Lease: true, Run: func(ctx context.Context) error { <-ctx.Done(); return nil },
		})}
		led := make(chan error)
		go func() { led <- c.stand(ctx, asked) }()
		time.Sleep(time.Hour)
		ask()
		began := time.Now()
		if err := <-led; err != nil || time.Since(began) != 0 || ctx.Err() != nil {
			t.Errorf("led for %s after it was asked to end (%v), error %v", time.Since(began), ctx.Err(), err)
		}
		<-ctx.Done()
		if d := time.Since(began); d != 5*time.Second {
			t.Errorf("ended after %s", d)
		}
		ctx, end = after(t.Context(), time.Hour)
		end()
		<-ctx.Done()
	})
}

func TestAPortThatIsTakenIsAnError(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	for _, o := range []*Options{{feed: taken.Addr().String(), admin: "off"}, {feed: "127.0.0.1:0", admin: taken.Addr().String()}} {
		if s, err := o.listen(http.NotFoundHandler()); s != nil || !errors.Is(err, syscall.EADDRINUSE) {
			t.Errorf("%v, %v", s, err)
		}
	}
}
