package node

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// SignalContainer sends a signal, such as SIGKILL or SIGSTOP, to the processes of a container, which has the id of its pod's
// status, without the runtime's scheme. Kubelet learns of its end as of any that end by themselves.
func (n *Node) SignalContainer(ctx context.Context, signal, id string) error {
	c := config{Dir: n.dir}
	if out, err := c.ctr(ctx, "tasks", "kill", "--signal", signal, "--all", id).CombinedOutput(); err != nil {
		return fmt.Errorf("send %s to container %q: %w: %s", signal, id, err, bytes.TrimSpace(out))
	}
	return nil
}

// Pause stops the processes of containers for a time, without their knowing.
func (n *Node) Pause(ctx context.Context, d time.Duration, ids []string) (err error) {
	send := func(signal syscall.Signal) error {
		for _, id := range ids {
			pids, err := processes(id)
			if err != nil {
				return err
			}
			for _, pid := range pids {
				if err := syscall.Kill(pid, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
					return err
				}
			}
		}
		return nil
	}
	defer func() { err = errors.Join(err, send(syscall.SIGCONT)) }()
	if err := send(syscall.SIGSTOP); err != nil {
		return err
	}
	return wait(ctx, d)
}

func wait(ctx context.Context, d time.Duration) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(d):
		return nil
	}
}

// Cut drops all packets of the pods that have these containers, or those of a TCP port, in both directions, for a time.
// Connections stay, as those do over a cable that is out.
func (n *Node) Cut(ctx context.Context, d time.Duration, port int, ids []string) (err error) {
	match := ""
	if port > 0 {
		match = fmt.Sprintf("tcp dport %[1]d drop; tcp sport %[1]d", port)
	}
	rules := "table inet cut {\n"
	for _, hook := range []string{"input", "output"} {
		interfaces := map[string]string{"input": "iifname", "output": "oifname"}[hook]
		rules += fmt.Sprintf("chain %s { type filter hook %[1]s priority -300; %s lo accept; %s drop; }\n", hook, interfaces, match)
	}
	rules += "}\n"
	defer func() {
		for _, id := range ids { // also of what was cut before an error, or the end of ctx
			err = errors.Join(err, within(context.WithoutCancel(ctx), id, "delete table inet cut"))
		}
	}()
	for _, id := range ids {
		if err := within(ctx, id, rules); err != nil {
			return err
		}
	}
	return wait(ctx, d)
}

// within has nft carry out commands in the network of a container's pod.
func within(ctx context.Context, id, commands string) error {
	pids, err := processes(id)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, "nsenter", fmt.Sprintf("--net=/proc/%d/ns/net", pids[0]), "--", "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(commands)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("nft in the pod of container %q: %w: %s", id, err, bytes.TrimSpace(out))
	}
	return nil
}

// processes are the numbers of a container's processes on this machine; there is at least one.
func processes(id string) (pids []int, err error) {
	files, err := filepath.Glob("/proc/[0-9]*/cgroup")
	if err != nil {
		return nil, err
	}
	for _, f := range files {
		text, err := os.ReadFile(f)
		if err != nil {
			continue // it has ended
		}
		if !strings.Contains(string(text), id) {
			continue
		}
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(f)))
		if err != nil {
			return nil, err
		}
		pids = append(pids, pid)
	}
	if id == "" || len(pids) == 0 {
		return nil, fmt.Errorf("container %q has no process", id)
	}
	return pids, nil
}
