package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/weirmesh/weir/test/cluster/components"
	"github.com/weirmesh/weir/test/cluster/node"
)

// cluster is what the commands for a whole cluster were given.
type cluster struct {
	cache  *components.Cache
	name   string
	images []string
	weir   string // the program of the image of that name, once it is built
}

// run boots a cluster for one command.
func (c *cluster) run(ctx context.Context, args []string) (err error) {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	c.name = fmt.Sprintf("run-%d", os.Getpid())
	n, err := c.start(ctx, false)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, n.Stop()) }()
	return attended(c.command(ctx, n, args))
}

func (c *cluster) up(ctx context.Context) error {
	dir, err := c.dir()
	if err != nil {
		return err
	}
	if _, err := node.Find(*c.cache, dir); err == nil {
		return fmt.Errorf("cluster %q is up already; its files are in %s", c.name, dir)
	}
	n, err := c.start(ctx, true)
	if err != nil {
		return err
	}
	fmt.Printf("cluster %q is up: KUBECONFIG=%s, for commands run by \"cluster exec\"\n", c.name, n.Kubeconfig())
	return nil
}

func (c *cluster) down() error {
	n, err := c.find()
	if err != nil {
		return err
	}
	return n.Stop()
}

func (c *cluster) restart(ctx context.Context, away time.Duration) error {
	n, err := c.find()
	if err != nil {
		return err
	}
	return n.RestartAPIServer(ctx, away)
}

// kill sends a signal to the processes of containers.
func (c *cluster) kill(ctx context.Context, signal string, containers []string) error {
	n, err := c.find()
	if err != nil {
		return err
	}
	for _, id := range containers {
		if err := n.SignalContainer(ctx, signal, id); err != nil {
			return err
		}
	}
	return nil
}

// pause the processes of containers.
func (c *cluster) pause(ctx context.Context, d time.Duration, containers []string) error {
	n, err := c.find()
	if err != nil {
		return err
	}
	return n.Pause(ctx, d, containers)
}

// cut the networks of pods for a time.
func (c *cluster) cut(ctx context.Context, d time.Duration, port int, containers []string) error {
	n, err := c.find()
	if err != nil {
		return err
	}
	return n.Cut(ctx, d, port, containers)
}

// clock sets the clocks of containers.
func (c *cluster) clock(by time.Duration, containers []string) error {
	if _, err := c.find(); err != nil {
		return err
	}
	for _, id := range containers {
		if err := node.SetClock(id, by); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) exec(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	n, err := c.find()
	if err != nil {
		return err
	}
	return attended(c.command(ctx, n, args))
}

// command is one in the node's network that can find this program too, to ask more of the cluster than its API can do.
func (c *cluster) command(ctx context.Context, n *node.Node, args []string) *exec.Cmd {
	cmd := n.Command(ctx, args[0], args[1:]...)
	if self, err := os.Executable(); err == nil {
		cmd.Env = append(cmd.Env, "WEIR_CLUSTER_PROGRAM="+self, "WEIR_CLUSTER_NAME="+c.name, "WEIR_PROGRAM="+c.weir)
	}
	return cmd
}

func (c *cluster) importImages(ctx context.Context, images []string) error {
	n, err := c.find()
	if err != nil {
		return err
	}
	b, err := newBuilder()
	if err != nil {
		return err
	}
	files, err := b.build(ctx, images, false)
	if err != nil {
		return err
	}
	for _, f := range files {
		if err := n.Import(ctx, f); err != nil {
			return err
		}
	}
	return nil
}

func (c *cluster) start(ctx context.Context, keep bool) (*node.Node, error) {
	dir, err := c.dir()
	if err != nil {
		return nil, err
	}
	images, err := c.build(ctx)
	if err != nil {
		return nil, err
	}
	return node.Start(ctx, node.Options{Cache: *c.cache, Dir: dir, Images: images, Keep: keep, Log: os.Stderr})
}

// build the images of the cluster.
func (c *cluster) build(ctx context.Context) ([]string, error) {
	b, err := newBuilder()
	if err != nil {
		return nil, err
	}
	if slices.Contains(c.images, weirImage) {
		c.weir = b.program(weirName)
	}
	return b.build(ctx, c.images, true)
}

func (c *cluster) find() (*node.Node, error) {
	dir, err := c.dir()
	if err != nil {
		return nil, err
	}
	return node.Find(*c.cache, dir)
}

// dir is where the cluster keeps its files.
func (c *cluster) dir() (string, error) {
	if c.name == "" || strings.ContainsAny(c.name, "/.") {
		return "", fmt.Errorf("%q is no name for a cluster", c.name)
	}
	cache, err := os.UserCacheDir()
	return filepath.Join(cache, "weir", "clusters", c.name), err
}
