package examples_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/cli"
)

// TestARolloutsStepsSendRequestsAsThePlanSays serves the example with the objects that "weir rollout plan -o yaml" prints
// for each step.
func TestARolloutsStepsSendRequestsAsThePlanSays(t *testing.T) {
	const example = "rollout"
	written, err := os.ReadFile(filepath.Join(example, "rollout.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	services, err := os.ReadFile(filepath.Join(example, "services.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	at := bytes.LastIndex(written, []byte("---\n")) // the route is the last
	for _, step := range []struct {
		number       string
		canary, beta int // of 10 requests without, and with, the header
	}{{"1", 0, 10}, {"2", 2, 2}, {"3", 10, 10}} {
		t.Run("step "+step.number, func(t *testing.T) {
			var out, told bytes.Buffer
			if code := cli.Main([]string{"rollout", "plan", "--step", step.number, "-o", "yaml", example}, strings.NewReader(""), &out, &told); code != 0 || told.Len() > 0 {
				t.Fatalf("exit code %d: %s", code, told.String())
			}
			dir := t.TempDir()
			rollout := bytes.Index(written, []byte("---\n")) // which would be carried out
			for name, text := range map[string][]byte{"rollout.yaml": append(bytes.Clone(written[rollout:at+4]), out.Bytes()...), "services.yaml": services} {
				if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			s := newSetup(t)
			s.listen("shop", 9001)
			s.listen("shop-canary", 9002)
			s.run(dir)
			count := func(headers ...string) (n int) {
				for range 10 {
					if s.get("shop.example", "/", headers...).body == "shop-canary" {
						n++
					}
				}
				return n
			}
			if got, want := [2]int{count(), count("x-beta: yes")}, [2]int{step.canary, step.beta}; got != want {
				t.Errorf("of 10 requests each without and with the header %v went to the canary, want %v", got, want)
			}
			s.weir.Stop()
		})
	}
}

func plan(t *testing.T, args ...string) string {
	t.Helper()
	var out, told bytes.Buffer
	if code := cli.Main(append([]string{"rollout", "plan"}, args...), strings.NewReader(""), &out, &told); code != 0 || told.Len() > 0 {
		t.Fatalf("exit code %d: %s%s", code, out.String(), told.String())
	}
	return out.String()
}

// What Weir does not serve itself is planned as a whole.
func TestRolloutsOfOtherRoutersArePlanned(t *testing.T) {
	for example, lines := range map[string][]string{
		"rollout-istio": {
			"Requests with a path below /api/v2/ and header user_id: 123456 and query parameter name like 123.* go to shop-canary, all others to shop.",
			"exact: \"123456\"", "regex: 123.*", "prefix: /api/v2/", "+        host: shop-canary", "+      weight: 20", "+      weight: 80",
		},
		"rollout-ingress": {
			"Requests with query parameter version: v2 go to shop-canary, all others to shop.",
			"mse.ingress.kubernetes.io/canary-by-query: version", "mse.ingress.kubernetes.io/canary-by-query-value: v2",
			"nginx.ingress.kubernetes.io/canary-weight: \"20\"", "mse.ingress.kubernetes.io/request-header-control-update: |", "gray blue",
		},
	} {
		out := plan(t, example)
		for _, line := range lines {
			if !strings.Contains(out, line) {
				t.Errorf("%s: the plan lacks %q:\n%s", example, line, out)
			}
		}
	}
}

// rollout runs "weir rollout" against the gateway.
func (s *setup) rollout(args ...string) string {
	s.t.Helper()
	var out, told bytes.Buffer
	if code := cli.Main(append(append([]string{"rollout"}, args...), "--admin", s.weir.Admin()), strings.NewReader(""), &out, &told); code != 0 {
		s.t.Fatalf("%v: exit code %d: %s", args, code, told.String())
	}
	return out.String()
}

// awaitStatus waits until the status of the Rollout shop has a text.
func (s *setup) awaitStatus(text string) {
	s.t.Helper()
	for deadline := time.Now().Add(time.Minute); !strings.Contains(s.rollout("status", "shop", "--watch=false"), text); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			s.t.Fatalf("%q does not come:\n%s", text, s.rollout("get", "shop"))
		}
	}
}

// TestARolloutOfASplitIsCarriedOut runs the example, and goes on with its steps.
func TestARolloutOfASplitIsCarriedOut(t *testing.T) {
	s := example(t, "rollout-smi", "shop-stable:9001", "shop-stable-canary:9002")
	defer s.weir.Stop()
	s.awaitStatus("Step 1 of 2 waits")
	beta := 0
	for range 20 {
		if s.get("shop", "/", "x-beta: yes").body == "shop-stable-canary" {
			beta++
		}
	}
	if got := s.count(20, "shop", "/"); got["shop-stable"] != 20 || beta != 20 {
		t.Errorf("without the header %v, with it %d of 20 to the canary", got, beta)
	}
	s.rollout("promote", "shop")
	s.awaitStatus("Step 2 of 2 waits")
	if got := s.count(50, "shop", "/"); got["shop-stable"] != 40 || got["shop-stable-canary"] != 10 {
		t.Errorf("50 requests went to %v, want 40 and 10", got)
	}
}
