//go:build unix

// Command soak shows that reloads and drains lose nothing: it runs weir processes in front of real backends, sends checked requests over HTTP/1.1,
// HTTP/2 and gRPC, meanwhile changes everything that can be changed and replaces the processes, and ends with an error if a single request was
// lost or answered wrongly (docs/draining.md).
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"runtime/pprof"
	"syscall"
	"time"
)

func main() {
	o := full
	weir := flag.String("weir", "bin/weir", "the program under test")
	flag.IntVar(&o.requests, "requests", o.requests, "how many requests to send at least; streams' messages are not counted")
	flag.IntVar(&o.reloads, "reloads", o.reloads, "how often to change the configuration")
	flag.IntVar(&o.handovers, "handovers", o.handovers, "how often another process takes over the ports")
	flag.IntVar(&o.rollings, "rollings", o.rollings, "how often to replace both replicas behind a balancer")
	flag.BoolVar(&o.keepLogs, "keep-logs", false, "leave the processes' logs behind")
	profile := flag.String("cpuprofile", "", "file for a profile of this program: the load must not be what is slow")
	flag.Parse()
	if *profile != "" {
		f, err := os.Create(*profile)
		if err == nil {
			err = pprof.StartCPUProfile(f)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, "soak:", err)
			os.Exit(1)
		}
	}
	o.command = func(args ...string) *exec.Cmd { return exec.Command(*weir, args...) }
	o.out, o.progress = os.Stdout, os.Stderr
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, o)
	stop()
	pprof.StopCPUProfile()
	if err != nil {
		fmt.Fprintln(os.Stderr, "soak:", err)
		os.Exit(1)
	}
}

// full is the long form.
var full = options{
	requests: 1_000_000, reloads: 100, handovers: 3, rollings: 2,
	drainTimeout: 10 * time.Second, drainDelay: time.Second, streamLife: 4 * time.Second, endless: 2, width: 4,
}
