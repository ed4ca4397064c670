// Command gendocs writes the generated pages of docs/ and the generated sections of others, or checks with -check that they are up to date.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/weirmesh/weir/internal/cli"
)

func main() {
	check := flag.Bool("check", false, "write nothing, fail if a page is out of date")
	flag.Parse()
	if err := run(flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "gendocs:", err)
		os.Exit(1)
	}
}

func run(dir string, check bool) error {
	pages, err := cli.Program{}.Docs(dir)
	if err != nil {
		return err
	}
	for name, page := range pages {
		path := filepath.Join(dir, name)
		if !check {
			if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
				return err
			}
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if string(have) != page {
			return fmt.Errorf("%s is out of date: run make generate", path)
		}
	}
	return nil
}
