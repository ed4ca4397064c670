package e2e

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// capture collects what of some texts passes the interfaces of the node, those of its pods among them, but not its loopback: on
// that, the container runtime sends what kubectl exec is told.
type capture struct {
	mu    sync.Mutex
	texts map[string]int // how many packets had each
	all   int
	err   error
}

// startCapture captures until the test ends, and ends it if that fails.
func startCapture(t *testing.T, texts ...string) *capture {
	t.Helper()
	every := uint16(syscall.ETH_P_ALL<<8&0xff00 | syscall.ETH_P_ALL>>8) // in the network's order
	fd, err := syscall.Socket(syscall.AF_PACKET, syscall.SOCK_RAW|syscall.SOCK_CLOEXEC, int(every))
	if err != nil {
		t.Fatal(err)
	}
	tick := syscall.NsecToTimeval((200 * time.Millisecond).Nanoseconds())
	if err := errors.Join(syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &tick), syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 32<<20)); err != nil {
		t.Fatal(err)
	}
	loopback, err := net.InterfaceByName("lo")
	if err != nil {
		t.Fatal(err)
	}
	c := &capture{texts: map[string]int{}}
	for _, text := range texts {
		c.texts[text] = 0
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	t.Cleanup(func() {
		cancel()
		<-done
		syscall.Close(fd)
		if c.err != nil {
			t.Error(c.err)
		}
	})
	go func() {
		defer close(done)
		packet := make([]byte, 1<<18)
		for ctx.Err() == nil {
			n, from, err := syscall.Recvfrom(fd, packet, 0)
			switch {
			case errors.Is(err, syscall.EAGAIN), errors.Is(err, syscall.EINTR):
				continue
			case err != nil:
				c.err = err
				return
			}
			if link, ok := from.(*syscall.SockaddrLinklayer); ok && link.Ifindex == loopback.Index {
				continue
			}
			c.take(packet[:n])
		}
	}()
	return c
}

func (c *capture) take(packet []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.all++
	for text := range c.texts {
		if bytes.Contains(packet, []byte(text)) {
			c.texts[text]++
		}
	}
}

// had is how many packets had a text, and how many there were.
func (c *capture) had(text string) (with, all int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.texts[text], c.all
}

// namesAt are the DNS names of the certificate that is presented at an address, as OpenSSL shows them, by comma. It has no
// certificate itself.
func namesAt(ctx context.Context, address string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, 20*time.Second)
	defer cancel()
	shown, err := exec.CommandContext(ctx, "openssl", "s_client", "-connect", address, "-showcerts").Output()
	begin := bytes.Index(shown, []byte("-----BEGIN CERTIFICATE-----"))
	if begin < 0 {
		return "", fmt.Errorf("openssl s_client: %w: %s", errors.Join(err, errors.New("no certificate")), shown)
	}
	show := exec.CommandContext(ctx, "openssl", "x509", "-noout", "-ext", "subjectAltName")
	show.Stdin = bytes.NewReader(shown[begin:])
	text, err := show.Output()
	if err != nil {
		return "", fmt.Errorf("openssl x509: %w: %s", err, text)
	}
	var names []string
	for _, one := range strings.FieldsFunc(string(text), func(r rune) bool { return r == ',' || r == '\n' }) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(one), "DNS:"); ok {
			names = append(names, name)
		}
	}
	return strings.Join(names, ","), nil
}

// TestTLSConfigsSecurePods has a namespace without the label of the injection and a TLSConfig: its pods have sidecars, names in
// their certificates, and nothing in plain text on the network.
func TestTLSConfigsSecurePods(t *testing.T) {
	t.Parallel()
	w := newWorldNamed(t, "e2e-tlsconfig")
	w.apply(fmt.Sprintf(`
apiVersion: tls.smi-spec.io/v1beta1
kind: TLSConfig
metadata: {name: all}
spec:
  subjectNames: [pay, pay.%s.svc]
  selector: {matchExpressions: [{key: app, operator: In, values: [web, pay]}]}
`, w.namespace))
	w.eventually(func() error { // until the API server asks about the namespace
		const pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: pay, labels: {app: pay}}\nspec: {containers: [{name: a, image: a}]}\n"
		if got := w.kubectl(pod, "create", "--dry-run=server", "--filename=-", "--output=jsonpath={.spec.initContainers[*].name}"); got != "weir-redirect weir-sidecar" {
			return fmt.Errorf("a pod has the init containers %q", got)
		}
		return nil
	})
	w.callers("web", "pay", "bare")
	ip := func(name string) string {
		return w.kubectl("", "get", "pods", "--selector=app="+name, "--output=jsonpath={.items[0].status.podIP}")
	}
	if got := w.kubectl("", "get", "pods", "--selector=app=bare", "--output=jsonpath={.items[0].spec.initContainers[*].name}"); got != "" {
		t.Errorf("a pod that is not selected has the init containers %q", got)
	}
	const secret, plain = "between-two-sidecars-4711", "without-any-sidecar-0815"
	c := startCapture(t, secret, plain)
	for _, call := range []struct{ from, args, want string }{
		{"web", "get http://pay/", "200 pay"},
		{"web", "say pay:9001 " + secret, "pay says " + secret},
		{"web", "say " + ip("pay") + ":9001 " + secret, "pay says " + secret},
		{"web", "say bare:9001 " + plain, "bare says " + plain},
		{"bare", "get http://pay/", "error"},
		{"bare", "get http://" + ip("pay") + ":9001/", "error"},
	} {
		w.eventually(func() error {
			if got := w.call(call.from, strings.Split(call.args, " ")...); !strings.HasPrefix(got, call.want) {
				return fmt.Errorf("%s: %s: %q, want %q", call.from, call.args, got, call.want)
			}
			return nil
		})
	}
	w.eventually(func() error {
		if with, all := c.had(plain); with == 0 {
			return fmt.Errorf("the capture of %d packets misses what goes in plain text", all)
		}
		return nil
	})
	if with, all := c.had(secret); with > 0 {
		t.Errorf("%d of %d packets have in plain text what goes between two sidecars", with, all)
	}
	names := func(want string) {
		t.Helper()
		at := ip("pay") + ":8080"
		w.eventually(func() error {
			if got, err := namesAt(w.Context(), at); err != nil || got != want {
				return fmt.Errorf("the certificate has the names %q, %w, want %q", got, err, want)
			}
			return nil
		})
	}
	names("pay,pay." + w.namespace + ".svc")
	pod := w.kubectl("", "get", "pods", "--selector=app=pay", "--output=name")
	w.kubectl("", "patch", "tlsconfig", "all", "--type=merge", `--patch={"spec":{"subjectNames":["bare","pay"]}}`)
	names("bare,pay") // of the same pod, which goes on
	if now := w.kubectl("", "get", "pods", "--selector=app=pay", "--output=name"); now != pod {
		t.Errorf("the pod was %s, and is %s", pod, now)
	}
	w.eventually(func() error {
		got := w.kubectl("", "get", "tlsconfig", "all", `--output=jsonpath={.status.conditions[?(@.type=="Injected")]}`)
		if !strings.Contains(got, "2 selected, 2 with a sidecar, 2 of these serve") {
			return fmt.Errorf("the condition is %s", got)
		}
		return nil
	})
}
