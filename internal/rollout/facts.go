package rollout

import (
	"slices"
	"time"

	apiequality "k8s.io/apimachinery/pkg/api/equality"

	"github.com/weirmesh/weir/api/rollouts"
)

// Facts are what was observed of a Rollout and of everything it is about, at one time.
type Facts struct {
	// Rollout has the status that was stored last.
	Rollout *rollouts.Rollout
	// Workload is nil if it does not exist.
	Workload *Workload
	// Unlisted says why nobody looks whether the workload exists; empty if somebody did.
	Unlisted string
	Traffic  Traffic
	Now      time.Time
}

// Workload is what is released, as it stands.
type Workload struct {
	// Settled means that the counts below belong to the newest spec.
	Settled    bool
	Generation int64
	// ID is the user's own name of a release, the label rollouts.kruise.io/rollout-id.
	ID string
	// Stable is the revision that served before, of which there are pods, Update the newest one. They are equal when there is nothing to release.
	Stable, Update string
	// StableHash and UpdateHash are the labels of the revisions' pods by which Services select them; empty if unknown.
	StableHash, UpdateHash string
	// Replicas is how many pods there should be, Updated how many of the new revision there are, Ready how many of these
	// are ready, and StableReady how many of the stable revision are.
	Replicas, Updated, Ready, StableReady int32
	// Complete means that all pods are of the newest revision and ready, and that no others are left.
	Complete bool
	// Given means that nobody here controls pods: they are what they are. The fields below have no meaning then.
	Given bool
	// Held means that no pod of a new revision comes before the workload is told; Target is how many of the newest it was
	// told to have.
	Held   bool
	Target int32
	// Stays means that pods of the new revision cannot become stable ones as long as the workload wants the new one.
	Stays bool
	// Unfit says why the workload cannot be released as the Rollout says; empty if it can.
	Unfit string
	// Gone means that all pods are of the newest revision, though it was not told to have any and another one served before,
	// and that none of that can come back as long as the workload wants the new one.
	Gone bool
	// Marked means that the workload carries marks of the Rollout's control.
	Marked bool
}

// Traffic is how requests are routed.
type Traffic struct {
	// Missing names what the Rollout needs and does not exist, such as "HTTPRoute shop".
	Missing []string
	// Wrong says why no step can be laid over what is there, such as that a Service which the release makes is somebody
	// else's; empty if nothing is.
	Wrong string
	// Carried are the wants that the objects fulfil as they are now. Several steps may want the same.
	Carried []Want
	// Short is what the objects cannot express of a step, ShortOf; 0 if that is not known of any.
	Short   []Told
	ShortOf Want
	// Settled means that proxies route by the objects as they are now. Otherwise Awaited says what for, if that is known.
	Settled bool
	Awaited string
	// Shared is nil where nobody counts requests, or where a step does not say how many the new version gets.
	Shared *Shared
	// Given means that the Services are the user's, and nobody changes them. The fields below have no meaning then.
	Given bool
	// Pinned is the pods' label to which the stable Service is restricted; empty if it is not.
	Pinned string
	// Canary is the pods' label that the canary's Service selects; empty if there is no such Service.
	Canary string
	// Unready says why requests would find no pod by the canary's Service yet; empty if they would find one.
	Unready string
}

// Want says how objects should route: by a step, counted from 1, or in one of the ways below.
type Want int32

const (
	// WantOriginal is as the user wrote them.
	WantOriginal Want = 0
	// WantNew is everything to the new version.
	WantNew Want = -1
)

func (t *Traffic) carries(w Want) bool { return slices.Contains(t.Carried, w) }

// RoutingFor is the routing that a want stands for; nil for that of the user.
func RoutingFor(plan *rollouts.Plan, w Want) *Routing {
	switch {
	case w == WantNew:
		return &Routing{Percent: 100}
	case w > 0 && int(w) <= len(plan.Steps):
		return RoutingOf(&plan.Steps[w-1])
	}
	return nil
}

// Outcome is what follows from Facts.
type Outcome struct {
	// Status is to be stored, if it is not what the Rollout has.
	Status rollouts.Status
	// Action, if not nil, is to be carried out once the status is stored, or before if it is a Late one. If it is not, the
	// next Facts bring it about again. Without an Action the status needs to be stored when Facts with it lead to no other.
	Action *Action
	// Again is when to decide anew although nothing changed; the zero time is never.
	Again time.Time
	// Finalizer says whether the Rollout has to outlast its deletion.
	Finalizer bool
	Events    []Event
}

// Event is worth telling once.
type Event struct {
	// Reason is one word for programs, such as "StepCompleted".
	Reason  string
	Warning bool
	Message string
}

// Action is one change. Each brings about a state, and may be carried out any number of times.
type Action struct {
	Do Doing
	// Want is how to route.
	Want Want
	// Pods is how many pods the new revision should have.
	Pods int32
	// Hash is the label of pods that a Service should select.
	Hash string
}

// Late reports whether the status may be stored after the action, together with what follows from it. No grace period begins
// with such an action, and by the Facts alone nothing that went before it is done again: whoever is cut off in between goes on
// with what comes after it.
func (a Action) Late() bool { return a.Do == RemoveCanary || a.Do == Resume || a.Do == Release }

// Progress reports whether two statuses differ in nothing but how far the workload is and what is awaited.
func Progress(a, b rollouts.Status) bool {
	for _, s := range []*rollouts.Status{&a, &b} {
		*s = CopyStatus(*s)
		s.Message = ""
		if rel := s.Release(); rel != nil {
			rel.Message, rel.ObservedWorkloadGeneration = "", 0
			s.Count(0, 0)
		}
		if c := s.Condition(rollouts.ConditionProgressing); c != nil {
			c.Message = ""
		}
	}
	return apiequality.Semantic.DeepEqual(a, b)
}

// Doing is a kind of action.
type Doing string

const (
	// Hold makes the workload replace pods only as it is told, and marks it.
	Hold Doing = "hold the workload"
	// Upgrade gives the new revision Pods pods.
	Upgrade Doing = "upgrade pods"
	// Resume lets the workload finish by itself.
	Resume Doing = "resume the workload"
	// Release takes the marks off the workload.
	Release Doing = "release the workload"
	// Pin restricts the stable Service to the pods of Hash.
	Pin Doing = "pin the stable Service"
	// Unpin gives the stable Service its own selector back.
	Unpin Doing = "restore the stable Service"
	// MakeCanary makes the canary's Service, which selects the pods of Hash.
	MakeCanary Doing = "make the canary Service"
	// RemoveCanary removes it.
	RemoveCanary Doing = "remove the canary Service"
	// Route makes the objects route as Want says.
	Route Doing = "route requests"
)
