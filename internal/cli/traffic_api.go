package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/traffic"
	"github.com/weirmesh/weir/internal/visible"
)

const trafficVersion = metrics.DraftGroup + "/" + metrics.Draft

// trafficAPI is where Traffic Metrics are read: at the admin endpoint of a run, or at the API server of a cluster.
type trafficAPI struct {
	place

	mu       sync.Mutex
	warnings []string // that answers had which what is shown next comes from; guarded by mu

	namespace string
	every     bool
	selector  string
	window    time.Duration
}

func (a *trafficAPI) flags(cmd *cobra.Command, lists bool) {
	f := cmd.Flags()
	f.DurationVar(&a.window, "window", 30*time.Second, "`time` up to now that is looked at; what is kept may be less")
	if lists {
		f.StringVarP(&a.namespace, "namespace", "n", "", "only what is in the `namespace` (default: of a run all; of a cluster the context's)")
		f.BoolVarP(&a.every, "all-namespaces", "A", false, "all namespaces, with a column for them")
		f.StringVarP(&a.selector, "selector", "l", "", "only resources whose labels match the `selector`; it does not restrict what was measured")
	} else {
		f.StringVarP(&a.namespace, "namespace", "n", "", "`namespace` of the resource (default: of a run \"default\"; of a cluster the context's)")
	}
	a.where(cmd)
}

// open fails for flags that cannot be meant, and makes the client of a cluster.
func (a *trafficAPI) open() error {
	if a.every && a.namespace != "" {
		return flags.Errorf("--all-namespaces and --namespace %s: give one of them", a.namespace)
	}
	if err := checkNamespace(a.namespace); err != nil {
		return err
	}
	if a.window <= 0 {
		return flags.Errorf("--window %s: want more than 0", a.window)
	}
	if _, err := labels.Parse(a.selector); err != nil {
		return flags.Errorf("--selector %q: %w", a.selector, err)
	}
	if !a.inCluster {
		return nil
	}
	a.period = clusterPeriod
	return a.connect()
}

// kindOf is the kind of an argument.
func kindOf(word string) (metrics.Resource, error) {
	r, ok := traffic.Kind(word)
	if !ok {
		return r, flags.Errorf("%q is no kind that has metrics: there are %s", word, strings.Join(traffic.Kinds(), ", "))
	}
	return r, nil
}

// oneOf is the resource of arguments: KIND/NAME, KIND NAME, or with the name as NAMESPACE/NAME.
func (a *trafficAPI) oneOf(args []string) (r metrics.Resource, namespace, name string, err error) {
	parts := strings.Split(strings.Join(args, "/"), "/")
	if r, err = kindOf(parts[0]); err != nil {
		return r, "", "", err
	}
	wrong := flags.Errorf("%q names no resource: write KIND/NAME", strings.Join(args, " "))
	for _, part := range parts[1:] {
		if part == "" || len(content.IsPathSegmentName(part)) > 0 {
			return r, "", "", wrong
		}
	}
	switch {
	case len(parts) == 2 && !r.Namespaced:
		return r, "", parts[1], nil
	case len(parts) == 2:
		return r, cmp.Or(a.namespace, a.usual, "default"), parts[1], nil
	case len(parts) == 3 && r.Namespaced && (a.namespace == "" || a.namespace == parts[1]):
		return r, parts[1], parts[2], nil
	}
	return r, "", "", wrong
}

// get reads a path below the API's version.
func (a *trafficAPI) get(ctx context.Context, path string, query url.Values, out any) error {
	query.Set("window", a.window.String())
	path = "/apis/" + trafficVersion + "/" + path
	var resp *answer
	var err error
	if a.client != nil {
		resp, err = a.ask(ctx, path, query)
	} else {
		resp, err = a.do(ctx, http.MethodGet, path, query)
	}
	if err != nil {
		return err
	}
	if resp.status == http.StatusOK {
		a.note(resp.warnings)
		return resp.into(out)
	}
	if a.client != nil {
		return refusalOfCluster(resp)
	}
	return refusal(resp)
}

// note takes note of an answer's warnings.
func (a *trafficAPI) note(warnings []string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, text := range warnings {
		if !slices.Contains(a.warnings, text) && len(a.warnings) < maxWarnings {
			a.warnings = append(a.warnings, text)
		}
	}
}

// warned returns the warnings in lines, and forgets them.
func (a *trafficAPI) warned() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	var lines strings.Builder
	for _, text := range a.warnings {
		fmt.Fprintf(&lines, "Warning: %s\n", text)
	}
	a.warnings = nil
	return lines.String()
}

// printWarned writes the warnings where errors go.
func (a *trafficAPI) printWarned() { fmt.Fprint(a.streams.err, a.warned()) }

// refusal is the error that an answer of the API is.
func refusal(resp *answer) error {
	if err := statusError(resp); err != nil {
		return err
	}
	if resp.status == http.StatusNotFound {
		return fmt.Errorf("%s has no Traffic Metrics: is it the admin endpoint of weir run?", resp.host)
	}
	return fmt.Errorf("%s answers %d: %s", resp.host, resp.status, resp.text())
}

// statusError is the error that a Status is; nil for other answers.
func statusError(resp *answer) error {
	var status metav1.Status
	if json.Unmarshal(resp.body, &status) != nil || status.Message == "" {
		return nil
	}
	if resp.status == http.StatusNotFound {
		return goneError(visible.Text(status.Message))
	}
	return errors.New(visible.Text(status.Message))
}

// goneError is an answer that a resource does not exist.
type goneError string

func (e goneError) Error() string { return string(e) }

// Is makes it traffic.ErrGone.
func (e goneError) Is(target error) bool { return target == traffic.ErrGone }

// in is the namespace of lists of a kind; "" is all.
func (a *trafficAPI) in(r metrics.Resource) string {
	if a.every || !r.Namespaced {
		return ""
	}
	return cmp.Or(a.namespace, a.usual)
}

// within says it to people.
func (a *trafficAPI) within(r metrics.Resource) string {
	if in := a.in(r); in != "" {
		return " in the namespace " + in
	}
	return ""
}

// list reads what was measured at the resources of a kind.
func (a *trafficAPI) list(ctx context.Context, r metrics.Resource) (l metrics.TrafficMetricsList, err error) {
	query := url.Values{}
	if a.selector != "" {
		query.Set("labelSelector", a.selector)
	}
	path := r.Plural
	if in := a.in(r); in != "" {
		path = "namespaces/" + in + "/" + path
	}
	err = a.get(ctx, path, query, &l)
	return l, err
}

// pathOf is the path of one resource.
func pathOf(r metrics.Resource, namespace, name string) string {
	path := r.Plural + "/" + name
	if r.Namespaced {
		path = "namespaces/" + namespace + "/" + path
	}
	return path
}

// edges reads the edges of a resource, with the other sides as resources of a kind where they can be.
func (a *trafficAPI) edges(ctx context.Context, r metrics.Resource, namespace, name string, as metrics.Resource) (l metrics.TrafficMetricsList, err error) {
	query := url.Values{}
	if as.Plural != r.Plural {
		query.Set("kind", as.Plural)
	}
	err = a.get(ctx, pathOf(r, namespace, name)+"/"+metrics.SubResource, query, &l)
	return l, err
}

// reader is the API with the flags of a command, as traffic.Topology reads it.
type reader struct{ *trafficAPI }

// List implements traffic.API.
func (a reader) List(ctx context.Context, of metrics.Resource) (metrics.TrafficMetricsList, error) {
	return a.list(ctx, of)
}

// Edges implements traffic.API.
func (a reader) Edges(ctx context.Context, of metrics.Resource, namespace, name string) (metrics.TrafficMetricsList, error) {
	return a.edges(ctx, of, namespace, name, of)
}
