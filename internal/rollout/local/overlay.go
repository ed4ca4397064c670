package local

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
)

// overlay collects the objects that Rollouts lay over those of a Set. Several Rollouts may lay steps over one object; each
// is laid over what those before it made of it.
type overlay struct {
	set       *resource.Set
	providers rollout.Providers
	objects   map[resource.Key]map[string]any
	order     []resource.Key
	// by are the Rollouts that made an object.
	by map[resource.Key][]string
}

func newOverlay(set *resource.Set, providers rollout.Providers) *overlay {
	return &overlay{set: set, providers: providers, objects: map[resource.Key]map[string]any{}, by: map[resource.Key][]string{}}
}

func (o *overlay) written(namespace string) func(group, kind, name string) map[string]any {
	return func(group, kind, name string) map[string]any {
		key := resource.Key{Group: group, Kind: kind, Namespace: namespace, Name: name}
		if u := o.objects[key]; u != nil {
			return u
		}
		u, _ := o.set.Written(key)
		return u
	}
}

// missing names what a Rollout needs to route requests and is not there.
func (o *overlay) missing(r *rollouts.Rollout) (missing []string) {
	plan := r.Spec.Strategy.Plan()
	if plan == nil || plan.Traffic() == nil {
		return nil
	}
	for _, name := range []string{plan.Traffic().Service, plan.CanaryService()} {
		if o.set.Service(r.Namespace, name) == nil {
			missing = append(missing, "Service "+name)
		}
	}
	served := false
	for _, t := range rollout.Targets(&r.Spec.Strategy) {
		if o.set.Kinds().Find(t.Group, t.Kind) == nil {
			continue // nothing here routes by it, so a step on it is neither needed nor harmful
		}
		served = true
		if o.set.Object(resource.Key{Group: t.Group, Kind: t.Kind, Namespace: r.Namespace, Name: t.Name}) == nil {
			missing = append(missing, t.String())
		}
	}
	if !served {
		missing = append(missing, "an HTTPRoute, GRPCRoute or TrafficSplit in "+r.Spec.Strategy.Field()+".trafficRoutings[0]")
	}
	return slices.Compact(missing)
}

// lay lays a routing over the objects that a Rollout names.
func (o *overlay) lay(r *rollouts.Rollout, routing *rollout.Routing) (told []rollout.Told) {
	plan := r.Spec.Strategy.Plan()
	if routing == nil || plan == nil || plan.Traffic() == nil {
		return nil
	}
	written := o.written(r.Namespace)
	for _, t := range rollout.Targets(&r.Spec.Strategy) {
		key := resource.Key{Group: t.Group, Kind: t.Kind, Namespace: r.Namespace, Name: t.Name}
		if o.set.Kinds().Find(t.Group, t.Kind) == nil || o.set.Object(key) == nil {
			continue
		}
		laid, ok := o.providers.Lay(rollout.Request{
			Target: t, Object: written(t.Group, t.Kind, t.Name), Rollout: r.Name, Namespace: r.Namespace,
			Stable: plan.Traffic().Service, Canary: plan.CanaryService(), Other: written,
		}, routing)
		if !ok {
			continue
		}
		told = append(told, laid.Told...)
		if before := written(t.Group, t.Kind, t.Name); !reflect.DeepEqual(before, laid.Object) {
			o.put(r, key, laid.Object)
		}
		for _, u := range laid.Owned {
			if owned := keyOf(u); o.set.Object(owned) == nil {
				o.put(r, owned, u)
			} else {
				told = append(told, rollout.Objectf("rename it", "%s is the user's own and needed for the step", owned))
			}
		}
	}
	return told
}

func (o *overlay) put(r *rollouts.Rollout, key resource.Key, u map[string]any) {
	if o.objects[key] == nil {
		o.order = append(o.order, key)
	}
	o.objects[key] = u
	o.by[key] = append(o.by[key], id(r))
}

// laid returns the Set with all that was laid over it, and by Rollout the objects that would not be valid: they are as they
// are written.
func (o *overlay) laid() (*resource.Set, map[string]refusal) {
	objects := make([]map[string]any, len(o.order))
	for i, key := range o.order {
		objects[i] = o.objects[key]
	}
	set, findings := o.set.With(objects...)
	refused := map[string]refusal{}
	for _, f := range findings {
		if f.Severity != resource.Error {
			continue
		}
		for _, key := range o.order {
			if key.Kind != f.Ref.Kind || key.Namespace != f.Ref.Namespace || key.Name != f.Ref.Name {
				continue
			}
			for _, r := range o.by[key] {
				if _, told := refused[r]; !told {
					refused[r] = refusal{key.Kind + " " + key.Name, fmt.Sprintf("it would not be valid, so it stays as it is written: %s: %s: %s.", f.Ref.Field, f.Message, f.Fix)}
				}
			}
		}
	}
	return set, refused
}

// refusal is an object that a step is not laid over, and why.
type refusal struct{ object, why string }

func (f refusal) obstruct(s *rollouts.Status) (said string) {
	return rollout.Obstruct(s, "lay the step over "+f.object, f.why)
}

func keyOf(u map[string]any) resource.Key {
	apiVersion, _ := u["apiVersion"].(string)
	kind, _ := u["kind"].(string)
	meta, _ := u["metadata"].(map[string]any)
	name, _ := meta["name"].(string)
	namespace, _ := meta["namespace"].(string)
	group, _ := rollout.SplitVersion(apiVersion)
	return resource.Key{Group: group, Kind: kind, Namespace: namespace, Name: name}
}
