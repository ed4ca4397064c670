package cli

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/resource"
)

func newStatus(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "status [PATH]...",
		Short: "Show Gateways and routes: addresses, what is attached and programmed, what is wrong",
		Long: `Status shows the GatewayClasses, Gateways, routes and policies that are Weir's, in
the cluster that kubectl would talk to, by what is written on them; or, with a
PATH, what "weir run" would say of those in files. What is wrong stands behind
each. The exit code is 1 if anything is.`,
		Example: `  weir status
  weir status -o json | jq '.statuses[] | select(.ref.kind == "Gateway")'
  weir status routes/`,
	}
	output := outputFlag(cmd, "text", "json")
	in := inputFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		what, err := in.load(cmd.Context(), args, s.in)
		if err != nil {
			return err
		}
		statuses := what.result.Statuses
		if what.cluster != nil {
			statuses = liveStatuses(what.set, statuses)
		}
		r := newStatusReport(statuses)
		if output.value == "json" {
			err = writeJSON(s.out, r)
		} else {
			err = r.print(s.out)
		}
		if err == nil && r.Wrong > 0 {
			return &exitError{code: exitFailed}
		}
		return err
	}
	return cmd
}

// statusReport is the JSON form of what status shows.
type statusReport struct {
	// Wrong is how many objects something is wrong with.
	Wrong    int               `json:"wrong"`
	Statuses []resource.Status `json:"statuses"`
}

func newStatusReport(statuses []resource.Status) statusReport {
	r := statusReport{Statuses: append([]resource.Status{}, statuses...)}
	for _, s := range statuses {
		if len(complaints(s)) > 0 {
			r.Wrong++
		}
	}
	return r
}

// good are the conditions that ought to be true, bad those that ought not.
var (
	good = []string{"Accepted", "Programmed", "ResolvedRefs"}
	bad  = []string{"Conflicted", "PartiallyInvalid", "OverlappingTLSConfig"}
)

// complaints are what is wrong with an object, in its own words.
func complaints(s resource.Status) []string {
	var out []string
	add := func(where string, conditions []resource.Condition) {
		for _, c := range conditions {
			wrong := slices.Contains(good, c.Type) && c.Status != metav1.ConditionTrue || slices.Contains(bad, c.Type) && c.Status == metav1.ConditionTrue
			if text := where + c.Type + "=" + string(c.Status) + " " + c.Reason + ": " + c.Message; wrong && !slices.Contains(out, text) {
				out = append(out, text)
			}
		}
	}
	add("", s.Conditions)
	for _, l := range s.Listeners {
		add("listener "+l.Name+": ", l.Conditions)
	}
	for _, p := range s.Parents {
		add("at "+parentName(s, string(p.ParentRef.Name), (*string)(p.ParentRef.Namespace), (*string)(p.ParentRef.SectionName))+": ", p.Conditions)
	}
	for _, a := range s.Ancestors {
		add("at "+parentName(s, string(a.AncestorRef.Name), (*string)(a.AncestorRef.Namespace), (*string)(a.AncestorRef.SectionName))+": ", a.Conditions)
	}
	if (s.Ref.Kind == "Gateway" || s.Ref.Kind == "GatewayClass") && len(s.Conditions) == 0 {
		out = append(out, notLookedAt)
	}
	if reportsParents(s.Ref.Kind) && len(s.Parents) == 0 {
		out = append(out, notLookedAt)
	}
	return out
}

const notLookedAt = "no controller has said anything yet; is one running?"

func reportsParents(kind string) bool {
	return kind == "HTTPRoute" || kind == "GRPCRoute" || kind == "TCPRoute"
}

func parentName(s resource.Status, name string, namespace, section *string) string {
	if namespace != nil && *namespace != s.Ref.Namespace {
		name = *namespace + "/" + name
	}
	if section != nil {
		name += " " + *section
	}
	return name
}

// print shows a table for each sort of object.
func (r statusReport) print(w io.Writer) error {
	var b strings.Builder
	r.table(&b, "GATEWAYCLASS\tACCEPTED", func(s resource.Status) (string, bool) {
		return fmt.Sprintf("%s\t%s", s.Ref.Name, yes(s.Conditions, "Accepted")), s.Ref.Kind == "GatewayClass"
	})
	r.table(&b, "GATEWAY\tADDRESSES\tLISTENERS\tROUTES\tPROGRAMMED", func(s resource.Status) (string, bool) {
		var addresses []string
		for _, a := range s.Addresses {
			addresses = append(addresses, a.Value)
		}
		return fmt.Sprintf("%s/%s\t%s\t%s\t%d\t%s", s.Ref.Namespace, s.Ref.Name, cmpOr(strings.Join(addresses, ","), "-"), listenersReady(s), routesOf(s),
			yes(s.Conditions, "Programmed")), s.Ref.Kind == "Gateway"
	})
	r.table(&b, "LISTENERSET\tLISTENERS\tROUTES\tPROGRAMMED", func(s resource.Status) (string, bool) {
		return fmt.Sprintf("%s/%s\t%s\t%d\t%s", s.Ref.Namespace, s.Ref.Name, listenersReady(s), routesOf(s), yes(s.Conditions, "Programmed")),
			s.Ref.Kind == "ListenerSet"
	})
	r.table(&b, "ROUTE\tATTACHED", func(s resource.Status) (string, bool) {
		attached := 0
		for _, p := range s.Parents {
			if yes(p.Conditions, "Accepted") == "yes" {
				attached++
			}
		}
		return fmt.Sprintf("%s %s/%s\t%d/%d", s.Ref.Kind, s.Ref.Namespace, s.Ref.Name, attached, len(s.Parents)), reportsParents(s.Ref.Kind)
	})
	r.table(&b, "POLICY\tIN FORCE", func(s resource.Status) (string, bool) {
		force := 0
		for _, a := range s.Ancestors {
			if yes(a.Conditions, "Accepted") == "yes" {
				force++
			}
		}
		return fmt.Sprintf("%s %s/%s\t%d/%d", s.Ref.Kind, s.Ref.Namespace, s.Ref.Name, force, len(s.Ancestors)), len(s.Ancestors) > 0
	})
	if len(r.Statuses) == 0 {
		b.WriteString("nothing here is Weir's: there is no GatewayClass of its controller, and so no Gateway and no route\n")
	} else if r.Wrong > 0 {
		fmt.Fprintf(&b, "%s with something wrong\n", count(r.Wrong, "object"))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// table adds a table of those for which row says that they belong into it, each followed by what is wrong with it.
func (r statusReport) table(b *strings.Builder, head string, row func(resource.Status) (string, bool)) {
	tw := tabwriter.NewWriter(b, 0, 0, 2, ' ', 0)
	var wrong []string
	first := true
	for _, s := range r.Statuses {
		text, ok := row(s)
		if !ok {
			continue
		}
		if first {
			fmt.Fprintln(tw, head)
			first = false
		}
		fmt.Fprintln(tw, text)
		for _, c := range complaints(s) {
			wrong = append(wrong, objectName(s.Ref)+": "+c)
		}
	}
	if first {
		return
	}
	tw.Flush()
	for _, line := range wrong {
		b.WriteString(wrap("! "+line, 2, 110))
	}
	b.WriteByte('\n')
}

// yes is "yes", "no" or "unknown".
func yes(conditions []resource.Condition, kind string) string {
	for _, c := range conditions {
		switch {
		case c.Type != kind:
		case c.Status == metav1.ConditionTrue:
			return "yes"
		case c.Status == metav1.ConditionFalse:
			return "no"
		}
	}
	return "unknown"
}

// listenersReady is how many of the listeners are programmed.
func listenersReady(s resource.Status) string {
	ready := 0
	for _, l := range s.Listeners {
		if yes(l.Conditions, "Programmed") == "yes" {
			ready++
		}
	}
	return strconv.Itoa(ready) + "/" + strconv.Itoa(len(s.Listeners))
}

func routesOf(s resource.Status) (n int32) {
	for _, l := range s.Listeners {
		n += l.AttachedRoutes
	}
	return n
}
