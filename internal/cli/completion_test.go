package cli

import (
	"bytes"
	"io"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// enumerated is how a flag refuses a value of which there are a few.
var enumerated = regexp.MustCompile(`want [a-z0-9-]+((, | or )[a-z0-9-]+)+$`)

func TestFlagsWithFewValuesAreCompleted(t *testing.T) {
	n := 0
	var walk func(*cobra.Command)
	walk = func(cmd *cobra.Command) {
		for _, c := range cmd.Commands() {
			walk(c)
		}
		cmd.Flags().VisitAll(func(f *pflag.Flag) {
			err := f.Value.Set("no such value")
			if err == nil || !enumerated.MatchString(err.Error()) {
				return
			}
			n++
			var out bytes.Buffer
			code := Main(slices.Concat([]string{"__complete"}, strings.Fields(cmd.CommandPath())[1:], []string{"--" + f.Name, ""}), strings.NewReader(""), &out, io.Discard)
			values, directive, _ := strings.Cut(out.String(), ":")
			for _, v := range strings.Fields(values) {
				if err := f.Value.Set(v); err != nil {
					t.Errorf("%s --%s: %q is offered and refused: %v", cmd.CommandPath(), f.Name, v, err)
				}
			}
			if code != 0 || len(strings.Fields(values)) < 2 || !strings.HasPrefix(directive, "4") {
				t.Errorf("%s --%s (%v): completed by %q", cmd.CommandPath(), f.Name, err, out.String())
			}
		})
	}
	walk(newRoot(streams{}))
	if n < 10 {
		t.Errorf("%d flags with few values, want all of them", n)
	}
}
