package examples_test

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
