package infra

import (
	"maps"
	"net/netip"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

const (
	// Audience is the audience of a proxy's token.
	Audience = "weir.weirmesh.github.io"
	// AdminPort is where a proxy serves /healthz, /readyz and /metrics. No listener may have it.
	AdminPort = 19080 // gateway.AdminPort
	// CAKey is the key of the ConfigMap of a Gateway that holds the certificates which vouch for the controller.
	CAKey = "ca.crt"

	// ManagedBy is the value of the label app.kubernetes.io/managed-by of every object that Weir makes.
	ManagedBy      = "weir"
	labelManagedBy = "app.kubernetes.io/managed-by"

	caFolder    = "/var/run/weir/ca"
	tokenFolder = "/var/run/weir/token"
	stateFolder = "/var/lib/weir"
)

// Options are properties of the controller that it gives to every Gateway's proxies.
type Options struct {
	// Controller is "host:port" where proxies reach the feed.
	Controller string
	// Image is the proxies' image unless parameters name one; ImagePullPolicy and ImagePullSecrets belong to it.
	Image            string
	ImagePullPolicy  corev1.PullPolicy
	ImagePullSecrets []corev1.LocalObjectReference
	// CA is PEM: the certificates that vouch for the controller.
	CA string
	// LogLevel and LogFormat are those of proxies unless parameters set them; empty leaves them to the proxy.
	LogLevel, LogFormat string
	// TrustDomain is that of the identities that the controller signs; empty is the one that proxies take by themselves.
	TrustDomain string
}

// Render returns the objects of one Gateway, in the order in which they must be applied, in the form for server-side
// apply: fields that are not set belong to others. ports are the served ones, sorted; without any there is no Service.
// addresses are the values of spec.addresses that are IP addresses; each gets its own Service. dynamic means that there
// is also one whose address the cluster chooses.
func Render(o Options, gateway *gatewayv1.Gateway, p Parameters, ports []int32, addresses []netip.Addr, dynamic bool) []*unstructured.Unstructured {
	r := newRenderer(o, gateway, p)
	r.add("v1", "ServiceAccount", &corev1.ServiceAccount{ObjectMeta: r.meta(r.name), AutomountServiceAccountToken: new(bool)})
	r.add("v1", "ConfigMap", &corev1.ConfigMap{ObjectMeta: r.meta(r.name), Data: map[string]string{CAKey: o.CA}})
	r.add("policy/v1", "PodDisruptionBudget", r.disruptionBudget())
	if len(ports) > 0 {
		if dynamic {
			r.add("v1", "Service", r.service(r.name, ports))
		}
		for _, address := range addresses {
			s := r.service(AddressName(gateway.Name, string(gateway.Spec.GatewayClassName), address), ports)
			if s.Spec.Type == corev1.ServiceTypeLoadBalancer {
				s.Spec.LoadBalancerIP = address.String()
			} else {
				s.Spec.ClusterIP = address.String()
			}
			r.add("v1", "Service", s)
		}
	}
	r.add("apps/v1", "Deployment", r.deployment())
	return r.objects
}

type renderer struct {
	Options
	gateway *gatewayv1.Gateway
	p       Parameters
	name    string
	// selector selects exactly the Gateway's pods. It must never change, since a Deployment's cannot.
	selector map[string]string
	objects  []*unstructured.Unstructured
}

func newRenderer(o Options, gateway *gatewayv1.Gateway, p Parameters) *renderer {
	class := string(gateway.Spec.GatewayClassName)
	return &renderer{Options: o, gateway: gateway, p: p, name: Name(gateway.Name, class), selector: map[string]string{
		gatewayv1.GatewayNameLabelKey:      labelValue(gateway.Name),
		gatewayv1.GatewayClassNameLabelKey: labelValue(class),
	}}
}

// add keeps the fields of a typed object that are set.
func (r *renderer) add(apiVersion, kind string, object any) {
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		panic(err) // a type of the API always converts
	}
	delete(content, "status")
	u := &unstructured.Unstructured{Object: content}
	u.SetAPIVersion(apiVersion)
	u.SetKind(kind)
	r.objects = append(r.objects, u)
}

// labels of every object, and of pods. The user's may replace purely descriptive ones.
func (r *renderer) labels() map[string]string {
	out := map[string]string{
		"app.kubernetes.io/name":      "weir",
		"app.kubernetes.io/component": "proxy",
		"app.kubernetes.io/instance":  r.name,
	}
	if i := r.gateway.Spec.Infrastructure; i != nil {
		for key, value := range i.Labels {
			out[string(key)] = string(value)
		}
	}
	maps.Copy(out, r.selector)
	out[labelManagedBy] = ManagedBy
	return out
}

func (r *renderer) annotations() map[string]string {
	i := r.gateway.Spec.Infrastructure
	if i == nil || len(i.Annotations) == 0 {
		return nil
	}
	out := make(map[string]string, len(i.Annotations))
	for key, value := range i.Annotations {
		out[string(key)] = string(value)
	}
	return out
}

func (r *renderer) meta(name string) metav1.ObjectMeta {
	controller := true
	return metav1.ObjectMeta{
		Name: name, Namespace: r.gateway.Namespace, Labels: r.labels(), Annotations: r.annotations(),
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: gatewayv1.GroupVersion.String(), Kind: "Gateway", Name: r.gateway.Name, UID: r.gateway.UID, Controller: &controller,
		}},
	}
}

// disruptionBudget lets pods go one at a time. It counts unavailable pods and not available ones, since with one
// replica the latter would block a node from being drained for ever.
func (r *renderer) disruptionBudget() *policyv1.PodDisruptionBudget {
	most := r.p.DisruptionBudget.MaxUnavailable
	if most == nil {
		most = &intstr.IntOrString{Type: intstr.Int, IntVal: 1}
	}
	always := policyv1.AlwaysAllow // a pod that serves nobody may always be evicted
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: r.meta(r.name),
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: most, Selector: &metav1.LabelSelector{MatchLabels: r.selector}, UnhealthyPodEvictionPolicy: &always,
		},
	}
}

func (r *renderer) deployment() *appsv1.Deployment {
	none, one := intstr.FromInt32(0), intstr.FromInt32(1)
	var history int32 = 2
	return &appsv1.Deployment{
		ObjectMeta: r.meta(r.name),
		Spec: appsv1.DeploymentSpec{
			Replicas:             r.p.Replicas,
			RevisionHistoryLimit: &history,
			Selector:             &metav1.LabelSelector{MatchLabels: r.selector},
			Strategy: appsv1.DeploymentStrategy{
				Type:          appsv1.RollingUpdateDeploymentStrategyType,
				RollingUpdate: &appsv1.RollingUpdateDeployment{MaxUnavailable: &none, MaxSurge: &one},
			},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: r.labels(), Annotations: r.annotations()},
				Spec:       r.pod(),
			},
		},
	}
}
