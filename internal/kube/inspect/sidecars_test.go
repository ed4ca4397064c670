package inspect

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/inject"
)

// sidecars edits a namespace shop that asks for sidecars and in which all is well.
func sidecars(edit func(*Cluster, *SidecarNamespace)) func(*Cluster, *Input) {
	return func(c *Cluster, _ *Input) {
		c.Controller.Sidecars = inject.NewSettings()
		c.Controller.Sidecars.Namespace = c.Controller.Namespace
		n := &SidecarNamespace{Name: "shop", Label: inject.Enabled, Level: "privileged", Trust: map[string]string{managedBy: "weir"}}
		n.Pods = []corev1.Pod{podWith("web-1", true, nil), podWith("opted-out", false, map[string]string{inject.Label: inject.Disabled})}
		c.Sidecars = &Sidecars{Namespaces: []*SidecarNamespace{n}}
		edit(c, n)
	}
}

func podWith(name string, sidecar bool, labels map[string]string) corev1.Pod {
	p := corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, Labels: labels}}
	if sidecar {
		p.Annotations = map[string]string{inject.Annotation: "{}"}
	}
	return p
}

func quota(name string, hard, used corev1.ResourceList) corev1.ResourceQuota {
	return corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}
}

func amount(name corev1.ResourceName, text string) corev1.ResourceList {
	return corev1.ResourceList{name: resource.MustParse(text)}
}

// sidecarCases are those of TestFindings about sidecars.
var sidecarCases = map[string]func(*Cluster, *Input){
	"sidecars good": sidecars(func(c *Cluster, n *SidecarNamespace) {
		n.Quotas = []corev1.ResourceQuota{quota("enough", amount("limits.memory", "10Gi"), amount("limits.memory", "9Gi")), quota("of others", amount("requests.nvidia.com/gpu", "1"), nil), quota("filled in", amount("requests.cpu", "4"), nil)}
		delete(c.Controller.Sidecars.Requests, corev1.ResourceCPU) // the limit counts
		scoped := quota("of best effort", amount("limits.memory", "1"), nil)
		scoped.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeBestEffort}
		n.Quotas = append(n.Quotas, scoped)
		n.Ranges = []corev1.LimitRange{{Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Max: amount("memory", "1Gi"), Min: amount("cpu", "1m")}, {Type: corev1.LimitTypePod, Max: amount("memory", "1")},
		}}}}
	}),
	"sidecars refused": sidecars(func(c *Cluster, n *SidecarNamespace) {
		n.Level = "restricted"
		delete(c.Controller.Sidecars.Limits, corev1.ResourceCPU)
		n.Quotas = []corev1.ResourceQuota{quota("demands", amount("limits.cpu", "10"), nil), quota("full", amount("memory", "1Gi"), amount("memory", "1Gi"))}
		n.Ranges = []corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "narrow"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
			{Type: corev1.LimitTypeContainer, Max: amount("memory", "64Mi"), Min: amount("cpu", "100m"), MaxLimitRequestRatio: amount("memory", "2")},
		}}}}
	}),
	"sidecars without": sidecars(func(_ *Cluster, n *SidecarNamespace) {
		for _, name := range []string{"d", "c", "b", "a"} {
			n.Pods = append(n.Pods, podWith(name, false, nil))
		}
		node := podWith("agent", false, nil)
		node.Spec.HostNetwork = true
		n.Pods = append(n.Pods, node)
	}),
	"sidecars not injected": sidecars(func(c *Cluster, n *SidecarNamespace) {
		c.Sidecars.Missing = []string{"MutatingWebhookConfiguration weir-controller-sidecars"}
		n.Trust = nil
		c.Sidecars.Namespaces = append(c.Sidecars.Namespaces,
			&SidecarNamespace{Name: "blog", Label: inject.Enabled, Trust: map[string]string{"app": "mine"}}, &SidecarNamespace{Name: "kube-system", Label: inject.Enabled},
			&SidecarNamespace{Name: "typo", Label: "true", Pods: []corev1.Pod{podWith("web", false, nil)}}, &SidecarNamespace{Name: "asks-itself", Pods: []corev1.Pod{podWith("web", false, map[string]string{inject.Label: inject.Enabled})}})
	}),
}
