// Command weir-demo is "weir demo" alone: it is built in a third of the time, as it has nothing of a cluster's client and no CEL in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/demo"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/visible"
)

const usage = `Weir-demo ` + demo.About + `
It is "weir demo" in a program of its own, for a first look.

Usage:
  weir-demo [flags]

Flags:
`

func main() {
	resource.CheckRules(nil)
	os.Exit(run(os.Args[1:], os.Stdout, os.Stderr))
}

// run returns the exit code: 0, 1 if the demo failed, 2 if the command line is wrong.
func run(args []string, stdout, stderr io.Writer) int {
	o := demo.NewOptions()
	f := pflag.NewFlagSet("weir-demo", pflag.ContinueOnError)
	f.SetOutput(io.Discard)
	o.Flags(f)
	err := f.Parse(args)
	switch {
	case errors.Is(err, pflag.ErrHelp):
		fmt.Fprint(stdout, usage+strings.TrimRight(f.FlagUsagesWrapped(100), " \n")+"\n")
		return 0
	case err == nil && f.NArg() > 0:
		err = fmt.Errorf("unexpected argument %q", f.Arg(0))
	}
	if err != nil {
		err = flags.Errorf("%w", err)
	} else {
		ctx, stop := process.Interrupted(context.Background())
		defer stop()
		err = o.Run(ctx, stdout, stderr)
	}
	if err == nil {
		return 0
	}
	fmt.Fprintln(stderr, visible.Text("weir-demo: "+err.Error()))
	if fault := (*flags.Fault)(nil); errors.As(err, &fault) {
		fmt.Fprintln(stderr, `See "weir-demo --help".`)
		return 2
	}
	return 1
}
