package examples_test

import (
	"errors"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestTheCanaryLoopGoesOnOrRollsBackByTrafficMetrics(t *testing.T) {
	t.Parallel()
	s := newSetup(t)
	var broken atomic.Bool
	s.listen("website-v1", 9001)
	s.listen("website-v2", 9002, func(v2 *service, _ *http.Server) {
		v2.handle = func(w http.ResponseWriter, _ *http.Request) {
			if broken.Load() && len(v2.requests())%3 == 0 {
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}
	})
	dir := s.ports.Copy(t, "canary-loop")
	s.weir = weirtest.Run(t, "--address", "127.0.0.1", dir)
	over := make(chan struct{})
	var load sync.WaitGroup
	load.Go(func() {
		for {
			select {
			case <-over:
				return
			case <-time.After(10 * time.Millisecond):
				req, _ := http.NewRequest(http.MethodGet, "http://"+s.address(8080)+"/", nil)
				req.Host = "website"
				if resp, err := s.client.Do(req); err == nil {
					resp.Body.Close()
				}
			}
		}
	})
	defer load.Wait()
	defer close(over)
	loop := func(weights ...string) (code int, out string) {
		cmd := exec.Command("canary-loop/canary.sh", append([]string{dir}, weights...)...)
		cmd.Env = append(os.Environ(), "WEIR="+weirtest.Path(t), "WEIR_ADMIN="+s.weir.Admin(), "WINDOW=1", "WAIT=60")
		text, err := cmd.CombinedOutput()
		var exit *exec.ExitError
		if err != nil && !errors.As(err, &exit) {
			t.Fatal(err)
		}
		return cmd.ProcessState.ExitCode(), string(text)
	}
	weights := func() string {
		text, err := os.ReadFile(filepath.Join(dir, "split.yaml"))
		if err != nil {
			t.Fatal(err)
		}
		var all []string
		for line := range strings.Lines(string(text)) {
			if _, weight, ok := strings.Cut(line, "weight: "); ok {
				all = append(all, strings.TrimSpace(weight))
			}
		}
		return strings.Join(all, " ")
	}
	code, out := loop("20", "100")
	if code != 0 || weights() != "0 100" || !strings.Contains(out, "website-v2 gets 20 %") || !strings.HasSuffix(out, "done: website-v2 gets 100 %\n") {
		t.Errorf("a good version: exit %d, weights %s\n%s", code, weights(), out)
	}
	broken.Store(true)
	code, out = loop("50", "100")
	if code != 1 || weights() != "100 0" || !strings.Contains(out, "rolled back: ") || !strings.Contains(out, "requests failed") {
		t.Errorf("a broken version: exit %d, weights %s\n%s", code, weights(), out)
	}
}
