// Command wire holds Weir against malformed and ambiguous HTTP/1.1. Requests written from RFC 9110 and 9112, and thousands of mutations
// of them, go over sockets to "weir run"; each must be refused with the status that the grammar (grammar.go) asks for, or reach the
// backend so that four parsers of other makes (net/http, Node's llhttp, the JDK's, nginx) read the same from Weir's bytes. Malformed
// answers of a backend must become 502 or break off, and end the connection.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
)

// How many mutations there are beside the seeds.
const (
	defaultMutations = 10000
	defaultAnswers   = 1500
)

func main() {
	var opt options
	flag.IntVar(&opt.mutations, "mutations", defaultMutations, "how many mutated requests")
	flag.IntVar(&opt.answers, "answers", defaultAnswers, "how many mutated answers")
	flag.IntVar(&opt.every, "every", 1, "send every `n`th mutation only")
	flag.BoolVar(&opt.slow, "slow", true, "also heads that do not end, which take the timeout of heads")
	flag.StringVar(&opt.weir, "weir", "", "the binary to test; default: built from this tree")
	flag.IntVar(&opt.show, "show", 20, "how many problems to print")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	s, err := run(ctx, opt)
	if s != nil {
		s.report(os.Stdout)
		if err == nil && len(s.problems) > 0 {
			err = fmt.Errorf("%d problems", len(s.problems))
		}
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		fmt.Fprintln(os.Stderr, "wire:", err)
	}
	if err != nil {
		os.Exit(1)
	}
}
