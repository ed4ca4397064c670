package netfilter

import (
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/redirect"
)

// Command sets the redirect of the pod in which it runs.
type Command struct {
	settings map[string]*string
	dryRun   bool
}

// Usage says what the command does.
const Usage = `Redirect leads the TCP connections of a pod through its sidecar. It runs once, in
a container of the pod with the capability NET_ADMIN, sets table inet weir of
nftables through netlink, in one transaction, reads it back, and says what it
set. It may run again: the table is replaced whole. --dry-run prints the rules as
nft(8) reads them, and needs no capability.`

// Flags adds the command's flags.
func (c *Command) Flags(f *pflag.FlagSet) {
	defaults := redirect.Default()
	c.settings = map[string]*string{}
	for _, s := range redirect.Settings {
		c.settings[s.Name] = f.String(s.Name, s.Value(&defaults), s.About)
	}
	f.BoolVar(&c.dryRun, "dry-run", false, "print the rules, and set nothing")
}

// Run sets the redirect, or prints the rules. A *flags.Fault is a wrong flag.
func (c *Command) Run(out io.Writer) error {
	settings := map[string]string{}
	for name, value := range c.settings {
		settings[name] = *value
	}
	p, err := redirect.ParseSettings(settings, redirect.Default())
	if err != nil {
		return flags.Errorf("--%w", err)
	}
	if c.dryRun {
		_, err := io.WriteString(out, redirect.Text(p.Rules()))
		return err
	}
	n, err := Set(&p)
	if err != nil {
		return fmt.Errorf("set the redirect: %w", err)
	}
	_, err = fmt.Fprintf(out, "%stable inet %s: %d rules set and read back\n", p.Describe(), redirect.Table, n)
	return err
}
