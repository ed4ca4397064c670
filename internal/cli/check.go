package cli

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/kube/inspect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
)

// translation adds the flags that decide how the files are translated.
func translation(cmd *cobra.Command) *control.Options {
	o := &control.Options{}
	cmd.Flags().StringSliceVar(&o.Serve, "serve", nil,
		"`services` (NAME or NAMESPACE/NAME, by comma) to serve by their host names on their own ports, without a route; "+
			"default: the roots of TrafficSplits if there is no Gateway; none: no service")
	flags.PathPolicy(cmd.Flags(), &o.PathPolicy)
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
and what they run, and whether statuses are up to date. It changes nothing.`,
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
	in := newInput(cmd)
	in.forController(cmd.Flags())
	namespace := cmd.Flags().StringP("namespace", "n", "", "tell only of objects in the `namespace`, and of those in none")
	failOn := flags.NewChoice("error", "warning", "never")
	cmd.Flags().Var(&failOn, "fail-on", "the severity from which on the exit code is 1")
	list := cmd.Flags().Bool("list-codes", false, "list the codes of all findings and what they mean")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *list {
			return listCodes(s.out, output.Value)
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
			err = process.WriteJSON(s.out, r.sarif())
		case "github":
			err = r.github(s.out)
		default:
			err = r.print(s.out, screenOf(s.out))
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
	Cluster *clusterSummary `json:"cluster,omitempty"`
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
		r := newCheckReport(l.set, within(l.Findings, namespace))
		r.aim = l.aim
		return r, nil
	}
	c, findings, err := l.inspect(ctx, in, true)
	if err != nil {
		return checkReport{}, err
	}
	findings = slices.Concat(findings, l.Findings)
	resource.SortFindings(findings)
	r := newCheckReport(l.set, within(findings, namespace))
	r.Cluster = summarise(c)
	return r, nil
}

func newCheckReport(set *resource.Set, findings []resource.Finding) checkReport {
	r := checkReport{Objects: len(set.Origins), Findings: findings}
	if set.Origins == nil {
		r.Objects = size(set)
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
func (r checkReport) print(w io.Writer, screen screen) error {
	var b strings.Builder
	if r.Cluster != nil {
		for _, l := range strings.Split(r.Cluster.String(), "\n") {
			b.WriteString(screen.fold(l, 13) + "\n")
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
			b.WriteString(screen.fold(head, 2) + "\n")
		}
		field := ""
		if f.Ref.Field != "" {
			field = "  " + f.Ref.Field
		}
		b.WriteString("  " + screen.in(severityColour(f.Severity), fmt.Sprintf("%-7s", f.Severity)))
		b.WriteString(screen.fold(strings.Repeat(" ", 10)+f.Code+field, 0)[9:] + "\n" + wrap(f.Message, 10, screen.prose()))
		if f.Fix != "" {
			b.WriteString(wrap("fix: "+f.Fix, 10, screen.prose()))
		}
	}
	if last != "" {
		b.WriteByte('\n')
	}
	b.WriteString(r.summary() + "\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func severityColour(s resource.Severity) string {
	if s == resource.Error {
		return red
	}
	return yellow
}

func (r checkReport) summary() string {
	if r.Errors+r.Warnings+r.Infos == 0 {
		return fmt.Sprintf("%s, nothing to complain about", count(r.Objects, "object"))
	}
	parts := []string{count(r.Errors, "error"), count(r.Warnings, "warning")}
	if r.Infos > 0 {
		parts = append(parts, count(r.Infos, "note"))
	}
	return count(r.Objects, "object") + ": " + strings.Join(parts, ", ")
}

// head names the object and the place of a finding.
func (r checkReport) head(f resource.Finding) string {
	if head := findingHead(f); head != "" {
		return head
	}
	if r.Cluster != nil {
		return "(cluster)"
	}
	return "(input)"
}

func findingHead(f resource.Finding) string {
	head := f.Origin.String()
	if name := objectName(f.Ref); name != "" && head != "" {
		return head + "  " + name
	} else if name != "" {
		return name
	}
	return head
}

// objectName is "Kind namespace/name", empty when there is no object.
func objectName(r model.Ref) string { return finding.Object(r) }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}

// wrap breaks text into lines of at most width columns, each indented.
func wrap(text string, indent, width int) string {
	var b strings.Builder
	pad := strings.Repeat(" ", indent)
	column := 0
	for _, word := range strings.Fields(text) {
		switch {
		case column == 0:
			b.WriteString(pad)
			column = indent
		case column+1+utf8.RuneCountInString(word) > width:
			b.WriteString("\n" + pad)
			column = indent
		default:
			b.WriteByte(' ')
			column++
		}
		b.WriteString(word)
		column += utf8.RuneCountInString(word)
	}
	if column > 0 {
		b.WriteByte('\n')
	}
	return b.String()
}

// codes are the codes of all findings.
func codes() []resource.Code { return slices.Concat(control.Codes(), inspect.Codes()) }

func listCodes(w io.Writer, format string) error {
	codes := codes()
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
	slices.SortFunc(codes, func(a, b resource.Code) int { return strings.Compare(a.ID, b.ID) })
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, c := range codes {
		fmt.Fprintf(tw, "%s\t%s\t%s\n", c.ID, c.Severity, c.Title)
	}
	return tw.Flush()
}
