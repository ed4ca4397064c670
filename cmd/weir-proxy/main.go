// Command weir-proxy is the data plane of one Gateway, like "weir proxy", or of one pod, like "weir sidecar", but without
// any code for Kubernetes. It runs in pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/fed"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/redirect/netfilter"
	"github.com/weirmesh/weir/internal/visible"
)

const usage = `weir-proxy serves a Gateway of a Kubernetes cluster as its controller says. It is
"weir proxy" in a binary of its own; docs/cli.md lists the flags.

Usage:
  weir-proxy --gateway NAMESPACE/NAME --controller HOST:PORT [flags]
  weir-proxy sidecar --controller HOST:PORT [flags]
  weir-proxy redirect [flags]

Flags:
`

const sidecarUsage = fed.SidecarUsage + `

Usage:
  weir-proxy sidecar --controller HOST:PORT --pod-namespace NAMESPACE --pod-name NAME --pod-ips IP,IP [flags]

Flags:
`

const redirectUsage = netfilter.Usage + `

Usage:
  weir-proxy redirect [flags]

Flags:
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0, 1 if the command failed, 2 if the command line is wrong.
func run(args []string, stdout, stderr io.Writer) int {
	lasting := func(run func(context.Context, io.Writer, io.Writer) error) func() error {
		return func() error {
			ctx, stop := process.Interrupted(context.Background())
			defer stop()
			return run(ctx, stdout, stderr)
		}
	}
	name := "proxy"
	if len(args) > 0 && slices.Contains([]string{"proxy", "sidecar", "redirect"}, args[0]) { // "proxy" as for "weir proxy"
		name, args = args[0], args[1:]
	}
	switch name {
	case "redirect":
		var redirect netfilter.Command
		return command{"weir-proxy redirect", redirectUsage, redirect.Flags, func() error { return redirect.Run(stdout) }}.run(args, stdout, stderr)
	case "sidecar":
		sidecar := fed.NewSidecar()
		return command{"weir-proxy sidecar", sidecarUsage, sidecar.Flags, lasting(sidecar.Run)}.run(args, stdout, stderr)
	}
	proxy := fed.New()
	return command{"weir-proxy", usage, proxy.Flags, lasting(proxy.Run)}.run(args, stdout, stderr)
}

// command is one of the program's: its flags, and what it does once they are read.
type command struct {
	name, usage string
	flags       func(*pflag.FlagSet)
	do          func() error
}

func (c command) run(args []string, stdout, stderr io.Writer) int {
	f := pflag.NewFlagSet(c.name, pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	c.flags(f)
	flags.NameEnvironment(f)
	version := f.Bool("version", false, "print which build this is")
	err := f.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, c.usage+strings.TrimRight(f.FlagUsagesWrapped(100), " \n")+"\n")
		return 0
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	case err == nil && *version:
		fmt.Fprintln(stdout, process.Build())
		return 0
	}
	if err == nil {
		err = flags.ReadEnvironment(f)
	}
	if err != nil {
		fmt.Fprintln(stderr, visible.Text(c.name+": "+err.Error())+"\nSee \""+c.name+" --help\".")
		return 2
	}
	if err := c.do(); err != nil {
		fmt.Fprintln(stderr, visible.Text(c.name+": "+err.Error()))
		if fault := (*flags.Fault)(nil); errors.As(err, &fault) {
			return 2
		}
		return 1
	}
	return 0
}
