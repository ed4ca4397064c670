package node

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weirmesh/weir/test/cluster/components"
	"github.com/weirmesh/weir/test/cluster/process"
)

const (
	// startTimeout bounds the start once everything is built; ten seconds are usual.
	startTimeout = 3 * time.Minute
	// stopTimeout bounds how long the kernel may take to clear away.
	stopTimeout = 30 * time.Second
	// plugins is where Debian has those of the container network.
	plugins = "/usr/lib/cni"
)

// Programs of a node that are built; the others come from Debian's packages.
func Programs() []components.Component {
	return components.All()
}

// Options of a node.
type Options struct {
	Cache components.Cache
	// Dir keeps the node's files, among them its programs' logs. What is in it is removed.
	Dir string
	// Images are files to import; those named Pause and CoreDNS must be among what they hold.
	Images []string
	// Keep lets the node go on when the process that started it has ended.
	Keep bool
	// Log is told what the node is doing while it starts.
	Log io.Writer
}

// Node is one that is ready.
type Node struct {
	dir      string
	pid      int // of its first process
	programs components.Programs
}

// Start a node. After an error nothing is left but the logs.
func Start(ctx context.Context, o Options) (*Node, error) {
	if err := requirements(); err != nil {
		return nil, err
	}
	programs, err := o.Cache.Ensure(ctx, Programs()...)
	if err != nil {
		return nil, err
	}
	if err := os.RemoveAll(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	c := &config{Dir: o.Dir, Images: o.Images, Cache: components.Cache{Dir: o.Cache.Dir}}
	if err := c.save(); err != nil {
		return nil, err
	}
	log, err := os.Create(c.path("node.log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	process.KeepDescriptors()
	cmd := exec.Command("/proc/self/exe", initCommand, o.Dir)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		Setsid:     true,
	}
	if !o.Keep {
		cmd.SysProcAttr.Pdeathsig = syscall.SIGKILL
	}
	n := &Node{dir: o.Dir, programs: programs}
	ended := make(chan error, 1)
	started := make(chan error, 1)
	go startThread(cmd, started, ended)
	if err := <-started; err != nil {
		return nil, fmt.Errorf("start the node's first process: %w", err)
	}
	n.pid = cmd.Process.Pid
	if err := os.WriteFile(c.path("pid"), []byte(strconv.Itoa(n.pid)), 0o644); err != nil {
		return nil, errors.Join(err, n.kill())
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the node was not ready within %s", startTimeout))
	defer cancel()
	if err := n.await(ctx, o.Log, ended); err != nil {
		return nil, errors.Join(err, n.kill())
	}
	return n, nil
}

// await the node's word that it is ready, passing on what it says.
func (n *Node) await(ctx context.Context, log io.Writer, ended <-chan error) error {
	if log == nil {
		log = io.Discard
	}
	told := 0
	tell := func() []byte {
		text, err := os.ReadFile(filepath.Join(n.dir, "node.log"))
		if err == nil && len(text) > told {
			log.Write(text[told:])
			told = len(text)
		}
		return text
	}
	defer tell()
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		if _, err := os.Stat(filepath.Join(n.dir, "ready")); err == nil {
			return nil
		}
		tell()
		select {
		case err := <-ended:
			return fmt.Errorf("the node ended: %w; logs are in %s", err, n.dir)
		case <-ctx.Done():
			return fmt.Errorf("%w; logs are in %s", context.Cause(ctx), n.dir)
		case <-retry.C:
		}
	}
}

// Find the node that keeps its files in dir.
func Find(cache components.Cache, dir string) (*Node, error) {
	text, err := os.ReadFile(filepath.Join(dir, "pid"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("no cluster runs in %s; start it with \"make cluster-up\"", dir)
	} else if err != nil {
		return nil, err
	}
	pid, err := strconv.Atoi(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Join(dir, "pid"), err)
	}
	// The number may be another process's by now.
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil || !slices.Equal(strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")[1:], []string{initCommand, dir}) {
		return nil, fmt.Errorf("the cluster in %s has ended; start it anew with \"make cluster-up\"", dir)
	}
	programs, err := cache.Ensure(context.Background(), components.Kubectl)
	return &Node{dir: dir, pid: pid, programs: programs}, err
}

// Kubeconfig is the path of a file for the administrator, good inside the node's network.
func (n *Node) Kubeconfig() string { return filepath.Join(n.dir, "kubeconfig") }

// Command is one to be run in the node's network namespace, with KUBECONFIG set and kubectl in the path. Pods, Services
// and addresses of the node can be reached from there.
func (n *Node) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", append([]string{fmt.Sprintf("--net=/proc/%d/ns/net", n.pid), "--", name}, args...)...)
	cmd.Env = append(append(os.Environ(), process.Roomy...), "KUBECONFIG="+n.Kubeconfig(),
		"PATH="+filepath.Dir(n.programs.Path(components.Kubectl))+string(os.PathListSeparator)+os.Getenv("PATH"),
		"WEIR_CLUSTER_DIR="+n.dir)
	return cmd
}

// Import the images that a file holds.
func (n *Node) Import(ctx context.Context, file string) error {
	c := config{Dir: n.dir}
	return c.importImage(ctx, file)
}

// RestartAPIServer stops the API server and starts it again after a time without one, with all that it has stored. It returns when it
// is ready.
func (n *Node) RestartAPIServer(ctx context.Context, away time.Duration) error {
	pid, err := n.boot()
	if err != nil {
		return err
	}
	before, err := n.starts()
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(n.dir, awayFile), []byte(away.String()), 0o644); err != nil {
		return err
	}
	if err := syscall.Kill(pid, restartSignal); err != nil {
		return err
	}
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	for {
		// The file may be being written.
		if now, err := n.starts(); err == nil && now > before {
			return nil
		}
		if zombie(n.pid) {
			return fmt.Errorf("the node has ended; logs are in %s", n.dir)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-retry.C:
		}
	}
}

// starts is how many times the API server was started.
func (n *Node) starts() (int, error) {
	text, err := os.ReadFile(filepath.Join(n.dir, "ready"))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(string(text))
}

// boot is the process that started the node's programs.
func (n *Node) boot() (pid int, err error) {
	// Each thread has children of its own.
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", n.pid))
	if err != nil {
		return 0, err
	}
	for _, t := range threads {
		children, err := os.ReadFile(t)
		if err != nil {
			return 0, err
		}
		for _, child := range strings.Fields(string(children)) {
			line, err := os.ReadFile("/proc/" + child + "/cmdline")
			if err == nil && slices.Contains(strings.Split(string(line), "\x00"), bootCommand) {
				return strconv.Atoi(child)
			}
		}
	}
	return 0, fmt.Errorf("process %d of the node has no child %q", n.pid, bootCommand)
}

// Stop removes the node and what it made.
func (n *Node) Stop() error {
	if err := n.kill(); err != nil {
		return err
	}
	return os.RemoveAll(n.dir)
}

// kill ends the node's first process, with which the kernel ends all others and takes down the namespaces.
func (n *Node) kill() error {
	if err := syscall.Kill(n.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
		return fmt.Errorf("end process %d: %w", n.pid, err)
	}
	limit := time.Now().Add(stopTimeout)
	for ; syscall.Kill(n.pid, 0) == nil && !zombie(n.pid); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(limit) {
			return fmt.Errorf("process %d of the node does not end", n.pid)
		}
	}
	c := config{Dir: n.dir}
	return c.removeGroup(limit)
}

// zombie is true for a process that has ended and waits for its parent to take notice.
func zombie(pid int) bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return true
	}
	_, state, _ := strings.Cut(string(text), ") ")
	return strings.HasPrefix(state, "Z")
}

// requirements says what the machine lacks.
func requirements() error {
	if os.Getuid() != 0 {
		return errors.New("a cluster needs root: it makes namespaces, mounts and cgroups")
	}
	var missing []string
	for _, p := range []struct{ command, pkg string }{
		{"containerd", "containerd"}, {"runc", "runc"}, {"nft", "nftables"}, {"iptables", "iptables"},
		{"conntrack", "conntrack"}, {"ip", "iproute2"}, {"nsenter", "util-linux"},
	} {
		if _, err := exec.LookPath(p.command); err != nil {
			missing = append(missing, p.pkg)
		}
	}
	if _, err := os.Stat(plugins); err != nil {
		missing = append(missing, "containernetworking-plugins")
	}
	if missing != nil {
		return fmt.Errorf("a cluster needs Debian's packages %s; \"make setup-cluster\" installs them", strings.Join(missing, " "))
	}
	return nil
}
