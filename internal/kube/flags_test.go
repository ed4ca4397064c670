package kube

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"
)

// TestFlagsAreThoseOfKubectl holds what each flag makes of a configuration.
func TestFlagsAreThoseOfKubectl(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "kubeconfig")
	if err := os.WriteFile(file, []byte(`{"apiVersion": "v1", "kind": "Config", "current-context": "a",
		"clusters": [{"name": "a", "cluster": {"server": "https://a.example:6443"}}], "users": [{"name": "u", "user": {"token": "of-file"}}],
		"contexts": [{"name": "a", "context": {"cluster": "a", "user": "u", "namespace": "shop"}}]}`), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("KUBECONFIG", filepath.Join(dir, "none"))
	t.Setenv("HOME", dir)
	parse := func(args ...string) *Flags {
		t.Helper()
		k, f := &Flags{}, pflag.NewFlagSet("x", pflag.ContinueOnError)
		k.Flags(f)
		if names := k.User(f); len(names) != 7 {
			t.Errorf("flags %v", names)
		}
		if err := f.Parse(args); err != nil {
			t.Fatal(err)
		}
		return k
	}
	c, err := parse("--kubeconfig", file, "--as", "bob", "--as-group", "dev", "--as-group", "ops", "--token", "given", "-s", "https://b.example", "--request-timeout", "7s",
		"--insecure-skip-tls-verify").config()
	if err != nil {
		t.Fatal(err)
	}
	if c.Impersonate.UserName != "bob" || strings.Join(c.Impersonate.Groups, " ") != "dev ops" || c.BearerToken != "given" || c.Host != "https://b.example" ||
		c.Timeout != 7*time.Second || !c.Insecure {
		t.Errorf("%+v", c)
	}
	c, err = parse("--kubeconfig", file).config()
	if err != nil || c.Impersonate.UserName != "" || c.BearerToken != "of-file" || c.Host != "https://a.example:6443" || c.Timeout != 0 || c.Insecure {
		t.Errorf("%v: %+v", err, c)
	}
	if c, err = parse("--server", "http://127.0.0.1:8001").config(); err != nil || c.Host != "http://127.0.0.1:8001" {
		t.Errorf("without a file: %v: %+v", err, c)
	}
	for want, args := range map[string][]string{
		"--as-group says of which group the user of --as is: give both": {"--as-group", "dev"},
		`--request-timeout "soon" is no duration`:                       {"--request-timeout", "soon"},
		`--request-timeout "-1s" is no duration`:                        {"--request-timeout", "-1s"},
		"no such file":                                                  {"--certificate-authority", filepath.Join(dir, "ca")},
	} {
		if _, err := parse(append(args, "--kubeconfig", file)...).Client(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: %v, want %s", args, err, want)
		}
	}
	if k := parse(); k.Given() {
		t.Error("no flag is given")
	} else if _, err := k.Client(); !errors.Is(err, ErrNoCluster) {
		t.Errorf("nothing: %v", err)
	}
	if k := parse("--as", "bob"); !k.Given() {
		t.Error("--as names the cluster that it is for")
	} else if _, err := k.Client(); err == nil || errors.Is(err, ErrNoCluster) {
		t.Errorf("--as without a cluster: %v", err)
	}
}

// TestAPodsAccountIsImpersonatedToo: client-go's loader passes over --as in a pod, which would ask with more rights than
// were meant.
func TestAPodsAccountIsImpersonatedToo(t *testing.T) {
	k, f := &Flags{}, pflag.NewFlagSet("x", pflag.ContinueOnError)
	k.Flags(f)
	k.User(f)
	if err := f.Parse([]string{"--as", "bob", "--as-group", "dev"}); err != nil {
		t.Fatal(err)
	}
	c := &rest.Config{Host: "https://10.0.0.1", BearerToken: "of-the-pod"}
	if k.complete(c, time.Second); c.Impersonate.UserName != "bob" || len(c.Impersonate.Groups) != 1 || c.Timeout != time.Second {
		t.Errorf("%+v", c)
	}
}
