package apiserver

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/weirmesh/weir/test/cluster/components"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// options keep what is temporary in a folder of the test, to see that nothing is left in it.
func options(t *testing.T) (Options, string) {
	t.Helper()
	temporary := t.TempDir()
	t.Setenv("TMPDIR", temporary)
	return Options{Cache: components.Cache{Log: os.Stderr}}, temporary
}

func TestAServerServesAndLeavesNothingBehind(t *testing.T) {
	o, temporary := options(t)
	server, err := Start(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	pids := server.Pids()
	if len(pids) != 2 {
		t.Errorf("pids %v", pids)
	}
	manifest := `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"}}`
	configMaps := server.URL + "/api/v1/namespaces/default/configmaps"
	response, err := server.Client().Post(configMaps, "application/json", strings.NewReader(manifest))
	if err != nil {
		t.Fatal(err)
	}
	body, err := io.ReadAll(response.Body)
	response.Body.Close()
	if err != nil || response.StatusCode != http.StatusCreated {
		t.Errorf("create: %s %s %v", response.Status, body, err)
	}
	strangerIsTurnedAway(t, server)
	if err := server.Stop(); err != nil {
		t.Error(err)
	}
	for _, pid := range pids {
		if err := syscall.Kill(pid, 0); !errors.Is(err, syscall.ESRCH) {
			t.Errorf("process %d is left: %v", pid, err)
		}
	}
	empty(t, temporary)
	u, err := url.Parse(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", u.Host)
	if err != nil {
		t.Fatalf("the port is not free: %v", err)
	}
	l.Close()
}

func strangerIsTurnedAway(t *testing.T, server *Server) {
	t.Helper()
	transport := server.Client().Transport.(*http.Transport).Clone()
	transport.TLSClientConfig.Certificates = nil
	defer transport.CloseIdleConnections()
	stranger := &http.Client{Transport: transport}
	response, err := stranger.Get(server.URL + "/api/v1/secrets")
	if err != nil {
		t.Fatal(err)
	}
	response.Body.Close()
	if response.StatusCode != http.StatusForbidden && response.StatusCode != http.StatusUnauthorized {
		t.Errorf("got %s", response.Status)
	}
}

func TestAServerThatFailsTellsWhyAndLeavesNothingBehind(t *testing.T) {
	o, temporary := options(t)
	o.Args = []string{"--no-such-flag"}
	server, err := Start(t.Context(), o)
	if err == nil {
		server.Stop()
		t.Fatal("started")
	}
	if !strings.Contains(err.Error(), "kube-apiserver: exit status 1") || !strings.Contains(err.Error(), "unknown flag: --no-such-flag") {
		t.Errorf("error %v", err)
	}
	empty(t, temporary)
}

func TestAFolderThatWasAskedForIsKept(t *testing.T) {
	o, temporary := options(t)
	o.Dir, o.Args = t.TempDir(), []string{"--no-such-flag"}
	server, err := Start(t.Context(), o)
	if err == nil {
		server.Stop()
		t.Fatal("started")
	}
	if _, err := os.Stat(filepath.Join(o.Dir, "kube-apiserver.log")); err != nil {
		t.Error(err)
	}
	empty(t, temporary)
}

func TestACancelledStartLeavesNothingBehind(t *testing.T) {
	o, temporary := options(t)
	// Once built, a cancelled context stops only the start.
	if _, err := o.Cache.Ensure(t.Context(), components.Etcd, components.APIServer); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	server, err := Start(ctx, o)
	if err == nil {
		server.Stop()
	}
	if !errors.Is(err, context.Canceled) {
		t.Errorf("error %v", err)
	}
	empty(t, temporary)
}

func empty(t *testing.T, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) > 0 {
		t.Errorf("left in %s: %v %v", dir, entries, err)
	}
}
