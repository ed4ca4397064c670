package cli_test

import (
	"encoding/json"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

func TestAdminEndpointTellsWhatIsServed(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	w.get()
	for path, part := range map[string]string{
		"":                   "/metrics",
		"healthz":            "ok",
		"readyz":             "ready, generation 1",
		"metrics":            `weir_requests_total{backend="default/blue:80",code="200",route="default/all",rule="all"} 1`,
		"config":             `"name": "default/edge/http"`,
		"status":             `"generation": 1`,
		"debug/pprof/":       "goroutine",
		"debug/pprof/symbol": "num_symbols",
	} {
		status, body := w.admin(path)
		// A request is counted once it is answered, which its client may see first.
		for until := time.Now().Add(10 * time.Second); path == "metrics" && !strings.Contains(body, part) && time.Now().Before(until); {
			time.Sleep(10 * time.Millisecond)
			status, body = w.admin(path)
		}
		if status != http.StatusOK || !strings.Contains(body, part) {
			t.Errorf("/%s: %d, want 200 with %q:\n%s", path, status, part, body)
		}
	}
	_, metrics := w.admin("metrics")
	for _, part := range []string{"weir_config_generation 1", `weir_config_reloads_total{result="success"} 1`, "go_goroutines"} {
		if !strings.Contains(metrics, part) {
			t.Errorf("/metrics lacks %q", part)
		}
	}
	if status, _ := w.admin("nothing"); status != http.StatusNotFound {
		t.Errorf("an unknown path: %d, want 404", status)
	}
	resp, err := w.client.Post(w.weir.Admin()+"config", "text/plain", nil)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusMethodNotAllowed {
		t.Errorf("POST: %d, want 405", resp.StatusCode)
	}
}

func TestAdminEndpointRedactsSecrets(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	var ports weirtest.Ports
	w.weir = weirtest.Run(t, ports.Copy(t, examples+"tls"))
	for _, path := range []string{"config", "status"} {
		if _, body := w.admin(path); strings.Contains(body, "PRIVATE KEY") {
			t.Errorf("/%s shows a private key", path)
		}
	}
	if _, body := w.admin("config"); !strings.Contains(body, "[redacted]") {
		t.Error("/config shows no redacted key")
	}
}

func TestAdminEndpointTellsConditionsOfResources(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	_, body := w.admin("status")
	var status struct {
		Statuses []struct {
			Ref     struct{ Kind, Name string }
			Parents []struct {
				Conditions []struct{ Type, Status string }
			}
		}
	}
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		t.Fatal(err)
	}
	accepted := false
	for _, s := range status.Statuses {
		for _, p := range s.Parents {
			for _, c := range p.Conditions {
				accepted = accepted || s.Ref.Kind == "HTTPRoute" && s.Ref.Name == "all" && c.Type == "Accepted" && c.Status == "True"
			}
		}
	}
	if !accepted {
		t.Errorf("/status does not say that the route is accepted:\n%s", body)
	}
}

func TestAdminEndpointRefusesForeignHosts(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.run()
	req, err := http.NewRequest(http.MethodGet, w.weir.Admin()+"config", nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Host = "rebound.example"
	resp, err := w.client.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if resp.StatusCode != http.StatusForbidden {
		t.Errorf("a host that is a name: %d, want 403", resp.StatusCode)
	}
}

func TestAdminEndpointIsReadyWithoutAnyListener(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	for _, name := range []string{"route.yaml", "services.yaml"} {
		if err := os.Remove(w.dir + "/" + name); err != nil {
			t.Fatal(err)
		}
	}
	w.run()
	w.weir.WaitLog("no listeners yet: the files hold no Gateway that could be served, and no TrafficSplit")
	w.write("services.yaml", w.services())
	w.write("route.yaml", w.route("green"))
	waitUntil(t, func() bool { return w.get() == "green" })
}
