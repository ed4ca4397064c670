package controller

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/identity/workload"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/resource"
)

// The bounds of what a sidecar takes that has little to do, of which the second is its own.
const mostResident, mostPrivate = 20_000_000, 10_000_000

// enterPod moves the goroutine of the test into a network namespace of a pod. All of 10.96.0.0/16 is local there, so that the
// addresses of Services lead somewhere before they are redirected.
func enterPod(t *testing.T) {
	t.Helper()
	runtime.LockOSThread() // and never unlocked: the thread ends with the test's goroutine
	if err := syscall.Unshare(syscall.CLONE_NEWNET); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"link", "set", "lo", "up"}, {"address", "add", "10.96.0.1/16", "dev", "lo"}} {
		if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
			t.Fatalf("ip %v: %v\n%s", args, err, out)
		}
	}
}

// listen listens in the pod, and serves each connection until the test ends.
func listen(t *testing.T, address string, serve func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	var mu sync.Mutex
	open, over := map[net.Conn]bool{}, false
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			if open[c] = true; over {
				c.Close()
			}
			mu.Unlock()
			all.Go(func() {
				serve(c)
				c.Close()
				mu.Lock()
				defer mu.Unlock()
				delete(open, c)
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		over = true
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return l.Addr().String()
}

// TestASidecarOfALargeMeshIsSmall runs the program that sidecars run, behind its redirect in a network namespace, connected to
// a controller of 5,000 Services with 20,000 pods, of which it uses three, and looks at what it takes.
func TestASidecarOfALargeMeshIsSmall(t *testing.T) {
	switch _, err := exec.LookPath("ip"); {
	case testing.Short():
		t.Skip("builds the program")
	case os.Getuid() != 0 || err != nil:
		t.Skip("only root may make network namespaces, with ip")
	}
	dir := t.TempDir()
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // the sidecar's user is another
		t.Fatal(err)
	}
	program := filepath.Join(dir, "weir-proxy")
	build := exec.Command("go", "build", "-trimpath", "-tags", "grpcnotrace", "-ldflags", "-s -w", "-o", program, "../../cmd/weir-proxy")
	build.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}

	signer, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	issuer := workload.Issuer{TrustDomain: "cluster.local", Authority: func() *identity.Authority { return signer }, Attest: func(context.Context, string) (*workload.Pod, error) {
		return &workload.Pod{Namespace: meshNamespace(0), Name: "p0", UID: "u", Account: "s0"}, nil
	}}
	c := meshed(t)
	c.feeds.Sign = issuer.For
	f := fleetOf(t, c)
	cluster := largeMesh()
	const used = 3
	http8080, port := "http", int32(8080)
	at := func(i int) string { return fmt.Sprintf("10.96.200.%d", i+1) }
	for i := range used { // without sidecars
		meta := metav1.ObjectMeta{Namespace: "used", Name: fmt.Sprint("u", i)}
		slice := &discoveryv1.EndpointSlice{ObjectMeta: meta, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &http8080, Port: &port}}, Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"10.96.255.1"}}}}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: meta.Name}
		cluster.Put(resource.Adopt(dialect.Kinds(), slice))
		cluster.Put(resource.Adopt(dialect.Kinds(), &corev1.Service{ObjectMeta: meta, Spec: corev1.ServiceSpec{ClusterIP: at(i), Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}}))
	}
	r, err := f.plane.translation().Translate(cluster.Set())
	if err != nil {
		t.Fatal(err)
	}
	f.know(r.Sidecars)

	enterPod(t)
	listen(t, "10.96.255.1:8080", func(c net.Conn) {
		for in := bufio.NewReader(c); ; {
			if _, err := http.ReadRequest(in); err != nil {
				return
			}
			io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi")
		}
	})
	controller := listen(t, "127.0.0.1:0", func(c net.Conn) {
		out, err := net.Dial("tcp", f.address)
		if err != nil {
			t.Error(err)
			return
		}
		go func() { io.Copy(out, c); out.Close() }()
		io.Copy(c, out)
		out.Close()
	})
	if out, err := exec.Command(program, "redirect").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	token := filepath.Join(dir, "token")
	f.file(token, meshNamespace(0)+"/p0")
	for _, path := range []string{token, f.ca} {
		if err := os.Chown(path, 15000, 15000); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(filepath.Dir(f.ca), 0o755); err != nil {
		t.Fatal(err)
	}
	log := &strings.Builder{}
	cmd := exec.Command(program, "sidecar", "--pod-namespace", meshNamespace(0), "--pod-name", "p0", "--pod-ips", "10.96.254.1", "--permissive", "--admin", "127.0.0.1:15021",
		"--controller", strings.Replace(controller, "127.0.0.1", "localhost", 1), "--ca-file", f.ca, "--token-file", token)
	cmd.Stderr, cmd.SysProcAttr = log, &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 15000, Gid: 15000}}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		cmd.Process.Signal(os.Interrupt)
		if err := cmd.Wait(); err != nil || t.Failed() {
			t.Errorf("%v\n%s", err, log)
		}
	}()

	// ask sends requests over one connection, in this thread, which is in the pod.
	ask := func(to, path string, n int) (status int, took time.Duration) {
		start := time.Now()
		c, err := net.DialTimeout("tcp", to, time.Second)
		if err != nil {
			return 0, 0
		}
		defer c.Close()
		c.SetDeadline(time.Now().Add(time.Minute))
		in := bufio.NewReader(c)
		for range n {
			fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", path, to)
			answer, err := http.ReadResponse(in, nil)
			if err != nil {
				return 0, 0
			}
			io.Copy(io.Discard, answer.Body)
			status = answer.StatusCode
		}
		return status, time.Since(start)
	}
	f.until("the sidecar is ready", func() bool { status, _ := ask("127.0.0.1:15021", "/readyz", 1); return status == 200 })
	resident, private := peertest.Memory(t, cmd.Process.Pid)
	t.Logf("when it has begun: resident %d KiB, private %d KiB", resident>>10, private>>10)
	f.until("the start is over, and its memory given back", func() bool {
		resident, private = peertest.Memory(t, cmd.Process.Pid)
		return resident < mostResident/2
	})
	t.Logf("before it is used: resident %d KiB, private %d KiB", resident>>10, private>>10)
	for i := range used {
		first, took := ask(at(i)+":80", "/", 1)
		again, known := ask(at(i)+":80", "/", 1)
		if kept, _ := ask(at(i)+":80", "/", 500); first != 200 || again != 200 || kept != 200 {
			t.Errorf("Service %d: %d, %d, %d", i, first, again, kept)
		}
		t.Logf("the first request takes %s, one over another connection %s", took, known)
	}
	resident, private = peertest.Memory(t, cmd.Process.Pid)
	t.Logf("resident %d KiB, private %d KiB", resident>>10, private>>10)
	if resident > mostResident || private > mostPrivate {
		t.Errorf("resident %d bytes, private %d, want at most %d and %d", resident, private, mostResident, mostPrivate)
	}
}
