// Package rollouts is the Rollout of OpenKruise (rollouts.kruise.io): one Go type into which both versions are decoded,
// the conversion between them, and what a valid one is. Its JSON form is that of v1beta1, so that manifests and clients
// written for OpenKruise work unchanged. The types are written anew, since OpenKruise's modules are not to be had as a
// library; path and queryParams are those of its proposal "Add Path and QueryParams support to trafficRoutings".
//
// It holds what a user wrote; internal/rollout interprets it.
package rollouts

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// Group is the API group.
const Group = "rollouts.kruise.io"

// IDLabel of a workload names a release by the user's own word.
const IDLabel = Group + "/rollout-id"

// Versions are all there are, the newest first.
var Versions = []string{"v1beta1", "v1alpha1"}

// Rollout releases a new version of a workload step by step.
type Rollout struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              Spec   `json:"spec"`
	Status            Status `json:"status,omitzero"`
}

// Spec is what is released, and how.
type Spec struct {
	WorkloadRef Ref      `json:"workloadRef"`
	Strategy    Strategy `json:"strategy"`
	// Disabled means that the Rollout has no effect.
	Disabled bool `json:"disabled,omitempty"`
}

// Ref names an object of the Rollout's namespace.
type Ref struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Name       string `json:"name"`
}

// Strategy is exactly one of Canary and BlueGreen.
type Strategy struct {
	// Paused stops the release where it is.
	Paused    bool       `json:"paused,omitempty"`
	Canary    *Canary    `json:"canary,omitempty"`
	BlueGreen *BlueGreen `json:"blueGreen,omitempty"`
}

// Plan is what both strategies have.
type Plan struct {
	Steps []Step `json:"steps,omitempty"`
	// TrafficRoutings has at most one entry; without one only pods are replaced.
	TrafficRoutings []TrafficRouting `json:"trafficRoutings,omitempty"`
	// FailureThreshold is how many of the new pods may be unavailable, as a number or a percentage. Unset means the
	// workload's maxUnavailable.
	FailureThreshold *intstr.IntOrString `json:"failureThreshold,omitempty"`
	// TrafficRoutingRef names a TrafficRouting object of OpenKruise.
	TrafficRoutingRef string `json:"trafficRoutingRef,omitempty"`
	// DisableGenerateCanaryService means that there is no Service for the canary's pods: stable and canary are told apart
	// by other means, such as subsets of an Istio DestinationRule.
	DisableGenerateCanaryService bool `json:"disableGenerateCanaryService,omitempty"`
}

// Canary replaces the workload's pods in steps.
type Canary struct {
	Plan `json:",inline"`
	// PatchPodTemplateMetadata is added to the pods of EnableExtraWorkloadForCanary. Pods that replace stable ones do not get
	// it: they stay when the release is over.
	PatchPodTemplateMetadata *PodTemplateMetadata `json:"patchPodTemplateMetadata,omitempty"`
	// EnableExtraWorkloadForCanary runs the canary's pods in a Deployment of their own, next to the stable one, until the
	// last step.
	EnableExtraWorkloadForCanary bool `json:"enableExtraWorkloadForCanary,omitempty"`
}

// BlueGreen runs all pods of both versions beside each other until the end.
type BlueGreen struct {
	Plan `json:",inline"`
}

// PodTemplateMetadata is metadata of pods.
type PodTemplateMetadata struct {
	Annotations map[string]string `json:"annotations,omitempty"`
	Labels      map[string]string `json:"labels,omitempty"`
}

// Step is one stage of a Rollout.
type Step struct {
	Routing `json:",inline"`
	// Replicas is how many pods the new version has in this step, as a number or as a percentage of the workload's.
	Replicas *intstr.IntOrString `json:"replicas,omitempty"`
	// Pause is how long the step lasts.
	Pause Pause `json:"pause,omitzero"`
}

// Routing says which requests the new version gets. If Matches is set, Traffic has no effect. Without either, the routes
// are as the user wrote them, and pods alone decide.
type Routing struct {
	// Traffic is a percentage such as "20%".
	Traffic *string `json:"traffic,omitempty"`
	// RequestHeaderModifier changes the requests that go to the new version.
	RequestHeaderModifier *gatewayv1.HTTPHeaderFilter `json:"requestHeaderModifier,omitempty"`
	// Matches name requests: each request that one of them matches.
	Matches []Match `json:"matches,omitempty"`
}

// Match matches requests that fulfil all its conditions.
type Match struct {
	Path        *gatewayv1.HTTPPathMatch        `json:"path,omitempty"`
	Headers     []gatewayv1.HTTPHeaderMatch     `json:"headers,omitempty"`
	QueryParams []gatewayv1.HTTPQueryParamMatch `json:"queryParams,omitempty"`
}

// Pause is how long a step lasts after its traffic was shifted.
type Pause struct {
	// Duration is in seconds; nil means until somebody approves.
	Duration *int32 `json:"duration,omitempty"`
}

// TrafficRouting names a Service and the objects that route requests to it. Several kinds of objects may be named at
// once.
type TrafficRouting struct {
	// Service is the Service of the stable version.
	Service string `json:"service"`
	// GracePeriodSeconds is how long proxies get to take over a change before the next one; nil means
	// DefaultGracePeriod.
	GracePeriodSeconds *int32      `json:"gracePeriodSeconds,omitempty"`
	Ingress            *IngressRef `json:"ingress,omitempty"`
	Gateway            *GatewayRef `json:"gateway,omitempty"`
	// CustomNetworkRefs names objects of other kinds, such as VirtualService, GRPCRoute or TrafficSplit.
	CustomNetworkRefs []Ref `json:"customNetworkRefs,omitempty"`
}

// DefaultGracePeriod is the default of TrafficRouting.GracePeriodSeconds.
const DefaultGracePeriod = 3

// IngressRef names an Ingress.
type IngressRef struct {
	// ClassType is "nginx" (the default), "higress", "mse" or "aliyun-alb".
	ClassType string `json:"classType,omitempty"`
	Name      string `json:"name"`
}

// GatewayRef names a route of the Gateway API.
type GatewayRef struct {
	HTTPRouteName *string `json:"httpRouteName,omitempty"`
}

// Style is how pods of the new version come to be.
type Style string

// The styles.
const (
	// ExtraPods is a canary whose pods are added to the stable ones, in a Deployment of their own.
	ExtraPods Style = "Canary"
	// Partition is a canary whose pods replace stable ones.
	Partition Style = "Partition"
	// BlueGreenStyle runs all pods of both versions.
	BlueGreenStyle Style = "BlueGreen"
)

// Style of the Rollout. Workloads other than Deployments have no extra pods, whatever the Rollout says.
func (s *Spec) Style() Style {
	switch {
	case s.Strategy.BlueGreen != nil:
		return BlueGreenStyle
	case s.Strategy.Canary != nil && s.Strategy.Canary.EnableExtraWorkloadForCanary && s.WorkloadRef.Kind == "Deployment":
		return ExtraPods
	}
	return Partition
}

// ExtraMetadata is what extra pods have beside the metadata of the workload's template; nil if that is nothing, or if there
// are no such pods.
func (s *Spec) ExtraMetadata() *PodTemplateMetadata {
	if s.Style() != ExtraPods || s.Strategy.Canary.PatchPodTemplateMetadata.empty() {
		return nil
	}
	return s.Strategy.Canary.PatchPodTemplateMetadata
}

// IgnoresMetadata reports whether PatchPodTemplateMetadata has no effect, as there are no extra pods.
func (s *Spec) IgnoresMetadata() bool {
	return s.Strategy.Canary != nil && !s.Strategy.Canary.PatchPodTemplateMetadata.empty() && s.Style() != ExtraPods
}

func (m *PodTemplateMetadata) empty() bool { return m == nil || len(m.Labels)+len(m.Annotations) == 0 }

// Plan of the strategy; nil if it has neither.
func (s *Strategy) Plan() *Plan {
	switch {
	case s.BlueGreen != nil:
		return &s.BlueGreen.Plan
	case s.Canary != nil:
		return &s.Canary.Plan
	}
	return nil
}

// Field is the path of the plan, "spec.strategy.canary" or "spec.strategy.blueGreen".
func (s *Strategy) Field() string {
	if s.BlueGreen != nil {
		return "spec.strategy.blueGreen"
	}
	return "spec.strategy.canary"
}

// Traffic is the plan's entry of TrafficRoutings, or nil.
func (p *Plan) Traffic() *TrafficRouting {
	if len(p.TrafficRoutings) == 0 {
		return nil
	}
	return &p.TrafficRoutings[0]
}

// CanaryService is the name of the Service of the new version's pods: that of the stable one if there is none of its
// own.
func (p *Plan) CanaryService() string {
	t := p.Traffic()
	switch {
	case t == nil:
		return ""
	case p.DisableGenerateCanaryService:
		return t.Service
	}
	return t.Service + "-canary"
}

// Shifts reports whether the step routes requests.
func (r *Routing) Shifts() bool { return r.Traffic != nil || len(r.Matches) > 0 }

// GracePeriod is in seconds.
func (t *TrafficRouting) GracePeriod() int32 {
	if t.GracePeriodSeconds == nil {
		return DefaultGracePeriod
	}
	return *t.GracePeriodSeconds
}
