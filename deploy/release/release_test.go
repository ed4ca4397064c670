package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	cdx "github.com/CycloneDX/cyclonedx-go"
	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// program builds a binary.
func program(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name)
	cmd := exec.Command("go", "build", "-C", "../..", "-trimpath", "-o", path, "./cmd/"+name)
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return path
}

// TestSBOMNamesWhatTheBinaryHolds compares it with what the go command says of the binary.
func TestSBOMNamesWhatTheBinaryHolds(t *testing.T) {
	binary := program(t, "weir")
	data, err := sbom(binary)
	if err != nil {
		t.Fatal(err)
	}
	var bom cdx.BOM
	if err := cdx.NewBOMDecoder(bytes.NewReader(data), cdx.BOMFileFormatJSON).Decode(&bom); err != nil {
		t.Fatal(err)
	}
	var have []string
	for _, c := range *bom.Components {
		line := c.Name + " " + c.Version
		if c.Properties != nil {
			line += " " + (*c.Properties)[0].Value
		}
		have = append(have, line)
	}
	out, err := exec.Command("go", "version", "-m", binary).Output()
	if err != nil {
		t.Fatal(err)
	}
	first, _, _ := strings.Cut(string(out), "\n")
	want := []string{"std " + strings.TrimPrefix(first[strings.LastIndex(first, " ")+1:], "go")}
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)\t(\S+)$`).FindAllStringSubmatch(string(out), -1) {
		want = append(want, strings.Join(m[1:], " "))
	}
	if len(want) < 10 || !slices.Equal(have, want) {
		t.Errorf("the list has %q,\nthe binary %q", have, want)
	}
	if again, err := sbom(binary); err != nil || !bytes.Equal(data, again) {
		t.Errorf("the second time it differs, %v", err)
	}
}

// TestImageIsTheSameAgain makes it from the same binary under another name.
func TestImageIsTheSameAgain(t *testing.T) {
	binary := program(t, "weir")
	first, err := image([]string{binary})
	if err != nil {
		t.Fatal(err)
	}
	other := filepath.Join(t.TempDir(), "other")
	data, err := os.ReadFile(binary)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(other, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if second, err := image([]string{other}); err != nil || !bytes.Equal(first, second) {
		t.Errorf("the images differ, %v", err)
	}
}

// TestTheProxysImageHoldsOneProgram lists its files, and finds nothing of Kubernetes in the program.
func TestTheProxysImageHoldsOneProgram(t *testing.T) {
	binary := program(t, proxyName)
	data, err := image([]string{binary})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	config := unpack(t, data, dir)
	var have []string
	err = filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			have = append(have, strings.TrimPrefix(path, dir))
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"/etc/group", "/etc/passwd", "/etc/ssl/certs/ca-certificates.crt", "/weir-proxy"}; !slices.Equal(have, want) {
		t.Errorf("it has %q, want %q", have, want)
	}
	if c := config.Config; c.User != user || !slices.Equal(c.Entrypoint, []string{"/weir-proxy"}) || len(c.Cmd) != 0 ||
		c.Labels["org.opencontainers.image.title"] != "weir-proxy" {
		t.Errorf("%+v", c)
	}
	b, err := readBuild(filepath.Join(dir, "weir-proxy"))
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range b.Deps {
		if strings.HasPrefix(m.Path, "k8s.io/") || strings.HasPrefix(m.Path, "sigs.k8s.io/") {
			t.Errorf("%s is in it", m.Path)
		}
	}
	if _, err := image([]string{binary, program(t, "weir")}); err == nil || !strings.Contains(err.Error(), "an image holds one program") {
		t.Errorf("an image of two programs: %v", err)
	}
}

// unpack takes an image apart as a runtime does: its configuration, and its files below a folder.
func unpack(t *testing.T, data []byte, dir string) (config v1.ConfigFile) {
	t.Helper()
	files := map[string][]byte{}
	each(t, bytes.NewReader(data), func(h *tar.Header, data []byte) { files[h.Name] = data })
	read := func(digest v1.Hash, v any) []byte {
		blob := files["blobs/sha256/"+digest.Hex]
		if sum, _, err := v1.SHA256(bytes.NewReader(blob)); err != nil || sum != digest {
			t.Fatalf("%s holds %s, %v", digest, sum, err)
		}
		if v != nil {
			if err := json.Unmarshal(blob, v); err != nil {
				t.Fatal(err)
			}
		}
		return blob
	}
	var index, of v1.IndexManifest
	if err := json.Unmarshal(files["index.json"], &index); err != nil || len(index.Manifests) != 1 {
		t.Fatalf("%d entries, %v", len(index.Manifests), err)
	}
	read(index.Manifests[0].Digest, &of)
	var manifest v1.Manifest
	read(of.Manifests[0].Digest, &manifest)
	read(manifest.Config.Digest, &config)
	for _, l := range manifest.Layers {
		z, err := gzip.NewReader(bytes.NewReader(read(l.Digest, nil)))
		if err != nil {
			t.Fatal(err)
		}
		each(t, z, func(h *tar.Header, data []byte) {
			path := filepath.Join(dir, h.Name)
			if h.Uid != 0 || h.Gid != 0 || h.Mode&0o022 != 0 {
				t.Errorf("%s belongs to %d:%d with mode %o: others may write", h.Name, h.Uid, h.Gid, h.Mode)
			}
			if h.Typeflag == tar.TypeDir {
				err = os.MkdirAll(path, 0o755)
			} else {
				err = os.WriteFile(path, data, os.FileMode(h.Mode))
			}
			if err != nil {
				t.Fatal(err)
			}
		})
	}
	return config
}

func each(t *testing.T, r io.Reader, f func(*tar.Header, []byte)) {
	t.Helper()
	for files := tar.NewReader(r); ; {
		h, err := files.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		f(h, data)
	}
}

const routes = `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata:
  name: edge
spec:
  gatewayClassName: weir
  listeners:
  - name: http
    port: %d
    protocol: HTTP
---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata:
  name: shop
spec:
  parentRefs:
  - name: edge
  rules:
  - backendRefs:
    - name: shop
      port: 80
---
apiVersion: v1
kind: Service
metadata:
  name: shop
spec:
  type: ExternalName
  externalName: 127.0.0.1
  ports:
  - port: 80
    targetPort: %s
`

// TestImageRunsWithoutPrivileges sends a request through the image in a container.
func TestImageRunsWithoutPrivileges(t *testing.T) {
	site := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "through") }))
	defer site.Close()
	backend, err := url.Parse(site.URL)
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	folder := reachable(t)
	if err := os.WriteFile(filepath.Join(folder, "routes.yaml"), fmt.Appendf(nil, routes, port, backend.Port()), 0o644); err != nil {
		t.Fatal(err)
	}
	contain(t, "weir", nil, []string{"--admin", "off"}, []mount{{"/etc/weir", "bind", folder, []string{"bind", "ro"}}}, func() error {
		return answers(fmt.Sprintf("http://127.0.0.1:%d/", port), "through")
	})
}

// TestTheProxysImageRunsAsItsPodDoes gives it the arguments that pods have (internal/kube/infra), without a controller that answers.
func TestTheProxysImageRunsAsItsPodDoes(t *testing.T) {
	golden, err := os.ReadFile("../../internal/kube/infra/testdata/default.golden")
	if err != nil {
		t.Fatal(err)
	}
	found := regexp.MustCompile(`(?m)^      - args:\n((?:        - .+\n)+)`).FindStringSubmatch(string(golden))
	if found == nil {
		t.Fatal("the golden file has no arguments")
	}
	var args []string
	for line := range strings.Lines(found[1]) {
		args = append(args, strings.TrimSpace(strings.TrimPrefix(line, "        - ")))
	}
	if len(args) < 5 || args[0] != "proxy" {
		t.Fatalf("the arguments are %q", args)
	}
	port := freePort(t)
	args = append(args, fmt.Sprintf("--controller=127.0.0.1:%d", freePort(t)), fmt.Sprintf("--admin=127.0.0.1:%d", port), "--drain-delay=0s")

	site := httptest.NewTLSServer(nil) // for a certificate
	defer site.Close()
	folder := reachable(t)
	for name, data := range map[string][]byte{
		"ca.crt": pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: site.Certificate().Raw}), "token": []byte("token"),
	} {
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	mounts := []mount{
		{"/var/run/weir/ca", "bind", folder, []string{"bind", "ro"}},
		{"/var/run/weir/token", "bind", folder, []string{"bind", "ro"}},
		{"/var/lib/weir", "tmpfs", "tmpfs", []string{"nosuid", "nodev", "uid=65532", "gid=65532", "mode=0700"}},
	}
	contain(t, proxyName, args, nil, mounts, func() error { return answers(fmt.Sprintf("http://127.0.0.1:%d/healthz", port), "") })
}

// answers is nil if a URL does, with status 200, and with the body if that is not empty.
func answers(url, body string) error {
	resp, err := http.Get(url)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	got, err := io.ReadAll(resp.Body)
	if err == nil && (resp.StatusCode != 200 || body != "" && string(got) != body) {
		err = fmt.Errorf("status %d, %q", resp.StatusCode, got)
	}
	return err
}

// reachable is a temporary folder that users without privileges get to.
func reachable(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for path := dir; path != "/"; path = filepath.Dir(path) {
		if err := os.Chmod(path, 0o755); err != nil {
			break
		}
		if filepath.Dir(path) == os.TempDir() {
			break
		}
	}
	return dir
}

// mount is one of the runtime specification.
type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options"`
}

// contain runs a program's image with runc until it is ready, and stops it: as its own user, without any capability, on a root file
// system that cannot be written, with nothing else mounted but what is given and what the kernel gives. The image's own arguments stand
// where args are nil; more follow.
func contain(t *testing.T, name string, args, more []string, mounts []mount, ready func() error) {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("containers of the system are made by root")
	}
	runc, err := exec.LookPath("runc")
	if err != nil {
		t.Fatal("runc is missing: make test-release installs it")
	}
	data, err := image([]string{program(t, name)})
	if err != nil {
		t.Fatal(err)
	}
	dir := reachable(t)
	config := unpack(t, data, filepath.Join(dir, "rootfs"))
	if config.Config.User != user {
		t.Fatalf("user %q", config.Config.User)
	}
	for _, m := range mounts { // a root that cannot be written has to have the places before
		if err := os.MkdirAll(filepath.Join(dir, "rootfs", m.Destination), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if args == nil {
		args = config.Config.Cmd
	}
	spec, err := json.Marshal(map[string]any{
		"ociVersion": "1.0.2",
		"process": map[string]any{
			"user": map[string]int{"uid": 65532, "gid": 65532}, "args": slices.Concat(config.Config.Entrypoint, args, more),
			"cwd": config.Config.WorkingDir, "capabilities": map[string]any{}, "noNewPrivileges": true,
		},
		"root":   map[string]any{"path": "rootfs", "readonly": true},
		"mounts": append([]mount{{"/proc", "proc", "proc", []string{"nosuid", "noexec", "nodev"}}}, mounts...),
		"linux":  map[string]any{"namespaces": []map[string]string{{"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"}}},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), spec, 0o600); err != nil {
		t.Fatal(err)
	}
	container := fmt.Sprintf("%s-test-%d", name, os.Getpid())
	root := filepath.Join(dir, "state")
	var log bytes.Buffer
	cmd := exec.Command(runc, "--root", root, "run", "--bundle", dir, container)
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	defer func() {
		exec.Command(runc, "--root", root, "kill", container, "TERM").Run()
		select {
		case err := <-ended:
			if err != nil || !strings.Contains(log.String(), "msg=stopped") {
				t.Errorf("it ended with %v\n%s", err, log.String())
			}
		case <-time.After(30 * time.Second):
			t.Error("it did not end")
			exec.Command(runc, "--root", root, "kill", container, "KILL").Run()
			<-ended
		}
		exec.Command(runc, "--root", root, "delete", "--force", container).Run()
	}()

	for deadline := time.Now().Add(30 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		err := ready()
		if err == nil {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("no answer: %v", err)
		}
	}
	var state struct{ Pid int }
	out, err := exec.Command(runc, "--root", root, "state", container).Output()
	if err != nil || json.Unmarshal(out, &state) != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", state.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{
		"Uid:\t65532\t65532\t65532\t65532", "Gid:\t65532\t65532\t65532\t65532", "CapEff:\t0000000000000000", "CapPrm:\t0000000000000000",
		"CapBnd:\t0000000000000000", "NoNewPrivs:\t1",
	} {
		if !strings.Contains(string(status), want) {
			t.Errorf("the process is not %q:\n%s", want, status)
		}
	}
	mounted, err := os.ReadFile(fmt.Sprintf("/proc/%d/mounts", state.Pid))
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(mounted)) {
		f := strings.Fields(line)
		given := slices.ContainsFunc(mounts, func(m mount) bool { return m.Destination == f[1] && m.Type == "tmpfs" })
		if f[1] != "/proc" && !given && !slices.Contains(strings.Split(f[3], ","), "ro") {
			t.Errorf("can be written: %s", line)
		}
	}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}
