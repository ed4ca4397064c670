// Command cluster builds and runs parts of a real Kubernetes on this machine, for tests and for trying things out.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/weirmesh/weir/test/cluster/apiserver"
	"github.com/weirmesh/weir/test/cluster/components"
	"github.com/weirmesh/weir/test/cluster/node"
	"github.com/weirmesh/weir/test/cluster/scale"
)

const usage = `usage:
  cluster build [-nice N] [COMPONENT...]      build what the cache lacks (default: etcd kube-apiserver)
  cluster api-server [-nice N] [-- CMD...]    run CMD with KUBECONFIG set to a fresh API server's; without CMD, until interrupted
  cluster bench-control -weir PROGRAM [-routes N] [-services N] [-changes N] [-pause D] [-limit D] [-profiles DIR]
                                              measure the control plane over many routes (Linux)
  cluster bench-mesh -weir PROGRAM [-sidecars N] [-services N] [-changes N] [-pause D] [-limit D]
                                              measure the control plane of a mesh (Linux)

A whole cluster with one node and real pods, in namespaces of its own (Linux, root):
  cluster run [-nice N] [-image IMAGE]... -- CMD...    boot one, run CMD in its network, remove it
  cluster up [-nice N] [-name NAME] [-image IMAGE]...  boot one that stays
  cluster down [-name NAME]                            remove it
  cluster exec [-name NAME] -- CMD...                  run CMD in its network, with KUBECONFIG set and kubectl in the path
  cluster restart [-name NAME] [-away D]               stop its API server and start it again, after a time without one
  cluster kill [-name NAME] [-signal S] CONTAINER...   send a signal (SIGKILL) to the processes of containers, named by the ids of their runtime
  cluster pause [-name NAME] -for D CONTAINER...       stop their processes for a time (SIGSTOP)
  cluster cut [-name NAME] -for D [-port P] CONTAINER...  drop the packets of their pods for a time, all or those of a TCP port
  cluster clock [-name NAME] -by D CONTAINER...        set the time of day of their processes forward, or back
  cluster import [-name NAME] IMAGE...                 import images
  cluster images [-image IMAGE]...                     build those that a cluster would import, so that the next one has them
  cluster source flagger|argo-rollouts                 print the folder of its module, which has its manifests

An IMAGE is a file, "weir" (weir:dev and weir-proxy:dev, of this tree), "conformance" (what the Gateway API's conformance suite runs), "mesh" (what its tests of meshes run), "flagger" or "argo-rollouts" (flagger:dev, argo-rollouts:dev, as they are released).
`

func main() {
	node.Main()
	scale.Main()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:])
	stop()
	var exit *exec.ExitError
	switch {
	case errors.As(err, &exit):
		os.Exit(max(1, exit.ExitCode()))
	case errors.Is(err, flag.ErrHelp):
		os.Exit(2)
	case err != nil:
		fmt.Fprintln(os.Stderr, "cluster:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 {
		fmt.Fprint(os.Stderr, usage)
		return flag.ErrHelp
	}
	flags := flag.NewFlagSet(args[0], flag.ContinueOnError)
	flags.Usage = func() { fmt.Fprint(os.Stderr, usage) }
	cache := components.Cache{Log: os.Stderr}
	flags.IntVar(&cache.Nice, "nice", 0, "niceness of builds")
	c := cluster{cache: &cache}
	flags.StringVar(&c.name, "name", "default", "which of several clusters")
	flags.Func("image", "`image` to import", func(image string) error { c.images = append(c.images, image); return nil })
	away := flags.Duration("away", 0, "how long there is no API server")
	send := flags.String("signal", "SIGKILL", "what to send")
	long := flags.Duration("for", 0, "how long processes are stopped, or packets dropped")
	port := flags.Int("port", 0, "the TCP port whose packets are dropped; all with 0")
	by := flags.Duration("by", 0, "by how much clocks differ from the machine's")
	size := scale.Options{Rest: 5 * time.Second}
	services, sidecars := 2000, 0
	if args[0] == "bench-mesh" {
		services, sidecars = 10000, 1000
	}
	flags.StringVar(&size.Weir, "weir", "../../bin/weir", "the program to measure")
	flags.IntVar(&size.Routes, "routes", 10000, "how many HTTPRoutes")
	flags.IntVar(&size.Services, "services", services, "how many Services, each with ten endpoints, or of a mesh with two pods")
	flags.IntVar(&size.Sidecars, "sidecars", sidecars, "how many sidecars of a mesh are simulated")
	flags.IntVar(&size.Changes, "changes", 100, "how many routes, and then endpoints, are changed")
	flags.DurationVar(&size.Pause, "pause", 250*time.Millisecond, "time between changes")
	flags.DurationVar(&size.Limit, "limit", 8*time.Minute, "time after which no further changes are made")
	flags.StringVar(&size.Profiles, "profiles", "", "folder for profiles")
	if err := flags.Parse(args[1:]); err != nil {
		return flag.ErrHelp
	}
	switch args[0] {
	case "bench-control", "bench-mesh":
		size.Cache = cache
		return benchControl(ctx, size)
	case "build":
		return build(ctx, cache, flags.Args())
	case "api-server":
		return apiServer(ctx, cache, flags.Args())
	case "run":
		return c.run(ctx, flags.Args())
	case "up":
		return c.up(ctx)
	case "down":
		return c.down()
	case "exec":
		return c.exec(ctx, flags.Args())
	case "restart":
		return c.restart(ctx, *away)
	case "kill":
		return c.kill(ctx, *send, flags.Args())
	case "pause":
		return c.pause(ctx, *long, flags.Args())
	case "cut":
		return c.cut(ctx, *long, *port, flags.Args())
	case "clock":
		return c.clock(*by, flags.Args())
	case "source":
		return printSource(ctx, flags.Args())
	case "import":
		return c.importImages(ctx, flags.Args())
	case "images":
		_, err := c.build(ctx)
		return err
	}
	flags.Usage()
	return flag.ErrHelp
}

func build(ctx context.Context, cache components.Cache, names []string) error {
	wanted := []components.Component{components.Etcd, components.APIServer}
	if len(names) > 0 {
		wanted = nil
	}
	for _, name := range names {
		c, ok := components.Find(name)
		if !ok {
			return fmt.Errorf("no component %q", name)
		}
		wanted = append(wanted, c)
	}
	programs, err := cache.Ensure(ctx, wanted...)
	if err != nil {
		return err
	}
	for _, c := range wanted {
		fmt.Println(programs.Path(c))
	}
	return nil
}

// printSource prints where manifests of a driver are.
func printSource(ctx context.Context, names []string) error {
	for _, name := range names {
		d, err := findDriver(name)
		if err != nil {
			return err
		}
		dir, err := d.dir(ctx)
		if err != nil {
			return err
		}
		fmt.Println(dir)
	}
	return nil
}

func benchControl(ctx context.Context, o scale.Options) error {
	module, err := source()
	if err != nil {
		return err
	}
	o.Source = filepath.Join(module, "../..")
	result, err := scale.Run(ctx, o)
	if err != nil {
		return err
	}
	if !result.Print(os.Stdout) {
		return errors.New("a goal is missed")
	}
	return nil
}

func apiServer(ctx context.Context, cache components.Cache, command []string) (err error) {
	server, err := apiserver.Start(ctx, apiserver.Options{Cache: cache})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	if len(command) == 0 {
		fmt.Printf("export KUBECONFIG=%s\n", server.Kubeconfig)
		<-ctx.Done()
		return nil
	}
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env = append(os.Environ(), "KUBECONFIG="+server.Kubeconfig)
	return attended(cmd)
}

// attended runs a command of the user's.
func attended(cmd *exec.Cmd) error {
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	// An interrupt from the terminal has reached it as well.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	return cmd.Run()
}
