// Command weir-proxy is the data plane of one Gateway, like "weir proxy", but without any code for Kubernetes. It runs
// in pods.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/fed"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/visible"
)

const usage = `weir-proxy serves a Gateway of a Kubernetes cluster as its controller says. It is
"weir proxy" in a binary of its own; docs/cli.md lists the flags.

Usage:
  weir-proxy --gateway NAMESPACE/NAME --controller HOST:PORT [flags]

Flags:
`

func main() {
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0, 1 if the proxy failed, 2 if the command line is wrong.
func run(args []string, stdout, stderr io.Writer) int {
	if len(args) > 0 && args[0] == "proxy" {
		args = args[1:] // it may be called as "weir proxy" is
	}
	f := pflag.NewFlagSet("weir-proxy", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	proxy := fed.New()
	proxy.Flags(f)
	flags.NameEnvironment(f)
	version := f.Bool("version", false, "print which build this is")
	err := f.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, usage+strings.TrimRight(f.FlagUsagesWrapped(100), " \n")+"\n")
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
		fmt.Fprintln(stderr, visible.Text("weir-proxy: "+err.Error())+"\nSee \"weir-proxy --help\".")
		return 2
	}
	ctx, stop := process.Interrupted(context.Background())
	defer stop()
	if err := proxy.Run(ctx, stdout, stderr); err != nil {
		fmt.Fprintln(stderr, visible.Text("weir-proxy: "+err.Error()))
		if fault := (*flags.Fault)(nil); errors.As(err, &fault) {
			return 2
		}
		return 1
	}
	return 0
}
