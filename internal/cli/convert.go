package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"
	"github.com/weirmesh/weir/internal/dialect/smi"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

func newConvert(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "convert PATH...",
		Short: "Rewrite TrafficSplits as Gateway API routes",
		Long: `Convert reads SMI TrafficSplits with their HTTPRouteGroups and Services and
prints equivalent HTTPRoutes of the Gateway API: routes with the root Service as
their parent, for service meshes (GAMMA), one for each port of a root. Splits
without effect are left out. A comment above a route says what it cannot express,
or expresses differently; stderr has the number of comments.`,
		Example: `  weir convert splits/ > routes.yaml
  kubectl get trafficsplits,httproutegroups,services -A -o yaml | weir convert -`,
		Args: atLeastOnePath,
	}
	cmd.RunE = func(_ *cobra.Command, args []string) error {
		set, err := resource.Load(s.dialects.Kinds(), args, s.in)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		routes, lost := smi.Convert(set)
		if err := printRoutes(s.out, routes); err != nil {
			return err
		}
		notes := 0
		for _, r := range routes {
			notes += len(r.Notes)
		}
		for _, f := range lost {
			fmt.Fprintln(s.err, visible.Text("weir: "+f.String()))
		}
		fmt.Fprintf(s.err, "weir: %s from %s, %s\n", screen.Count(len(routes), "route"), screen.Count(len(set.TrafficSplits), "split"), screen.Count(notes, "note"))
		if len(lost) > 0 {
			return &exitError{code: exitFailed}
		}
		return nil
	}
	return cmd
}

func printRoutes(w io.Writer, routes []smi.Converted) error {
	for i, r := range routes {
		text, err := marshalYAML(r.Route)
		if err != nil {
			return err
		}
		if i > 0 {
			if _, err := io.WriteString(w, "---\n"); err != nil {
				return err
			}
		}
		for _, n := range r.Notes {
			if _, err := fmt.Fprintf(w, "# %s\n", visible.Text(strings.ReplaceAll(n, "\n", " "))); err != nil {
				return err
			}
		}
		if _, err := w.Write(text); err != nil {
			return err
		}
	}
	return nil
}
