// Package view is Rollouts as people see them: data, and how it is printed. Whoever carries Rollouts out makes it.
package view

import (
	"time"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// List is several of them.
type List struct {
	Rollouts []Rollout `json:"rollouts"`
}

// Rollout is a Rollout as people see it. Its JSON form is that of the admin endpoint.
type Rollout struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Strategy is "Canary" or "BlueGreen".
	Strategy string `json:"strategy"`
	// State is one word for all.
	State   State  `json:"state"`
	Message string `json:"message"`
	// Step counts from 1; it is 0 without a release. Steps is how many there are.
	Step  int32 `json:"step"`
	Steps int32 `json:"steps"`
	// Routing is what is laid over the objects, nil if they are as they are written; Who says it in a sentence.
	Routing *rollout.Routing `json:"routing,omitempty"`
	Who     string           `json:"who,omitempty"`
	// Pending means that Routing is not in force yet: the step waits for its pods, and requests go as they went before.
	Pending bool `json:"pending,omitempty"`
	// Until is when the step ends by itself.
	Until *time.Time `json:"until,omitempty"`
	// Measured is what came to the two Services by the objects lately; nil if that is not known.
	Measured *Measured `json:"measured,omitempty"`
	Stable   Version   `json:"stable"`
	Canary   *Version  `json:"canary,omitempty"`
	// Others are versions that have pods, too, such as one that was replaced midway.
	Others []Version `json:"others,omitempty"`
	// Workload is what has the pods, in a cluster.
	Workload *Workload `json:"workload,omitempty"`
	// Unread says what could not be read, and why.
	Unread []string `json:"unread,omitempty"`
	// Objects route requests, "HTTPRoute shop".
	Objects  []string        `json:"objects,omitempty"`
	Status   rollouts.Status `json:"status"`
	Releases []Past          `json:"releases,omitempty"`
	Events   []Event         `json:"events,omitempty"`
}

// Workload is what a Rollout releases in a cluster.
type Workload struct {
	Kind string `json:"kind"`
	Name string `json:"name"`
	// Replicas is how many pods there are to be of all versions.
	Replicas int32 `json:"replicas"`
}

// Version is what is behind one of the Services.
type Version struct {
	// Service is empty if no Service has this version alone.
	Service string `json:"service"`
	// Revision is 0 if its number is not known.
	Revision int `json:"revision"`
	// Name of the revision.
	Name      string   `json:"name"`
	Endpoints []string `json:"endpoints"`
	// Images and Pods are known in a cluster.
	Images []string `json:"images,omitempty"`
	Pods   []Pod    `json:"pods,omitempty"`
}

// Pod is one of a version.
type Pod struct {
	Name string `json:"name"`
	// Status is a word as kubectl has it, such as Running or CrashLoopBackOff.
	Status   string    `json:"status"`
	Ready    bool      `json:"ready"`
	Restarts int32     `json:"restarts"`
	Created  time.Time `json:"created"`
}

// ready counts the pods that are.
func (v *Version) ready() (n int) {
	for i := range v.Pods {
		if v.Pods[i].Ready {
			n++
		}
	}
	return n
}

// State is how a Rollout stands, in one word.
type State string

// The states.
const (
	Initial     State = "Initial"
	Healthy     State = "Healthy"
	Progressing State = "Progressing"
	// Paused: somebody paused it, or its step waits for somebody.
	Paused State = "Paused"
	// Waiting: all steps are complete, and the stable Service has to get the new version.
	Waiting  State = "Waiting"
	Aborting State = "Aborting"
	Aborted  State = "Aborted"
	Disabled State = "Disabled"
	// Terminating: it is being deleted, and everything is put back.
	Terminating State = "Terminating"
)

// Measured is how many requests came to the two Services in a time.
type Measured struct {
	Stable  uint64  `json:"stable"`
	Canary  uint64  `json:"canary"`
	Seconds float64 `json:"seconds"`
}

// Past is a release, from its beginning to its end.
type Past struct {
	Revision int        `json:"revision"`
	Name     string     `json:"name"`
	Begun    time.Time  `json:"begun"`
	Ended    *time.Time `json:"ended,omitempty"`
	// Outcome is empty while the release goes on.
	Outcome Outcome `json:"outcome,omitempty"`
	// Endpoints of the version when the release began.
	Endpoints []string `json:"endpoints"`
}

// Revision is a version of a workload in a cluster that is kept.
type Revision struct {
	Revision int    `json:"revision"`
	Name     string `json:"name"`
	// Role is "stable" or "canary"; empty for one that is only kept.
	Role    string    `json:"role,omitempty"`
	Created time.Time `json:"created"`
	Images  []string  `json:"images"`
	// Pods is how many there are of it.
	Pods int `json:"pods"`
	// Cause is what somebody wrote in the annotation kubernetes.io/change-cause.
	Cause string `json:"cause,omitempty"`
}

// Revisions are those of a workload, the newest first.
type Revisions []Revision

// Outcome is how a release ended.
type Outcome string

// The outcomes.
const (
	Released  Outcome = "released"
	TakenBack Outcome = "taken back"
	Replaced  Outcome = "replaced"
)

// Event is something that happened to a Rollout.
type Event struct {
	Time    time.Time `json:"time"`
	Warning bool      `json:"warning,omitempty"`
	Message string    `json:"message"`
}
