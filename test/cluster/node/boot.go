package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/weirmesh/weir/test/cluster/apiserver"
	"github.com/weirmesh/weir/test/cluster/components"
	"github.com/weirmesh/weir/test/cluster/pki"
	"github.com/weirmesh/weir/test/cluster/process"
)

// machine is a node from the inside.
type machine struct {
	*config
	programs components.Programs
	server   *apiserver.Server
	start    time.Time
	ended    chan error // a program did
}

// boot starts everything, says so, and returns when a program or ctx ends. What was started ends with this process.
func boot(ctx context.Context, dir string) error {
	c, err := load(dir)
	if err != nil {
		return err
	}
	m := &machine{config: c, start: time.Now(), ended: make(chan error, 16)}
	if m.programs, err = c.Cache.Ensure(ctx, Programs()...); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"network", m.network},
		{"containerd", m.containerd},
		{"API server", m.apiServer},
		{"images", m.images},
		{"controllers and node", m.node},
		{"DNS", m.dns},
		{"node ready", m.ready},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
		fmt.Printf("%5.1f s  %s\n", time.Since(m.start).Seconds(), step.what)
	}
	return m.run(ctx)
}

// run goes on until a program or ctx ends. The file "ready" says how many times the API server was started.
func (m *machine) run(ctx context.Context) error {
	restart := make(chan os.Signal, 1)
	signal.Notify(restart, restartSignal)
	defer signal.Stop(restart)
	for starts := 1; ; starts++ {
		if err := os.WriteFile(m.path("ready"), []byte(strconv.Itoa(starts)), 0o644); err != nil {
			return err
		}
		select {
		case err := <-m.ended:
			return err
		case <-ctx.Done():
			return nil
		case <-restart:
		}
		text, err := os.ReadFile(m.path(awayFile))
		if err != nil {
			return err
		}
		away, err := time.ParseDuration(string(text))
		if err != nil {
			return err
		}
		if err := m.server.Restart(ctx, away); err != nil {
			return err
		}
	}
}

// network makes a bridge that pods and the API server's clients can reach the node by. The default route leads to it:
// packets to unknown places die there.
func (m *machine) network(context.Context) error {
	for _, line := range []string{
		"link set lo up",
		"link add node0 type bridge",
		"addr add " + Address + "/24 dev node0",
		"link set node0 up",
		"route add default dev node0",
	} {
		if err := command("ip", strings.Fields(line)...); err != nil {
			return err
		}
	}
	for _, name := range []string{"net/ipv4/ip_forward", "net/ipv4/conf/all/route_localnet", "net/bridge/bridge-nf-call-iptables"} {
		err := os.WriteFile("/proc/sys/"+name, []byte("1"), 0)
		if err != nil && !(errors.Is(err, os.ErrNotExist) && strings.HasPrefix(name, "net/bridge/")) { // not every kernel has the module
			return err
		}
	}
	return os.WriteFile(m.path("resolv.conf"), []byte("nameserver 127.0.0.1\n"), 0o644)
}

func (m *machine) containerd(ctx context.Context) error {
	if err := errors.Join(m.write("containerd.toml"), m.write("pods.conflist", "cni")); err != nil {
		return err
	}
	if err := m.spawn("containerd", "--config", m.path("containerd.toml")); err != nil {
		return err
	}
	return m.until(ctx, func() error { return m.ctr(ctx, "version").Run() })
}

func (m *machine) apiServer(ctx context.Context) error {
	dir := m.path("apiserver")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var err error
	if m.server, err = apiserver.Start(ctx, apiserver.Options{Cache: m.Cache, Dir: dir, Address: net.ParseIP(Address)}); err != nil {
		return err
	}
	return os.Link(m.server.Kubeconfig, m.path("kubeconfig"))
}

func (m *machine) images(ctx context.Context) error {
	for _, file := range m.Images {
		if err := m.importImage(ctx, file); err != nil {
			return err
		}
	}
	return nil
}

// ctr is containerd's own client.
func (c *config) ctr(ctx context.Context, args ...string) *exec.Cmd {
	return exec.CommandContext(ctx, "ctr", append([]string{"--address", c.socket(), "--namespace", "k8s.io"}, args...)...)
}

func (c *config) importImage(ctx context.Context, file string) error {
	if out, err := c.ctr(ctx, "images", "import", "--all-platforms", file).CombinedOutput(); err != nil {
		return fmt.Errorf("import %s: %w: %s", file, err, bytes.TrimSpace(out))
	}
	return nil
}

// node starts what makes objects into containers.
func (m *machine) node(context.Context) error {
	ca := m.server.Authority()
	if err := os.WriteFile(m.path("ca.crt"), ca.Certificate(), 0o644); err != nil {
		return err
	}
	for _, user := range []struct {
		name   string
		common string
		groups []string
	}{
		{"controller-manager", "system:kube-controller-manager", nil},
		{"scheduler", "system:kube-scheduler", nil},
		{"kube-proxy", "system:kube-proxy", nil},
		{"node", "system:node:" + Name, []string{"system:nodes"}},
	} {
		pair, err := ca.Issue(user.common, user.groups, []string{Name}, net.ParseIP(Address), net.IPv4(127, 0, 0, 1))
		if err != nil {
			return err
		}
		if err := m.identity(user.name, pair); err != nil {
			return err
		}
	}
	if err := errors.Join(m.write("kubelet.yaml"), m.write("kube-proxy.yaml"), m.makeGroup()); err != nil {
		return err
	}
	manager, scheduler := m.path("controller-manager.kubeconfig"), m.path("scheduler.kubeconfig")
	return errors.Join(
		m.spawn(m.programs.Path(components.ControllerManager),
			"--kubeconfig="+manager, "--authentication-kubeconfig="+manager, "--authorization-kubeconfig="+manager,
			"--bind-address=127.0.0.1", "--leader-elect=false",
			// Without it the manager makes no pods.
			"--use-service-account-credentials=true",
			"--service-account-private-key-file="+m.server.ServiceAccountKey(), "--root-ca-file="+m.path("ca.crt"),
			"--cluster-cidr="+podRange, "--service-cluster-ip-range="+apiserver.ServiceRange),
		m.spawn(m.programs.Path(components.Scheduler),
			"--kubeconfig="+scheduler, "--authentication-kubeconfig="+scheduler, "--authorization-kubeconfig="+scheduler,
			"--bind-address=127.0.0.1", "--leader-elect=false"),
		m.spawn(m.programs.Path(components.Kubelet),
			"--config="+m.path("kubelet.yaml"), "--kubeconfig="+m.path("node.kubeconfig"), "--hostname-override="+Name,
			"--node-ip="+Address, "--root-dir="+m.path("kubelet"), "--cert-dir="+m.path("kubelet/pki")),
		m.spawn(m.programs.Path(components.Proxy), "--config="+m.path("kube-proxy.yaml")),
		m.spawnAs("balancer", "/proc/self/exe", balancerCommand, m.Dir),
	)
}

// identity writes a certificate, its key and a kubeconfig.
func (m *machine) identity(name string, pair pki.Pair) error {
	kubeconfig, err := m.server.Authority().Kubeconfig(m.server.URL, pair)
	return errors.Join(err,
		os.WriteFile(m.path(name+".crt"), pair.Public, 0o600),
		os.WriteFile(m.path(name+".key"), pair.Private, 0o600),
		os.WriteFile(m.path(name+".kubeconfig"), kubeconfig, 0o600))
}

func (m *machine) dns(ctx context.Context) error {
	if err := m.write("dns.yaml"); err != nil {
		return err
	}
	return m.kubectl(ctx, "apply", "--server-side", "-f", m.path("dns.yaml"))
}

// ready waits for the node and for DNS.
func (m *machine) ready(ctx context.Context) error {
	err := m.until(ctx, func() error { return m.kubectl(ctx, "wait", "--for=condition=Ready", "node/"+Name, "--timeout=5s") })
	if err != nil {
		return err
	}
	return m.until(ctx, func() error {
		return m.kubectl(ctx, "--namespace=kube-system", "rollout", "status", "deployment/coredns", "--timeout=5s")
	})
}

func (m *machine) kubectl(ctx context.Context, args ...string) error {
	args = append([]string{"--kubeconfig=" + m.path("kubeconfig")}, args...)
	out, err := exec.CommandContext(ctx, m.programs.Path(components.Kubectl), args...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("kubectl %s: %w: %s", strings.Join(args[1:], " "), err, bytes.TrimSpace(out))
	}
	return nil
}

// spawn starts a program that the node cannot do without.
func (m *machine) spawn(program string, args ...string) error {
	return m.spawnAs(filepath.Base(program), program, args...)
}

// spawnAs is spawn with a name for the log.
func (m *machine) spawnAs(name, program string, args ...string) error {
	p, err := process.StartIn(process.Roomy, m.path(name+".log"), program, args...)
	if err != nil {
		return err
	}
	go func() { m.ended <- p.Failure() }()
	return nil
}

// until repeats check until it succeeds; what it said last is the error when ctx or a program ends first.
func (m *machine) until(ctx context.Context, check func() error) error {
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		err := check()
		if err == nil {
			return nil
		}
		select {
		case failure := <-m.ended:
			return failure
		case <-ctx.Done():
			return errors.Join(context.Cause(ctx), err)
		case <-retry.C:
		}
	}
}

func command(name string, args ...string) error {
	if out, err := exec.Command(name, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, bytes.TrimSpace(out))
	}
	return nil
}
