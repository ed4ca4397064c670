package main

import (
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestACommandRunsAgainstAFreshAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("other packages start API servers")
	}
	copied := filepath.Join(t.TempDir(), "kubeconfig")
	err := run(t.Context(), []string{"api-server", "--", "sh", "-c", `cp "$KUBECONFIG" "$0"; exit 3`, copied})
	var exit *exec.ExitError
	if !errors.As(err, &exit) || exit.ExitCode() != 3 {
		t.Errorf("the command's own exit code should be that of all: %v", err)
	}
	kubeconfig, err := os.ReadFile(copied)
	if err != nil || !strings.Contains(string(kubeconfig), "https://127.0.0.1:") {
		t.Errorf("kubeconfig %s %v", kubeconfig, err)
	}
}

func TestACommandThatDoesNotExistShowsTheUsage(t *testing.T) {
	for _, args := range [][]string{{}, {"start"}, {"api-server", "-no-such-flag"}} {
		if err := run(t.Context(), args); !errors.Is(err, flag.ErrHelp) {
			t.Errorf("%q: %v", args, err)
		}
	}
	if err := run(t.Context(), []string{"build", "kube-nothing"}); err == nil || !strings.Contains(err.Error(), `"kube-nothing"`) {
		t.Errorf("error %v", err)
	}
}
