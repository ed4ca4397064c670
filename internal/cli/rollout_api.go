package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/validate/content"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/kube/operate"
	"github.com/weirmesh/weir/internal/rollout/command"
	"github.com/weirmesh/weir/internal/rollout/local"
	"github.com/weirmesh/weir/internal/rollout/view"
	"github.com/weirmesh/weir/internal/screen"
)

// rolloutAPI is where Rollouts are read and controlled: at the admin endpoint of a run, or in a cluster.
type rolloutAPI struct {
	place
	cluster *operate.Cluster // nil for a run
	every   bool
	// namespace is the flag's; once it is open the one of the Rollout, or for lists "" if they are of all.
	namespace, name string
}

func newRolloutAPI(s streams) *rolloutAPI {
	return &rolloutAPI{place: place{admin: admin{streams: s}, plugin: s.plugin}}
}

func (a *rolloutAPI) flags(cmd *cobra.Command, lists bool) {
	f := cmd.Flags()
	if lists {
		f.StringVarP(&a.namespace, "namespace", "n", "", "only those of the `namespace` (default: of a run all; of a cluster the context's)")
		f.BoolVarP(&a.every, "all-namespaces", "A", false, "those of all namespaces")
	} else {
		f.StringVarP(&a.namespace, "namespace", "n", "", "`namespace` of the Rollout (default: of a run \"default\"; of a cluster the context's)")
	}
	a.where(cmd)
}

// open fails for a command line that cannot be meant, and makes the client of a cluster. The argument names a Rollout, as
// NAME or NAMESPACE/NAME; an empty one is for lists.
func (a *rolloutAPI) open(arg string) error {
	if a.every && a.namespace != "" {
		return flags.Errorf("--all-namespaces and --namespace %s: give one of them", a.namespace)
	}
	if err := checkNamespace(a.namespace); err != nil {
		return err
	}
	if arg != "" {
		namespace, name, ok := strings.Cut(arg, "/")
		switch {
		case !ok:
			namespace, name = a.namespace, arg
		case a.namespace != "" && a.namespace != namespace:
			return flags.Errorf("%s is not in the namespace %s", arg, a.namespace)
		}
		if name == "" || ok && namespace == "" || len(content.IsPathSegmentName(name)) > 0 || len(content.IsPathSegmentName(namespace)) > 0 {
			return flags.Errorf("%q names no Rollout: write NAME or NAMESPACE/NAME", arg)
		}
		a.namespace, a.name = namespace, name
	}
	if a.inCluster {
		if err := a.connect(); err != nil {
			return err
		}
		cluster, err := operate.New(a.client)
		if err != nil {
			a.close()
			return &exitError{exitUsage, err}
		}
		a.cluster, a.period = cluster, clusterPeriod
		a.follow = func(ctx context.Context) (<-chan struct{}, func()) { return cluster.Follow(ctx, a.namespace, a.name) }
	}
	if a.namespace == "" && !a.every {
		a.namespace = a.usual
	}
	if a.namespace == "" && a.name != "" {
		a.namespace = "default"
	}
	return nil
}

func (a *rolloutAPI) close() {
	if a.cluster != nil {
		a.cluster.Close()
	}
	a.place.close()
}

// within says to people what a list is of.
func (a *rolloutAPI) within() string {
	if a.namespace == "" {
		return ""
	}
	return " in the namespace " + a.namespace
}

// ask sends a request to a run and reads its answer into out.
func (a *rolloutAPI) ask(ctx context.Context, method, path string, query url.Values, out any) error {
	resp, err := a.admin.do(ctx, method, path, query)
	switch {
	case err != nil:
		return err
	case resp.status == http.StatusNotFound && !strings.HasPrefix(string(resp.body), local.ErrNotFound.Error()):
		return fmt.Errorf("%s has no Rollouts: is it the admin endpoint of weir run?", resp.host)
	case resp.status != http.StatusOK:
		return errors.New(resp.text())
	}
	return resp.into(out)
}

func (a *rolloutAPI) list(ctx context.Context) (l view.List, err error) {
	if a.cluster != nil {
		return a.cluster.List(ctx, a.namespace)
	}
	if err = a.ask(ctx, http.MethodGet, "/rollouts", nil, &l); err != nil || a.namespace == "" {
		return l, err
	}
	kept := l.Rollouts[:0]
	for _, r := range l.Rollouts {
		if r.Namespace == a.namespace {
			kept = append(kept, r)
		}
	}
	l.Rollouts = kept
	return l, nil
}

// path is the Rollout's at the admin endpoint.
func (a *rolloutAPI) path() string { return "/rollouts/" + a.namespace + "/" + a.name }

func (a *rolloutAPI) get(ctx context.Context) (r view.Rollout, err error) {
	if a.cluster != nil {
		r, err = a.cluster.Get(ctx, a.namespace, a.name)
	} else {
		err = a.ask(ctx, http.MethodGet, a.path(), nil, &r)
	}
	return r, a.known(err)
}

// known says of a Rollout that does not exist where to find those that do.
func (a *rolloutAPI) known(err error) error {
	if err == nil || !errors.Is(err, operate.ErrNotFound) && !strings.HasPrefix(err.Error(), local.ErrNotFound.Error()) {
		return err
	}
	return fmt.Errorf("there is no Rollout %s/%s: weir rollout list shows those that there are", a.namespace, a.name)
}

// history is the last releases of a run's Rollout, or the revisions of a cluster's.
func (a *rolloutAPI) history(ctx context.Context, s screen.Screen, now time.Time) (v any, text string, err error) {
	if a.cluster != nil {
		all, err := a.cluster.History(ctx, a.namespace, a.name)
		return all, all.Table(s, now), a.known(err)
	}
	r, err := a.get(ctx)
	text = "Nothing was released yet.\n"
	if len(r.Releases) > 0 {
		text = r.History(s, now)
	}
	return r.Releases, text, err
}

// do carries out a command, and returns what to say of it.
func (a *rolloutAPI) do(ctx context.Context, c command.Command) (string, error) {
	if a.cluster != nil {
		said, err := a.cluster.Do(ctx, a.namespace, a.name, c)
		if apierrors.IsForbidden(err) {
			err = fmt.Errorf("%w; docs/rollouts.md has the role that it needs", err)
		}
		return "Rollout " + a.namespace + "/" + a.name + ": " + said, err
	}
	query := url.Values{}
	if c.Full {
		query.Set("full", "true")
	}
	if c.Step != 0 {
		query.Set("step", strconv.Itoa(c.Step))
	}
	var r view.Rollout
	err := a.ask(ctx, http.MethodPost, a.path()+"/"+string(c.Verb), query, &r)
	return r.Line(), err
}
