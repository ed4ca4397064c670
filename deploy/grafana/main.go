// Command grafana writes Weir's boards for Grafana (docs/dashboards.md) into a folder, or checks with -check that they are
// up to date. What a board shows is in a file of its name, how that becomes Grafana's JSON in json.go, and queries in
// several places in promql.go.
package main

//go:generate go run . .

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"path/filepath"
)

func main() {
	check := flag.Bool("check", false, "write nothing, fail if a board is out of date")
	flag.Parse()
	if err := run(flag.Arg(0), *check); err != nil {
		fmt.Fprintln(os.Stderr, "grafana:", err)
		os.Exit(1)
	}
}

// boards are all there are, in the order in which they link to each other.
func boards() []board { return []board{overview(), route(), workload(), mesh(), rollouts()} }

func run(dir string, check bool) error {
	for _, b := range boards() {
		text, err := b.json()
		if err != nil {
			return err
		}
		path := filepath.Join(dir, b.name+".json")
		if !check {
			if err := os.WriteFile(path, text, 0o644); err != nil {
				return err
			}
			continue
		}
		have, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if !bytes.Equal(have, text) {
			return fmt.Errorf("%s is out of date: run make generate", path)
		}
	}
	return nil
}
