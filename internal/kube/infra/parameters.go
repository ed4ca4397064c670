package infra

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/resource"
)

// ParametersKey is the key of a ConfigMap under which parameters are written, as YAML.
const ParametersKey = "parameters.yaml"

// Parameters say how a Gateway's proxies are run. The zero value of each field leaves the choice to Weir.
type Parameters struct {
	// Replicas of the Deployment. If it is not set, others may scale the Deployment, such as a HorizontalPodAutoscaler;
	// it begins with one.
	Replicas *int32 `json:"replicas,omitempty"`

	Image            string                        `json:"image,omitempty"`
	ImagePullPolicy  corev1.PullPolicy             `json:"imagePullPolicy,omitempty"`
	ImagePullSecrets []corev1.LocalObjectReference `json:"imagePullSecrets,omitempty"`

	Resources         *corev1.ResourceRequirements `json:"resources,omitempty"`
	NodeSelector      map[string]string            `json:"nodeSelector,omitempty"`
	Tolerations       []corev1.Toleration          `json:"tolerations,omitempty"`
	PriorityClassName string                       `json:"priorityClassName,omitempty"`
	// Affinity and TopologySpreadConstraints replace Weir's. Constraints without a labelSelector are about the Gateway's
	// own pods.
	Affinity                  *corev1.Affinity                  `json:"affinity,omitempty"`
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`

	DisruptionBudget DisruptionBudget  `json:"disruptionBudget,omitzero"`
	Service          ServiceParameters `json:"service,omitzero"`
	Drain            Drain             `json:"drain,omitzero"`

	// LogLevel, LogFormat and AccessLog are the flags of those names of "weir proxy".
	LogLevel  string `json:"logLevel,omitempty"`
	LogFormat string `json:"logFormat,omitempty"`
	AccessLog string `json:"accessLog,omitempty"`
	// AccessLogOptions and RequestID are its flags whose names begin so.
	AccessLogOptions AccessLogOptions `json:"accessLogOptions,omitzero"`
	RequestID        RequestID        `json:"requestID,omitzero"`
	// Tracing says where traces go, and of which requests.
	Tracing Tracing `json:"tracing,omitzero"`
	// Env are variables of the proxy's environment, which can set each flag of "weir proxy" (WEIR_...) that Weir does not.
	Env map[string]string `json:"env,omitempty"`

	// Gateways say which of all these the Gateways of a class may set themselves.
	Gateways GatewayFields `json:"gateways,omitzero"`
}

// DisruptionBudget is that of the Gateway's pods.
type DisruptionBudget struct {
	// MaxUnavailable is a number of pods or a percentage; 1 if not set.
	MaxUnavailable *intstr.IntOrString `json:"maxUnavailable,omitempty"`
}

// ServiceParameters are for all Services of a Gateway. Without another comment, they are the fields of ServiceSpec.
type ServiceParameters struct {
	// Type is LoadBalancer (if not set), ClusterIP or NodePort.
	Type                          corev1.ServiceType                  `json:"type,omitempty"`
	LoadBalancerClass             *string                             `json:"loadBalancerClass,omitempty"`
	LoadBalancerSourceRanges      []string                            `json:"loadBalancerSourceRanges,omitempty"`
	AllocateLoadBalancerNodePorts *bool                               `json:"allocateLoadBalancerNodePorts,omitempty"`
	ExternalTrafficPolicy         corev1.ServiceExternalTrafficPolicy `json:"externalTrafficPolicy,omitempty"`
	IPFamilyPolicy                *corev1.IPFamilyPolicy              `json:"ipFamilyPolicy,omitempty"`
	IPFamilies                    []corev1.IPFamily                   `json:"ipFamilies,omitempty"`
	// Annotations are added to those of spec.infrastructure.
	Annotations map[string]string `json:"annotations,omitempty"`
}

// Drain configures how a proxy's pod ends.
type Drain struct {
	// Delay is how long an ending pod still accepts connections, until senders of traffic know that it ends; 5 s if not
	// set.
	Delay *metav1.Duration `json:"delay,omitempty"`
	// Timeout is how long requests in flight may take after that; 30 s if not set.
	Timeout *metav1.Duration `json:"timeout,omitempty"`
}

// AccessLogOptions configure the access log: each field is the flag of "weir proxy" --access-log-FIELD.
type AccessLogOptions struct {
	Format          string           `json:"format,omitempty"`
	RequestHeaders  []string         `json:"requestHeaders,omitempty"`
	ResponseHeaders []string         `json:"responseHeaders,omitempty"`
	Unmask          []string         `json:"unmask,omitempty"`
	Sample          string           `json:"sample,omitempty"`
	MinDuration     *metav1.Duration `json:"minDuration,omitempty"`
	Statuses        []string         `json:"statuses,omitempty"`
	Reasons         []string         `json:"reasons,omitempty"`
	Routes          []string         `json:"routes,omitempty"`
}

// RequestID configures whether requests get ids, in which header field, and whether clients are told.
type RequestID struct {
	// Mode is on (if not set), trusted or off.
	Mode     string `json:"mode,omitempty"`
	Header   string `json:"header,omitempty"`
	InAnswer *bool  `json:"inAnswer,omitempty"`
}

const (
	defaultDrainDelay   = 5 * time.Second
	defaultDrainTimeout = 30 * time.Second
)

func (d Drain) delay() time.Duration   { return orDefault(d.Delay, defaultDrainDelay) }
func (d Drain) timeout() time.Duration { return orDefault(d.Timeout, defaultDrainTimeout) }

func orDefault(d *metav1.Duration, otherwise time.Duration) time.Duration {
	if d == nil {
		return otherwise
	}
	return d.Duration
}

// classParameters reads what a GatewayClass refers to, with nil for no reference.
func classParameters(set *resource.Set, class *gatewayv1.GatewayClass) (map[string]any, *resource.Finding) {
	at, ok := resource.ClassParameters(class)
	if !ok {
		return nil, nil
	}
	if at.Namespace == "" {
		return nil, new(resource.Problem("", "", "spec.parametersRef.namespace", "a ConfigMap has a namespace", "write the namespace of the ConfigMap"))
	}
	return readParameters(set, "spec.parametersRef", at)
}

// gatewayParameters reads what spec.infrastructure of a Gateway refers to, with nil for no reference.
func gatewayParameters(set *resource.Set, gateway *gatewayv1.Gateway) (map[string]any, *resource.Finding) {
	at, ok := resource.GatewayParameters(gateway)
	if !ok {
		return nil, nil
	}
	return readParameters(set, "spec.infrastructure.parametersRef", at)
}

// readParameters returns the document in a ConfigMap, which is valid by itself.
func readParameters(set *resource.Set, field string, from resource.Key) (map[string]any, *resource.Finding) {
	if from.Group != "" || from.Kind != "ConfigMap" {
		return nil, new(resource.Problem("", "", field, fmt.Sprintf("parameters of kind %q of group %q are not supported", from.Kind, from.Group),
			`refer to a ConfigMap (group "", kind ConfigMap)`))
	}
	at := fmt.Sprintf("%s: ConfigMap %s/%s", field, from.Namespace, from.Name)
	object := set.ConfigMap(from.Namespace, from.Name)
	if object == nil && !set.Watches(from.Namespace) {
		return nil, new(resource.Problem("", "", at, "it does not exist, or its namespace is not watched by this controller, which watches "+strings.Join(set.Watched, ", ")+" and its own",
			"move it to the controller's namespace, or add its namespace to the controller's --namespaces"))
	}
	if object == nil {
		return nil, new(resource.Problem("", "", at, "it does not exist", "create it, or remove the reference"))
	}
	text, ok := object.Data[ParametersKey]
	if !ok {
		return nil, new(resource.Problem("", "", at, fmt.Sprintf("it has no key %s", ParametersKey), "write the parameters under this key"))
	}
	at += fmt.Sprintf(" data[%q]", ParametersKey)
	_, document, err := decodeParameters([]byte(text))
	if err != nil {
		return nil, new(resource.Problem("", "", at, err.Error(), "correct the parameters (docs/kubernetes.md lists them)"))
	}
	return document, nil
}

// decodeParameters reads and checks one document, and also returns it as a tree. Unknown and repeated fields are
// errors, and so are fields that differ from known ones in case: the fields that a Gateway may set are judged by name,
// in the tree.
func decodeParameters(text []byte) (p Parameters, document map[string]any, err error) {
	j, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return Parameters{}, nil, err
	}
	strict, err := kjson.UnmarshalStrict(j, &p)
	if err == nil && len(strict) > 0 {
		err = strict[0]
	}
	if err == nil {
		err = json.Unmarshal(j, &document)
	}
	if err != nil {
		return Parameters{}, nil, err
	}
	return p, document, p.validate().ToAggregate()
}

// mergeParameters applies a Gateway's document over that of its class as a JSON merge patch (RFC 7396): a mapping is
// merged field by field, everything else is replaced, null removes the class's value.
func mergeParameters(class, gateway map[string]any) (Parameters, error) {
	merged, err := yaml.Marshal(mergePatch(class, gateway))
	if err != nil {
		return Parameters{}, err
	}
	p, _, err := decodeParameters(merged)
	return p, err
}

func mergePatch(base, patch map[string]any) map[string]any {
	out := maps.Clone(base)
	if out == nil {
		out = map[string]any{}
	}
	for key, value := range patch {
		if value == nil {
			delete(out, key)
			continue
		}
		inner, ok := value.(map[string]any)
		if !ok {
			out[key] = value
			continue
		}
		below, _ := out[key].(map[string]any)
		out[key] = mergePatch(below, inner)
	}
	return out
}
