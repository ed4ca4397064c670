// Command release makes what goes with a released binary, from the binary alone and the same each time: "release sbom" lists what it was
// built from (CycloneDX), "release image" puts binaries, one for each architecture, into an OCI image, without a daemon or a registry.
package main

import (
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"time"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) == 0 {
		return fmt.Errorf("usage: release sbom|image -o FILE BINARY [BINARY...]")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	out := flags.String("o", "", "the `file` to write")
	if err := flags.Parse(args[1:]); err != nil {
		return err
	}
	if *out == "" || flags.NArg() == 0 {
		return fmt.Errorf("%s: -o FILE and at least one BINARY are needed", args[0])
	}
	var (
		data []byte
		err  error
	)
	switch args[0] {
	case "sbom":
		data, err = sbom(flags.Arg(0))
	case "image":
		data, err = image(flags.Args())
	default:
		return fmt.Errorf("unknown command %q", args[0])
	}
	if err != nil {
		return err
	}
	return os.WriteFile(*out, data, 0o644)
}

// build is what a binary says about itself.
type build struct {
	*buildinfo.BuildInfo
	os, arch string
	revision string    // of the source; empty if the binary does not say
	time     time.Time // of the revision; the epoch if unknown, so that nothing depends on the clock
}

func readBuild(path string) (*build, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return nil, err
	}
	b := &build{BuildInfo: info, time: time.Unix(0, 0).UTC()}
	for _, s := range info.Settings {
		switch s.Key {
		case "GOOS":
			b.os = s.Value
		case "GOARCH":
			b.arch = s.Value
		case "vcs.revision":
			b.revision = s.Value
		case "vcs.time":
			if b.time, err = time.Parse(time.RFC3339, s.Value); err != nil {
				return nil, fmt.Errorf("%s: %w", path, err)
			}
		}
	}
	return b, nil
}
