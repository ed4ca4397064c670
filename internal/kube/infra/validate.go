package infra

import (
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// maxDrain bounds each of the times of Drain.
const maxDrain = time.Hour

// reservedEnv are set by Weir itself.
var reservedEnv = []string{"WEIR_GATEWAY", "WEIR_CONTROLLER", "WEIR_CA_FILE", "WEIR_TOKEN_FILE", "WEIR_STATE_DIR", "WEIR_ADMIN", "WEIR_DRAIN_DELAY",
	"WEIR_DRAIN_TIMEOUT", "WEIR_LOG_LEVEL", "WEIR_LOG_FORMAT", "WEIR_ACCESS_LOG"}

// validate finds values that an API server would refuse in the objects made from the parameters, if a field of ours is
// the cause, and values that Weir does not support.
func (p *Parameters) validate() field.ErrorList {
	var errs field.ErrorList
	if p.Replicas != nil && *p.Replicas < 0 {
		errs = append(errs, field.Invalid(field.NewPath("replicas"), *p.Replicas, "must be 0 or more"))
	}
	errs = append(errs, oneOf(field.NewPath("imagePullPolicy"), p.ImagePullPolicy, corev1.PullAlways, corev1.PullIfNotPresent, corev1.PullNever)...)
	if strings.TrimSpace(p.Image) != p.Image {
		errs = append(errs, field.Invalid(field.NewPath("image"), p.Image, "has spaces around it"))
	}
	for i, s := range p.ImagePullSecrets {
		errs = append(errs, texts(field.NewPath("imagePullSecrets").Index(i).Child("name"), s.Name, validation.IsDNS1123Subdomain(s.Name))...)
	}
	if p.PriorityClassName != "" {
		errs = append(errs, texts(field.NewPath("priorityClassName"), p.PriorityClassName, validation.IsDNS1123Subdomain(p.PriorityClassName))...)
	}
	errs = append(errs, validateResources(p.Resources, field.NewPath("resources"))...)
	errs = append(errs, metav1validation.ValidateLabels(p.NodeSelector, field.NewPath("nodeSelector"))...)
	errs = append(errs, validateTolerations(p.Tolerations, field.NewPath("tolerations"))...)
	errs = append(errs, validateSpread(p.TopologySpreadConstraints, field.NewPath("topologySpreadConstraints"))...)
	errs = append(errs, p.DisruptionBudget.validate(field.NewPath("disruptionBudget"))...)
	errs = append(errs, p.Service.validate(field.NewPath("service"))...)
	errs = append(errs, validateDrain(p.Drain.Delay, field.NewPath("drain", "delay"))...)
	errs = append(errs, validateDrain(p.Drain.Timeout, field.NewPath("drain", "timeout"))...)
	errs = append(errs, oneOf(field.NewPath("logLevel"), p.LogLevel, "debug", "info", "warn", "error")...)
	errs = append(errs, oneOf(field.NewPath("logFormat"), p.LogFormat, "text", "json")...)
	errs = append(errs, oneOf(field.NewPath("accessLog"), p.AccessLog, "off", "stdout", "stderr")...)
	errs = append(errs, p.AccessLogOptions.validate(field.NewPath("accessLogOptions"))...)
	errs = append(errs, p.RequestID.validate(field.NewPath("requestID"))...)
	errs = append(errs, p.Tracing.validate(field.NewPath("tracing"))...)
	for _, name := range slices.Sorted(maps.Keys(p.Env)) {
		path := field.NewPath("env").Key(name)
		errs = append(errs, texts(path, name, validation.IsEnvVarName(name))...)
		if slices.Contains(reservedEnv, name) {
			errs = append(errs, field.Forbidden(path, "Weir sets this itself"))
		}
	}
	allow, deny := p.Gateways.unknown()
	for _, name := range allow {
		errs = append(errs, field.NotSupported(field.NewPath(classOnly, "allow"), name, guarded))
	}
	for _, name := range deny {
		errs = append(errs, field.Invalid(field.NewPath(classOnly, "deny"), name, "is not a parameter"))
	}
	return errs
}

func texts(path *field.Path, value any, messages []string) field.ErrorList {
	var errs field.ErrorList
	for _, m := range messages {
		errs = append(errs, field.Invalid(path, value, m))
	}
	return errs
}

// oneOf accepts the empty value too.
func oneOf[T ~string](path *field.Path, value T, allowed ...T) field.ErrorList {
	if value == "" || slices.Contains(allowed, value) {
		return nil
	}
	return field.ErrorList{field.NotSupported(path, value, allowed)}
}

func validateResources(r *corev1.ResourceRequirements, path *field.Path) field.ErrorList {
	if r == nil {
		return nil
	}
	var errs field.ErrorList
	for _, list := range []struct {
		name string
		of   corev1.ResourceList
	}{{"limits", r.Limits}, {"requests", r.Requests}} {
		for _, name := range slices.Sorted(maps.Keys(list.of)) {
			at := path.Child(list.name).Key(string(name))
			if q := list.of[name]; q.Sign() < 0 {
				errs = append(errs, field.Invalid(at, q.String(), "must be 0 or more"))
			}
			errs = append(errs, texts(at, name, validation.IsQualifiedName(string(name)))...)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(r.Requests)) {
		request := r.Requests[name]
		if limit, ok := r.Limits[name]; ok && request.Cmp(limit) > 0 {
			errs = append(errs, field.Invalid(path.Child("requests").Key(string(name)), request.String(), "must not be above the limit of "+limit.String()))
		}
	}
	if len(r.Claims) > 0 {
		errs = append(errs, field.Forbidden(path.Child("claims"), "a proxy claims no devices"))
	}
	return errs
}

func validateTolerations(tolerations []corev1.Toleration, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, t := range tolerations {
		at := path.Index(i)
		if t.Key != "" {
			errs = append(errs, metav1validation.ValidateLabelName(t.Key, at.Child("key"))...)
		}
		errs = append(errs, oneOf(at.Child("operator"), t.Operator, corev1.TolerationOpEqual, corev1.TolerationOpExists)...)
		errs = append(errs, oneOf(at.Child("effect"), t.Effect, corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute)...)
		if t.Operator == corev1.TolerationOpExists && t.Value != "" {
			errs = append(errs, field.Invalid(at.Child("value"), t.Value, "must be empty when the operator is Exists"))
		}
		if t.Key == "" && t.Operator != corev1.TolerationOpExists {
			errs = append(errs, field.Invalid(at.Child("operator"), t.Operator, "must be Exists when there is no key"))
		}
		if t.TolerationSeconds != nil && t.Effect != corev1.TaintEffectNoExecute {
			errs = append(errs, field.Invalid(at.Child("effect"), t.Effect, "must be NoExecute when tolerationSeconds is set"))
		}
	}
	return errs
}

func validateSpread(constraints []corev1.TopologySpreadConstraint, path *field.Path) field.ErrorList {
	var errs field.ErrorList
	for i, c := range constraints {
		at := path.Index(i)
		if c.MaxSkew <= 0 {
			errs = append(errs, field.Invalid(at.Child("maxSkew"), c.MaxSkew, "must be 1 or more"))
		}
		if c.TopologyKey == "" {
			errs = append(errs, field.Required(at.Child("topologyKey"), "names the label of nodes to spread over"))
		} else {
			errs = append(errs, metav1validation.ValidateLabelName(c.TopologyKey, at.Child("topologyKey"))...)
		}
		if c.WhenUnsatisfiable == "" {
			errs = append(errs, field.Required(at.Child("whenUnsatisfiable"), "is DoNotSchedule or ScheduleAnyway"))
		}
		errs = append(errs, oneOf(at.Child("whenUnsatisfiable"), c.WhenUnsatisfiable, corev1.DoNotSchedule, corev1.ScheduleAnyway)...)
		errs = append(errs, metav1validation.ValidateLabelSelector(c.LabelSelector, metav1validation.LabelSelectorValidationOptions{}, at.Child("labelSelector"))...)
	}
	return errs
}

func (d DisruptionBudget) validate(path *field.Path) field.ErrorList {
	m := d.MaxUnavailable
	if m == nil {
		return nil
	}
	at := path.Child("maxUnavailable")
	if m.Type == intstr.String {
		return texts(at, m.StrVal, validation.IsValidPercent(m.StrVal))
	}
	if m.IntVal < 0 {
		return field.ErrorList{field.Invalid(at, m.IntVal, "must be 0 or more, or a percentage")}
	}
	return nil
}

func validateDrain(d *metav1.Duration, path *field.Path) field.ErrorList {
	if d == nil || d.Duration >= 0 && d.Duration <= maxDrain {
		return nil
	}
	return field.ErrorList{field.Invalid(path, d.Duration.String(), "must be from 0s to "+maxDrain.String())}
}

func (s *ServiceParameters) validate(path *field.Path) field.ErrorList {
	errs := oneOf(path.Child("type"), s.Type, corev1.ServiceTypeLoadBalancer, corev1.ServiceTypeClusterIP, corev1.ServiceTypeNodePort)
	balanced := s.Type == "" || s.Type == corev1.ServiceTypeLoadBalancer
	for _, f := range []struct {
		name string
		set  bool
	}{
		{"loadBalancerClass", s.LoadBalancerClass != nil},
		{"loadBalancerSourceRanges", len(s.LoadBalancerSourceRanges) > 0},
		{"allocateLoadBalancerNodePorts", s.AllocateLoadBalancerNodePorts != nil},
	} {
		if f.set && !balanced {
			errs = append(errs, field.Forbidden(path.Child(f.name), "is for type LoadBalancer"))
		}
	}
	if c := s.LoadBalancerClass; c != nil {
		errs = append(errs, texts(path.Child("loadBalancerClass"), *c, validation.IsQualifiedName(*c))...)
	}
	for i, r := range s.LoadBalancerSourceRanges {
		if _, err := netip.ParsePrefix(r); err != nil {
			errs = append(errs, field.Invalid(path.Child("loadBalancerSourceRanges").Index(i), r, "must be a network such as 192.0.2.0/24"))
		}
	}
	errs = append(errs, oneOf(path.Child("externalTrafficPolicy"), s.ExternalTrafficPolicy,
		corev1.ServiceExternalTrafficPolicyCluster, corev1.ServiceExternalTrafficPolicyLocal)...)
	if s.ExternalTrafficPolicy != "" && s.Type == corev1.ServiceTypeClusterIP {
		errs = append(errs, field.Forbidden(path.Child("externalTrafficPolicy"), "is for types LoadBalancer and NodePort"))
	}
	if f := s.IPFamilyPolicy; f != nil {
		errs = append(errs, oneOf(path.Child("ipFamilyPolicy"), *f,
			corev1.IPFamilyPolicySingleStack, corev1.IPFamilyPolicyPreferDualStack, corev1.IPFamilyPolicyRequireDualStack)...)
	}
	for i, f := range s.IPFamilies {
		errs = append(errs, oneOf(path.Child("ipFamilies").Index(i), f, corev1.IPv4Protocol, corev1.IPv6Protocol)...)
	}
	return append(errs, apivalidation.ValidateAnnotations(s.Annotations, path.Child("annotations"))...)
}
