package rollout

import (
	"fmt"
	"slices"
	"strings"

	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/api/rollouts"
)

// Provider turns routings into changes of some kinds of objects. Objects are unstructured, so that no field of any
// version of their APIs is lost.
type Provider struct {
	// Name is the provider's own, "istio".
	Name string
	// Kinds are those of the objects that a Rollout may name, Made those of the ones that come beside them.
	Kinds, Made []Kind
	// Lay lays a routing over an object. It is pure, and leaves what it is given alone.
	Lay func(Request) Laid
}

// Kind is a kind of objects, whatever its version.
type Kind struct{ Group, Name, Plural string }

// Takes reports whether the provider is responsible for objects that a Rollout names so.
func (p Provider) Takes(t Target) bool {
	return slices.ContainsFunc(p.Kinds, func(k Kind) bool { return k.Group == t.Group && k.Name == t.Kind })
}

// Providers are tried in their order.
type Providers []Provider

// For returns the provider of a target; ok is false if there is none.
func (all Providers) For(t Target) (p Provider, ok bool) {
	for _, p := range all {
		if p.Takes(t) {
			return p, true
		}
	}
	return Provider{}, false
}

// Target is an object that a Rollout names to have requests routed.
type Target struct {
	Group, Kind, Name string
	// Version is that of the reference; Class the class type of an Ingress.
	Version, Class string
	// Field is where the Rollout names it, "spec.strategy.canary.trafficRoutings[0].gateway.httpRouteName".
	Field string
}

func (t Target) String() string { return t.Kind + " " + t.Name }

// Targets lists the objects that a strategy's routing names, in the order of its fields.
func Targets(s *rollouts.Strategy) (all []Target) {
	plan := s.Plan()
	if plan == nil || plan.Traffic() == nil {
		return nil
	}
	t, field := plan.Traffic(), s.Field()+".trafficRoutings[0]"
	if i := t.Ingress; i != nil {
		all = append(all, Target{Group: "networking.k8s.io", Version: "v1", Kind: "Ingress", Name: i.Name, Class: i.ClassType, Field: field + ".ingress.name"})
	}
	if g := t.Gateway; g != nil && g.HTTPRouteName != nil {
		all = append(all, Target{Group: gatewayv1.GroupName, Version: "v1", Kind: "HTTPRoute", Name: *g.HTTPRouteName, Field: field + ".gateway.httpRouteName"})
	}
	for i, ref := range t.CustomNetworkRefs {
		group, version := SplitVersion(ref.APIVersion)
		all = append(all, Target{Group: group, Version: version, Kind: ref.Kind, Name: ref.Name, Field: fmt.Sprintf("%s.customNetworkRefs[%d]", field, i)})
	}
	return all
}

// SplitVersion divides "group/version"; the group of "v1" is empty.
func SplitVersion(apiVersion string) (group, version string) {
	for i := range apiVersion {
		if apiVersion[i] == '/' {
			return apiVersion[:i], apiVersion[i+1:]
		}
	}
	return "", apiVersion
}

// Routing says which requests of the stable Service go to the canary.
type Routing struct {
	// Matches, if there are any, name them. Else Percent of all go there.
	Matches []rollouts.Match
	Percent int
	// Modifier changes the requests that go to the canary; nil does not.
	Modifier *gatewayv1.HTTPHeaderFilter
}

// RoutingOf is the routing of a step; nil if it routes nothing, which leaves objects as the user wrote them. Matches win
// over traffic.
func RoutingOf(s *rollouts.Step) *Routing {
	if !s.Shifts() {
		return nil
	}
	r := &Routing{Matches: s.Matches, Modifier: s.RequestHeaderModifier}
	if len(s.Matches) == 0 {
		r.Percent, _ = s.Percent()
	}
	return r
}

// ShareOf is the part of all requests, in percent, that a step sends to the new version; ok is false if it says none, or names
// requests.
func ShareOf(s *rollouts.Step) (percent int, ok bool) {
	r := RoutingOf(s)
	if r == nil || len(r.Matches) > 0 {
		return 0, false
	}
	return s.Percent()
}

// IsService reports whether a host is a Service of a namespace, by any of its names there.
func IsService(host, service, namespace string) bool {
	rest, ok := strings.CutPrefix(strings.TrimSuffix(host, "."), service)
	return ok && slices.Contains([]string{"", "." + namespace, "." + namespace + ".svc", "." + namespace + ".svc.cluster.local"}, rest)
}

// Request is what a provider is asked.
type Request struct {
	Target Target
	// Object is the target as its user wrote it. It is shared and read-only.
	Object map[string]any
	// Rollout is the name of the Rollout, Namespace that of all objects.
	Rollout, Namespace string
	// Stable and Canary are Services. They are one if subsets tell the versions apart.
	Stable, Canary string
	Routing        Routing
	// Other returns another object of the namespace as its user wrote it, nil if there is none. It is read-only.
	Other func(group, kind, name string) map[string]any
}

// Laid is an object with a routing laid over it.
type Laid struct {
	// Object is what the target becomes. It is equal to the one asked about if that needs no change.
	Object map[string]any
	// Owned are objects that have to exist beside it as long as the routing holds.
	Owned []map[string]any
	// Told is what the routing cannot be, and what is worth knowing, for the user.
	Told []Told
}

// Told is one thing that a user should know of a step. A condition that a provider cannot express is never left out in
// silence, and requests that the step does not name never reach the canary for lack of it, unless Told says so.
type Told struct {
	// Field is a field of the step, such as "matches[0].path", or empty for all of it. If it is about the target, it is the field
	// beside that which names it, such as "classType", or empty for that.
	Field string
	// Short means that the step cannot be carried out as it is written. Otherwise it is, and this is a note.
	Short bool
	// Object means that it is about the target, whatever the step.
	Object bool
	// Message says what is done instead, Fix what the user could do.
	Message, Fix string
}

// At is the field of the Rollout that it is about. Step is that of the step.
func (t Told) At(target Target, step string) string {
	switch {
	case t.Object && t.Field != "":
		return target.Field[:strings.LastIndexByte(target.Field, '.')+1] + t.Field
	case t.Object:
		return target.Field
	case t.Field != "":
		return step + "." + t.Field
	}
	return step
}

// Shortf returns a Told that the step falls short of what is written.
func Shortf(field, fix, format string, args ...any) Told {
	return Told{Field: field, Short: true, Fix: fix, Message: fmt.Sprintf(format, args...)}
}

// Objectf returns a Told that no step can be carried out with the target.
func Objectf(fix, format string, args ...any) Told {
	return Told{Short: true, Object: true, Fix: fix, Message: fmt.Sprintf(format, args...)}
}

// Notef returns a Told that is a note.
func Notef(field, fix, format string, args ...any) Told {
	return Told{Field: field, Fix: fix, Message: fmt.Sprintf(format, args...)}
}

// Lay lays a routing over a target. Without a provider, or if the object is missing, ok is false. A nil routing leaves
// the object as the user wrote it.
func (all Providers) Lay(r Request, routing *Routing) (laid Laid, ok bool) {
	p, known := all.For(r.Target)
	if !known || r.Object == nil {
		return Laid{}, false
	}
	if routing == nil {
		return Laid{Object: r.Object}, true
	}
	r.Routing = *routing
	return p.Lay(r), true
}
