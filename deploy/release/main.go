// Command release makes what goes with released binaries, from the binaries and the same each time: "release sbom" lists what one was
// built from (CycloneDX), "release image" puts binaries, one for each architecture, into an OCI image, without a daemon or a registry,
// "release dist" makes the files of a release: archives, lists of what is in them, a Homebrew formula, a krew manifest, a kustomization
// and SHA256SUMS.
package main

import (
	"debug/buildinfo"
	"flag"
	"fmt"
	"os"
	"path"
	"strings"
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
		return fmt.Errorf("usage: release sbom|image|dist -o FILE BINARY [BINARY...]")
	}
	flags := flag.NewFlagSet(args[0], flag.ExitOnError)
	out := flags.String("o", "", "the `file` to write; of dist the folder")
	var d dist
	if args[0] == "dist" {
		flags.StringVar(&d.tree, "tree", "../..", "the top `folder` of the repository")
		flags.StringVar(&d.completions, "completions", "", "`folder` with the completions of shells")
		flags.StringVar(&d.url, "url", homepage+"/releases/download", "`URL` below which the files are going to be, in a folder called as the version")
		flags.StringVar(&d.image, "image", "", "the `image` that the kustomization names, with a tag or a digest (default localhost/weir:VERSION)")
		flags.StringVar(&d.proxyImage, "proxy-image", "",
			"the `image` of proxies that it names (default the other with -proxy before the tag; with a digest, the other itself)")
	}
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
	case "dist":
		d.binaries, d.url = flags.Args(), strings.TrimRight(d.url, "/")
		return d.write(*out)
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

// program is the name of its main package's folder, whatever the file is called.
func (b *build) program() string { return path.Base(b.Path) }

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
