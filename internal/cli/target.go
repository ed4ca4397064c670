package cli

import (
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
)

func init() { resource.CheckRules(rules.Compile) }

// guess is the value of --target that leaves it to what is written.
const guess = "guess"

// targetFlag adds the flag for the target of files.
func targetFlag(cmd *cobra.Command) *flags.Choice {
	c := flags.NewChoice(guess, string(control.TargetFiles), string(control.TargetCluster))
	cmd.Flags().Var(&c, "target", "what the files are for: weir run (files), or a cluster, which makes EndpointSlices and may have what they refer to")
	return &c
}

// aim is the target of files.
type aim struct {
	Target control.Target `json:"target,omitempty"`
	// By says why, if the target was guessed.
	By string `json:"targetBy,omitempty"`
}

// choose returns the target of a set.
func choose(flag *flags.Choice, set *resource.Set) aim {
	if flag.Value != guess {
		return aim{Target: control.Target(flag.Value)}
	}
	target, why := control.GuessTarget(set)
	return aim{target, why}
}

// String is a line for people; empty for a choice of theirs and for a cluster that was read.
func (a aim) String() string {
	switch {
	case a.By == "":
		return ""
	case a.Target == control.TargetCluster:
		return fmt.Sprintf("target: a cluster, as %s (--target files: weir run)", a.By)
	}
	return fmt.Sprintf("target: weir run, as %s (--target cluster: a cluster)", a.By)
}

// load reads the paths once and translates their objects for their target.
func load(paths []string, stdin io.Reader, options control.Options, target *flags.Choice) (*resource.Set, control.Result, aim, error) {
	set, err := resource.Load(options.Kinds(), paths, stdin)
	if err != nil {
		return nil, control.Result{}, aim{}, &exitError{exitUsage, err}
	}
	meant := choose(target, set)
	options.Calls = true
	result, err := options.For(meant.Target).Translate(set)
	return set, result, meant, err
}
