package rollouts

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Status is how a Rollout stands.
type Status struct {
	ObservedGeneration int64            `json:"observedGeneration,omitempty"`
	CanaryStatus       *CanaryStatus    `json:"canaryStatus,omitempty"`
	BlueGreenStatus    *BlueGreenStatus `json:"blueGreenStatus,omitempty"`
	Conditions         []Condition      `json:"conditions,omitempty"`
	Phase              Phase            `json:"phase,omitempty"`
	// Message says why the Rollout is in its phase.
	Message string `json:"message,omitempty"`
	// CurrentStepIndex and CurrentStepState repeat those of CanaryStatus or BlueGreenStatus.
	CurrentStepIndex int32     `json:"currentStepIndex"`
	CurrentStepState StepState `json:"currentStepState"`
}

// Phase of a Rollout.
type Phase string

// The phases.
const (
	PhaseInitial     Phase = "Initial"
	PhaseHealthy     Phase = "Healthy"
	PhaseProgressing Phase = "Progressing"
	PhaseTerminating Phase = "Terminating"
	PhaseDisabling   Phase = "Disabling"
	PhaseDisabled    Phase = "Disabled"
)

// StepState is how far a step is.
type StepState string

// The states of a step, in their order.
const (
	StepInit            StepState = "BeforeStepUpgrade"
	StepUpgrade         StepState = "StepUpgrade"
	StepTrafficRouting  StepState = "StepTrafficRouting"
	StepMetricsAnalysis StepState = "StepMetricsAnalysis"
	StepPaused          StepState = "StepPaused"
	StepReady           StepState = "StepReady"
	StepCompleted       StepState = "Completed"
)

// FinalisingStep is a part of the end of a release.
type FinalisingStep string

// The parts; internal/rollout has their order.
const (
	RouteTrafficToNew      FinalisingStep = "FinalisingStepRouteTrafficToNew"
	RouteTrafficToStable   FinalisingStep = "FinalisingStepRouteTrafficToStable"
	RestoreStableService   FinalisingStep = "RestoreStableService"
	RemoveCanaryService    FinalisingStep = "RemoveCanaryService"
	ResumeWorkload         FinalisingStep = "ResumeWorkload"
	ReleaseWorkloadControl FinalisingStep = "ReleaseWorkloadControl"
	FinalisingEnd          FinalisingStep = "END"
)

// Condition is one of the types below.
type Condition struct {
	Type               string                 `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	LastUpdateTime     metav1.Time            `json:"lastUpdateTime,omitzero"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime,omitzero"`
	Reason             string                 `json:"reason"`
	Message            string                 `json:"message"`
}

// Types of conditions, and the reasons of Progressing and Terminating.
const (
	ConditionProgressing = "Progressing"
	ConditionSucceeded   = "Succeeded"
	ConditionTerminating = "Terminating"
	// ConditionMetadata is False while pods do not get patchPodTemplateMetadata. It is Weir's own.
	ConditionMetadata = "PodMetadata"

	// ConditionAsWritten is False while a step is carried out that cannot be as it is written. It is Weir's own.
	ConditionAsWritten = "StepAsWritten"

	// ReasonNoExtraPods is one of ConditionMetadata.
	ReasonNoExtraPods = "NoExtraPods"
	// ReasonTrafficIgnored and ReasonNotExpressed are those of ConditionAsWritten.
	ReasonTrafficIgnored = "TrafficIgnored"
	ReasonNotExpressed   = "NotExpressed"

	ReasonInitializing  = "Initializing"
	ReasonInRolling     = "InRolling"
	ReasonFinalising    = "Finalising"
	ReasonCompleted     = "Completed"
	ReasonCancelling    = "Cancelling"
	ReasonPaused        = "Paused"
	ReasonInTerminating = "InTerminating"
)

// Release is what CanaryStatus and BlueGreenStatus have in common.
type Release struct {
	ObservedWorkloadGeneration int64  `json:"observedWorkloadGeneration,omitempty"`
	ObservedRolloutID          string `json:"observedRolloutID,omitempty"`
	// RolloutHash is that of the plan that is carried out.
	RolloutHash string `json:"rolloutHash,omitempty"`
	// StableRevision is the version that is replaced.
	StableRevision string `json:"stableRevision,omitempty"`
	// PodTemplateHash is the label by which a Service selects pods of the new version.
	PodTemplateHash string `json:"podTemplateHash"`
	// CurrentStepIndex counts from 1. NextStepIndex is -1 after the last step; who writes it makes the Rollout jump there.
	CurrentStepIndex int32          `json:"currentStepIndex"`
	NextStepIndex    int32          `json:"nextStepIndex"`
	FinalisingStep   FinalisingStep `json:"finalisingStep"`
	CurrentStepState StepState      `json:"currentStepState"`
	Message          string         `json:"message,omitempty"`
	LastUpdateTime   *metav1.Time   `json:"lastUpdateTime,omitempty"`
}

// CanaryStatus is the Release of a canary.
type CanaryStatus struct {
	Release             `json:",inline"`
	CanaryRevision      string `json:"canaryRevision"`
	CanaryReplicas      int32  `json:"canaryReplicas"`
	CanaryReadyReplicas int32  `json:"canaryReadyReplicas"`
}

// BlueGreenStatus is the Release of a blue-green strategy.
type BlueGreenStatus struct {
	Release              `json:",inline"`
	UpdatedRevision      string `json:"updatedRevision"`
	UpdatedReplicas      int32  `json:"updatedReplicas"`
	UpdatedReadyReplicas int32  `json:"updatedReadyReplicas"`
}

// Release returns that of either strategy, or nil.
func (s *Status) Release() *Release {
	switch {
	case s.CanaryStatus != nil:
		return &s.CanaryStatus.Release
	case s.BlueGreenStatus != nil:
		return &s.BlueGreenStatus.Release
	}
	return nil
}

// Revision is the new version that is released, whichever the strategy.
func (s *Status) Revision() string {
	switch {
	case s.CanaryStatus != nil:
		return s.CanaryStatus.CanaryRevision
	case s.BlueGreenStatus != nil:
		return s.BlueGreenStatus.UpdatedRevision
	}
	return ""
}

// Replaces is the revision that the release replaces, as long as it goes on, also while another version takes the place of its own; empty
// once it is being ended, as then the workload itself says what serves.
func (s *Status) Replaces() string {
	rel := s.Release()
	if rel == nil || s.Phase != PhaseProgressing {
		return ""
	}
	if rel.FinalisingStep != "" {
		switch c := s.Condition(ConditionProgressing); {
		case c == nil, c.Reason == ReasonFinalising, c.Reason == ReasonCancelling, c.Reason == ReasonCompleted:
			return ""
		}
	}
	return rel.StableRevision
}

// Begin makes the release the current one, for the strategy of a spec.
func (s *Status) Begin(spec *Spec, r Release, revision string) {
	s.CanaryStatus, s.BlueGreenStatus = nil, nil
	if spec.Strategy.BlueGreen != nil {
		s.BlueGreenStatus = &BlueGreenStatus{Release: r, UpdatedRevision: revision}
		return
	}
	s.CanaryStatus = &CanaryStatus{Release: r, CanaryRevision: revision}
}

// Count records how many pods of the new version there are, and how many of them are ready.
func (s *Status) Count(replicas, ready int32) {
	if s.CanaryStatus != nil {
		s.CanaryStatus.CanaryReplicas, s.CanaryStatus.CanaryReadyReplicas = replicas, ready
	}
	if s.BlueGreenStatus != nil {
		s.BlueGreenStatus.UpdatedReplicas, s.BlueGreenStatus.UpdatedReadyReplicas = replicas, ready
	}
}

// Condition returns the condition of a type, or nil.
func (s *Status) Condition(kind string) *Condition {
	for i := range s.Conditions {
		if s.Conditions[i].Type == kind {
			return &s.Conditions[i]
		}
	}
	return nil
}
