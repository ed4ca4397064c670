package cli

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/screen"
)

// translation adds the flags that say how the files are to be understood.
func translation(s streams, cmd *cobra.Command) *control.Options {
	o := &control.Options{Dialects: s.dialects, Excluded: inject.ExcludedNamespaces("")}
	cmd.Flags().StringSliceVar(&o.Serve, "serve", nil,
		"`services` (NAME or NAMESPACE/NAME, by comma) to serve by their host names on their own ports, without a route; "+
			"default: the roots of TrafficSplits if there is no Gateway; none: no service")
	flags.PathPolicy(cmd.Flags(), &o.PathPolicy)
	flags.ExclusiveHostnames(cmd.Flags(), &o.ExclusiveHostnames)
	flags.AccessDeny(cmd.Flags(), &o.Deny)
	flags.TrustDomain(cmd.Flags(), &o.TrustDomain)
	cmd.Flags().Var(tlsconfig.NewFlag(&o.SubjectNames), tlsconfig.FlagName, tlsconfig.FlagUsage)
	cmd.Flags().Var(flags.NewNetworks(&o.TrustedProxies), "trusted-proxies", "`networks` (addresses or CIDRs, by comma) of proxies in front, which are believed who "+
		"their client is (X-Forwarded-For and the like), for Gateways without the annotation weirmesh.github.io/trusted-proxies")
	return o
}

func newCheck(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check [PATH...]",
		Short: "Validate and lint files, or a cluster with all of Weir in it",
		Long: `Check reads files and folders as "weir run" would and says what is wrong with
them: file and line, object, field, reason and fix. The schemas and CEL rules
of the API server run here too, without an API server. Every finding has a
stable code; "weir check --list-codes" and docs/codes.md explain them.

Files are for "weir run", or manifests for a cluster, as "kustomize build" makes
them. A cluster makes EndpointSlices from selectors, gives each Gateway its own
proxies and parameters, and may have more objects than the files. Check guesses
which of the two the files are for, and says why; --target sets it.

Without PATHs it reads a Kubernetes cluster, with your own rights. It checks all
objects as above, and Weir itself: the installed kinds and their release, the
controller, its lease and rights, the expected objects of each Gateway, proxies
and what they run, whether statuses are up to date, and what roles permit of
Traffic Metrics. It changes nothing.`,
		Example: `  weir check routes/
  kustomize build . | weir check --target cluster -
  weir check -o json --fail-on warning routes/
  weir check -o github routes/                 annotations of a pull request on GitHub
  weir check -o sarif routes/ > weir.sarif     for code scanning
  weir check                                   the cluster of your kubeconfig
  weir check --context prod -n shop            what concerns one namespace`,
		Args: func(cmd *cobra.Command, args []string) error {
			if list, err := cmd.Flags().GetBool("list-codes"); err == nil && list {
				return noArgs(cmd, args)
			}
			return nil
		},
	}
	output := outputFlag(cmd, "text", "json", "github", "sarif")
	in := newInput(s, cmd)
	in.forController(cmd.Flags())
	namespace := cmd.Flags().StringP("namespace", "n", "", "tell only of objects in the `namespace`, and of those in none")
	failOn := flags.NewChoice("error", "warning", "never")
	cmd.Flags().Var(&failOn, "fail-on", "the severity from which on the exit code is 1")
	list := cmd.Flags().Bool("list-codes", false, "list the codes of all findings and what they mean")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *list {
			return listCodes(s.out, codes(s.dialects), output.Value)
		}
		l, err := in.load(cmd.Context(), args, s.in)
		if err != nil {
			return err
		}
		defer l.close()
		if err := l.knows(*namespace); err != nil {
			return err
		}
		r, err := l.check(cmd.Context(), in, *namespace)
		if err != nil {
			return err
		}
		switch output.Value {
		case "json":
			err = process.WriteJSON(s.out, r)
		case "sarif":
			err = process.WriteJSON(s.out, r.sarif(codes(s.dialects)))
		case "github":
			err = r.github(s.out)
		default:
			err = r.print(s.out, screen.Of(s.out))
		}
		if err != nil {
			return err
		}
		if failOn.Value != "never" && r.Errors > 0 || failOn.Value == "warning" && r.Warnings > 0 {
			return &exitError{code: exitFailed}
		}
		return nil
	}
	return cmd
}

// checkReport is the result of check; its JSON form is documented in docs/codes.md.
type checkReport struct {
	// Cluster is left out for files.
	Cluster *inspect.Summary `json:"cluster,omitempty"`
	aim
	Objects  int                `json:"objects"`
	Errors   int                `json:"errors"`
	Warnings int                `json:"warnings"`
	Infos    int                `json:"infos"`
	Findings []resource.Finding `json:"findings"`
}

// check reports on what was read; in a cluster also on what runs.
func (l *look) check(ctx context.Context, in *input, namespace string) (checkReport, error) {
	if l.client == nil {
		r := newCheckReport(l.set, finding.Within(l.Findings, namespace))
		r.aim = l.aim
		return r, nil
	}
	c, findings, err := l.inspect(ctx, in, true)
	if err != nil {
		return checkReport{}, err
	}
	findings = slices.Concat(findings, l.Findings)
	if l.Sidecars != nil {
		findings = append(findings, l.Sidecars.LeftOut()...)
	}
	resource.SortFindings(findings)
	r := newCheckReport(l.set, finding.Within(findings, namespace))
	r.Cluster = c.Summary(namespace)
	return r, nil
}

func newCheckReport(set *resource.Set, findings []resource.Finding) checkReport {
	r := checkReport{Objects: len(set.Origins), Findings: findings}
	if set.Origins == nil {
		for range set.Objects() {
			r.Objects++
		}
	}
	if r.Findings == nil {
		r.Findings = []resource.Finding{}
	}
	for _, f := range r.Findings {
		switch f.Severity {
		case resource.Error:
			r.Errors++
		case resource.Warning:
			r.Warnings++
		default:
			r.Infos++
		}
	}
	return r
}

// print groups the findings by object.
func (r checkReport) print(w io.Writer, on screen.Screen) error {
	var b strings.Builder
	if r.Cluster != nil {
		for _, l := range strings.Split(r.Cluster.String(), "\n") {
			b.WriteString(on.Fold(l, 13) + "\n")
		}
	}
	if line := r.aim.String(); line != "" {
		b.WriteString(line + "\n\n")
	}
	var last string
	for _, f := range r.Findings {
		if head := r.head(f); head != last {
			if last != "" {
				b.WriteByte('\n')
			}
			last = head
			b.WriteString(on.Fold(head, 2) + "\n")
		}
		field := ""
		if f.Ref.Field != "" {
			field = "  " + f.Ref.Field
		}
		b.WriteString(on.Problem(f.Severity.String(), f.Code+field, f.Message, f.Fix))
	}
	if last != "" {
		b.WriteByte('\n')
	}
	b.WriteString(r.summary() + "\n")
	return on.Print(w, b.String())
}

func (r checkReport) summary() string {
	if r.Errors+r.Warnings+r.Infos == 0 {
		return fmt.Sprintf("%s, nothing to complain about", screen.Count(r.Objects, "object"))
	}
	parts := []string{screen.Count(r.Errors, "error"), screen.Count(r.Warnings, "warning")}
	if r.Infos > 0 {
		parts = append(parts, screen.Count(r.Infos, "note"))
	}
	return screen.Count(r.Objects, "object") + ": " + strings.Join(parts, ", ")
}

// head names the object and the place of a finding.
func (r checkReport) head(f resource.Finding) string {
	if head := f.About(); head != "" {
		return head
	}
	if r.Cluster != nil {
		return "(cluster)"
	}
	return "(input)"
}

// codes are those of all findings.
func codes(dialects dialect.List) []resource.Code {
	return slices.Concat(control.Options{Dialects: dialects}.Codes(), inspect.Codes())
}

func listCodes(w io.Writer, codes []resource.Code, format string) error {
	if format == "json" {
		type code struct {
			Code     string            `json:"code"`
			Severity resource.Severity `json:"severity"`
			Title    string            `json:"title"`
			Meaning  string            `json:"meaning"`
			Fix      string            `json:"fix,omitempty"`
		}
		out := make([]code, 0, len(codes))
		for _, c := range codes {
			out = append(out, code{c.ID, c.Severity, c.Title, c.Meaning, c.Fix})
		}
		return process.WriteJSON(w, out)
	}
	slices.SortFunc(codes, func(a, b resource.Code) int { return cmp.Or(len(a.ID)-len(b.ID), strings.Compare(a.ID, b.ID)) })
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range codes {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", c.ID, c.Severity, c.Title)
	}
	return tw.Flush()
}
