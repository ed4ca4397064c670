package inspect

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	dialect "github.com/weirmesh/weir/internal/dialect/rollouts"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/release"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

// rollouts asks what keeps a controller from carrying Rollouts out that is to.
func (r *reader) rollouts(ctx context.Context) error {
	if c := r.out.Controller; c == nil || !c.Rollouts {
		return nil
	}
	why, err := release.FindObstacle(ctx, r.client)
	if err != nil && !r.refused("which kinds there are of OpenKruise Rollouts", err) {
		return fmt.Errorf("which kinds there are of OpenKruise Rollouts: %w", err)
	}
	r.out.Obstacle = why
	if err != nil || why != "" {
		return nil
	}
	if r.out.Rollouts, err = r.judged(ctx, r.out.Controller.Namespaces); err != nil && !r.refused("Rollouts, and what they name", err) {
		return fmt.Errorf("the Rollouts: %w", err)
	}
	return nil
}

// judged judges the Rollouts of some namespaces, of all if none are named, beside the objects that they name.
func (r *reader) judged(ctx context.Context, namespaces []string) ([]resource.Finding, error) {
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	b := &beside{client: r.client, seen: map[named]bool{}}
	for _, namespace := range namespaces {
		list := &unstructured.UnstructuredList{}
		list.SetGroupVersionKind(schema.GroupVersionKind{Group: rollouts.Group, Version: rollouts.Versions[0], Kind: "RolloutList"})
		options := &client.ListOptions{Namespace: namespace, Limit: rolloutPage}
		for {
			if err := r.client.List(ctx, list, options); err != nil {
				return nil, err
			}
			for i := range list.Items {
				b.rollout(&list.Items[i])
			}
			if options.Continue = list.GetContinue(); options.Continue == "" {
				break
			}
		}
	}
	if err := b.fetch(ctx); err != nil {
		return nil, err
	}
	set, err := resource.Load(r.Kinds, []string{"-"}, &b.text)
	if err != nil {
		return nil, err
	}
	found, _ := dialect.Translate(set, dialect.Options{Providers: provider.All(), Cluster: true})
	found = slices.Concat(found, slices.DeleteFunc(slices.Clone(set.Findings), func(f resource.Finding) bool { return f.Ref.Kind != "Rollout" }))
	for i := range found {
		found[i].Origin = resource.Origin{} // they were read from no file
	}
	return found, nil
}

const (
	// rolloutPage is how many Rollouts one request is answered with at most, fetchers how many objects are fetched at a time.
	rolloutPage, fetchers = 500, 8
)

// named is an object that a Rollout names.
type named struct {
	schema.GroupVersionKind
	namespace, name string
}

// beside gathers Rollouts and what they name.
type beside struct {
	client *kube.Client
	seen   map[named]bool
	mu     sync.Mutex
	text   bytes.Buffer // JSON documents
}

func (b *beside) add(object map[string]any) {
	if meta, ok := object["metadata"].(map[string]any); ok {
		delete(meta, "managedFields")
	}
	text, err := json.Marshal(object)
	if err != nil {
		return // it came as JSON
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text.WriteString("---\n")
	b.text.Write(text)
	b.text.WriteByte('\n')
}

// rollout notes a Rollout. One that is not valid names nothing: the set says what is wrong with it.
func (b *beside) rollout(u *unstructured.Unstructured) {
	b.add(u.Object)
	r, errs := rollouts.Decode(rollouts.Versions[0], u.Object)
	if len(errs) > 0 || r.Spec.Strategy.Plan() == nil {
		return
	}
	name := func(group, version, kind, name string) {
		b.seen[named{schema.GroupVersionKind{Group: group, Version: version, Kind: kind}, u.GetNamespace(), name}] = true
	}
	w := r.Spec.WorkloadRef
	group, version := rollout.SplitVersion(w.APIVersion)
	name(group, version, w.Kind, w.Name)
	if traffic := r.Spec.Strategy.Plan().Traffic(); traffic != nil {
		name("", "v1", "Service", traffic.Service)
	}
	for _, t := range rollout.Targets(&r.Spec.Strategy) {
		name(t.Group, t.Version, t.Kind, t.Name)
	}
}

// fetch reads what Rollouts name, without the steps that are laid over it.
func (b *beside) fetch(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(fetchers)
	for of := range b.seen {
		g.Go(func() error {
			u := &unstructured.Unstructured{}
			u.SetGroupVersionKind(of.GroupVersionKind)
			switch err := b.client.Get(ctx, client.ObjectKey{Namespace: of.namespace, Name: of.name}, u); {
			case apierrors.IsNotFound(err), meta.IsNoMatchError(err):
				return nil
			case err != nil:
				return err
			}
			if unlaid, err := rollout.Original(u.Object); err == nil {
				b.add(unlaid.Object)
			} else { // nobody knows what its user wrote
				b.add(u.Object)
			}
			return nil
		})
	}
	return g.Wait()
}

// rollouts reports that a controller carries no Rollouts out that is to.
func (j *judge) rollouts() {
	if j.Controller == nil {
		return
	}
	switch ref := (model.Ref{Kind: "CustomResourceDefinition"}); j.Obstacle {
	case release.OpenKruise:
		ref.Name = "batchreleases.rollouts.kruise.io"
		j.add(CodeRollouts, ref, "", "Weir's controller carries no Rollouts out: "+j.Obstacle.String(),
			"set rollouts.enabled of Weir's chart to false, or remove OpenKruise Rollouts together with this definition")
	case release.Undefined:
		ref.Name = "rollouts.rollouts.kruise.io"
		j.add(CodeRollouts, ref, "", "Weir's controller carries no Rollouts out: "+j.Obstacle.String(),
			"install the definitions of Weir's chart, or set rollouts.enabled to false")
	}
}

// RolloutSummary is whether the controller carries Rollouts out.
type RolloutSummary struct {
	Carried bool `json:"carried"`
	// Why it does not.
	Why string `json:"why,omitempty"`
}

// rolloutSummary is nil if the controller is not to carry any out.
func (c *Cluster) rolloutSummary() *RolloutSummary {
	if !c.Controller.Rollouts {
		return nil
	}
	return &RolloutSummary{Carried: c.Obstacle == "", Why: c.Obstacle.String()}
}

// String is one line.
func (s *RolloutSummary) String() string {
	if s.Carried {
		return "carried out by the leader"
	}
	return "not carried out: " + s.Why
}
