// Paths ("go run ./test/paths") shows how common servers read paths, and that a path policy of weir closes the ways around a rule that this opens. Run, it starts
// the servers that are installed, each with something of its own for /admin, asks them for paths of each kind and prints who
// takes which for one of /admin: the measured part of the table in docs/paths.md. Its tests put some of them behind "weir run".
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"os"
	"os/signal"
	"strings"
)

func main() {
	log.SetFlags(0)
	only := flag.String("only", "", "`servers` to ask, by comma; default: all that are installed")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := table(ctx, os.Stdout, *only); err != nil {
		log.Fatal(err)
	}
}

// across is how many servers a table has.
const across = 7

// table prints tables with a row for each kind of path and a column for each server.
func table(ctx context.Context, w io.Writer, only string) error {
	dir, err := os.MkdirTemp("", "paths")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var names []string
	var columns [][]string
	for _, s := range servers() {
		if only != "" && !strings.Contains(","+only+",", ","+s.name+",") {
			continue
		}
		if missing := s.missing(); missing != "" {
			fmt.Fprintf(w, "%s is left out: there is no %s\n", s.name, missing)
			continue
		}
		address, end, err := s.start(ctx, dir)
		if err != nil {
			fmt.Fprintf(w, "%s is left out: %v\n", s.name, err)
			continue
		}
		c := &client{address: address}
		var column []string
		for _, k := range kinds {
			cell := "closed"
			if a, err := c.get(k.target); err == nil {
				cell = a.cell()
			}
			column = append(column, cell)
		}
		c.close()
		end()
		names, columns = append(names, s.name), append(columns, column)
	}
	for len(names) > 0 {
		n := min(across, len(names))
		fmt.Fprintf(w, "\n| path | %s |\n|---%s|\n", strings.Join(names[:n], " | "), strings.Repeat("|---", n))
		for i, k := range kinds {
			fmt.Fprintf(w, "| `%s`", k.target)
			for _, c := range columns[:n] {
				fmt.Fprintf(w, " | %s", c[i])
			}
			fmt.Fprintln(w, " |")
		}
		names, columns = names[n:], columns[n:]
	}
	return nil
}
