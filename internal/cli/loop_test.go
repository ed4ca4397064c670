package cli_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

// tcpLoop are TCP listeners on the ports, each with a route to the next one, and the last to the first. With gateways each has a Gateway of its own.
func tcpLoop(address string, gateways bool, ports ...int) string {
	var b strings.Builder
	listener := func(i int) string { return fmt.Sprintf("{name: l%d, port: %d, protocol: TCP}", i, ports[i]) }
	for i := range ports {
		gateway := "edge"
		if gateways {
			gateway = fmt.Sprint("edge", i)
		}
		if gateways || i == 0 {
			listeners := listener(i)
			for k := 1; !gateways && k < len(ports); k++ {
				listeners += ", " + listener(k)
			}
			fmt.Fprintf(&b, `---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: %s}
spec: {gatewayClassName: weir, listeners: [%s]}
`, gateway, listeners)
		}
		kind := "IPv4"
		if strings.Contains(address, ":") {
			kind = "IPv6"
		}
		fmt.Fprintf(&b, `---
apiVersion: gateway.networking.k8s.io/v1
kind: TCPRoute
metadata: {name: r%[1]d}
spec: {parentRefs: [{name: %[2]s, sectionName: l%[1]d}], rules: [{backendRefs: [{name: s%[1]d, port: 80}]}]}
%[3]s`, i, gateway, sliced(fmt.Sprint("s", i), kind, address, strconv.Itoa(ports[(i+1)%len(ports)])))
	}
	return b.String()
}

// TestAConnectionThatComesBackTakesNoDescriptors leads listeners of TCP to themselves and to each other. With hidden, the files do not show it: listeners
// are moved to other ports than they say, and the dialer alone knows.
func TestAConnectionThatComesBackTakesNoDescriptors(t *testing.T) {
	t.Parallel()
	ports := func() []int { return []int{weirtest.FreePort(t), weirtest.FreePort(t)} }
	for name, c := range map[string]struct {
		address  string
		gateways bool
		hidden   bool
		ports    []int
		args     []string
	}{
		"itself":                          {"127.0.0.1", false, true, ports()[:1], nil},
		"itself, seen in the files":       {"127.0.0.1", false, false, ports()[:1], nil},
		"two Gateways, seen in the files": {"127.0.0.1", true, false, ports(), nil},
		"itself, another address":         {"127.9.9.9", false, true, ports()[:1], nil},
		"itself, mapped":                  {"::ffff:127.0.0.1", false, true, ports()[:1], nil},
		"two listeners":                   {"127.0.0.1", false, true, ports(), []string{"--address", "127.0.0.1"}},
		"two Gateways":                    {"127.0.0.1", true, true, ports(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.write("services.yaml", "")
			files, reason := tcpLoop(c.address, c.gateways, c.ports...), "invalid_config"
			if c.hidden {
				for _, p := range c.ports {
					files = strings.ReplaceAll(files, fmt.Sprintf("port: %d, protocol", p), fmt.Sprintf("port: %d, protocol", p-1))
				}
				c.args, reason = append(c.args, "--port-offset", "1"), "address_refused"
			}
			w.write("route.yaml", files)
			if found := strings.Count(weir("", "check", w.dir).stdout, "WR565"); found != len(c.ports) && !c.hidden || found > 0 && c.hidden {
				t.Errorf("%d findings", found)
			}
			w.run(append(c.args, "--max-tcp-per-service", "50", "--access-log", "stdout")...) // so that a failure takes few, too
			descriptors := func() int {
				all, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", w.weir.Pid()))
				if err != nil {
					t.Skip(err)
				}
				return len(all)
			}
			before := descriptors()
			for range 3 {
				nc, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", c.ports[0]))
				if errors.Is(err, syscall.ECONNRESET) {
					continue // it is reset before it is known here that it is open
				}
				if err != nil {
					t.Fatal(err)
				}
				nc.SetDeadline(time.Now().Add(time.Minute))
				if n, err := io.Copy(io.Discard, nc); n > 0 || err == nil {
					t.Errorf("%d bytes came, %v: want a reset", n, err)
				}
				nc.Close()
			}
			// A connection is logged at its end; those that came back would be more.
			waitUntil(t, func() bool { return strings.Count(w.weir.Stdout(), `"protocol":"TCP"`) >= 3 })
			if n := strings.Count(w.weir.Stdout(), `"protocol":"TCP"`); n != 3 {
				t.Errorf("%d connections, want 3:\n%s", n, w.weir.Stdout())
			}
			if !strings.Contains(w.weir.Stdout(), `"`+reason+`"`) {
				t.Errorf("want the reason %s:\n%s", reason, w.weir.Stdout())
			}
			waitUntil(t, func() bool { return descriptors() <= before+2 }) // the access log and the poller may have been opened since
			w.weir.Stop()
		})
	}
}
