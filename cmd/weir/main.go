// Command weir is a gateway and traffic layer for HTTP: see "weir help".
package main

import (
	"os"

	"github.com/weirmesh/weir/internal/cli"
)

func main() { os.Exit(cli.Main(cli.Arguments(os.Args), os.Stdin, os.Stdout, os.Stderr)) }
