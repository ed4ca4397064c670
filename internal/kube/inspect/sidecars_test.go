package inspect

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube/replica"
	weirresource "github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// sidecars edits a namespace shop that asks for sidecars and in which all is well.
func sidecars(edit func(*Cluster, *SidecarNamespace)) func(*Cluster, *Input) {
	return func(c *Cluster, _ *Input) {
		c.Controller.Sidecars = inject.NewSettings()
		c.Controller.Sidecars.Namespace = c.Controller.Namespace
		n := &SidecarNamespace{Name: "shop", Label: inject.Enabled, Level: "privileged", Trust: map[string]string{managedBy: "weir"}}
		n.Pods = []corev1.Pod{podWith("web-1", true, nil), podWith("opted-out", false, map[string]string{inject.Label: inject.Disabled})}
		c.Sidecars = &Sidecars{Namespaces: []*SidecarNamespace{n}, Whole: true}
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

// setOf reads objects; it panics if they cannot be read.
func setOf(text string) *weirresource.Set {
	set, err := weirresource.Load(tlsconfig.Kinds(), []string{"-"}, strings.NewReader(text))
	if err != nil {
		panic(err)
	}
	return set
}

// TestTheNamespacesOfTLSConfigsAreKnown has ones whose own label counts, ones that never have sidecars, and one that is not
// watched; and webhooks that name some of them.
func TestTheNamespacesOfTLSConfigsAreKnown(t *testing.T) {
	const config = "---\n{apiVersion: tls.smi-spec.io/v1beta1, kind: TLSConfig, metadata: {name: a, namespace: %s}, spec: {selector: {matchLabels: {}}}}\n"
	var text strings.Builder
	for _, n := range []string{"shop", "bank", "labelled", "out", "kube-system", "weir-system"} {
		fmt.Fprintf(&text, config, n)
	}
	set := setOf(text.String())
	set.Namespaces = []*corev1.Namespace{
		{ObjectMeta: metav1.ObjectMeta{Name: "labelled", Labels: map[string]string{inject.Label: inject.Enabled}}}, {ObjectMeta: metav1.ObjectMeta{Name: "out", Labels: map[string]string{inject.Label: inject.Disabled}}},
	}
	if got := selectedNamespaces(set, &Controller{Namespace: "weir-system"}); !slices.Equal(got, []string{"bank", "shop"}) {
		t.Errorf("selected %q", got)
	}
	if got := selectedNamespaces(set, &Controller{Namespace: "weir-system", Namespaces: []string{"shop", "out"}}); !slices.Equal(got, []string{"shop"}) {
		t.Errorf("of those that are watched, %q", got)
	}
	hook := func(policy, operator, key string) any {
		return map[string]any{"failurePolicy": policy, "namespaceSelector": map[string]any{"matchExpressions": []any{map[string]any{"key": key, "operator": operator, "values": []any{policy + operator + key}}}}}
	}
	name := corev1.LabelMetadataName
	o := &unstructured.Unstructured{Object: map[string]any{"webhooks": []any{hook("Fail", "In", name), hook("Ignore", "In", name), hook("Fail", "NotIn", name), hook("Fail", "In", "team"), "x"}}}
	if got := namedBy(o); !slices.Equal(got, []string{"FailIn" + name}) {
		t.Errorf("named %q", got)
	}
}

func quota(name string, hard, used corev1.ResourceList) corev1.ResourceQuota {
	return corev1.ResourceQuota{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name}, Spec: corev1.ResourceQuotaSpec{Hard: hard}, Status: corev1.ResourceQuotaStatus{Hard: hard, Used: used}}
}

func amount(name corev1.ResourceName, text string) corev1.ResourceList {
	return corev1.ResourceList{name: resource.MustParse(text)}
}

// standing adds pods with sidecars, a name each for how they stand, and returns those that are connected.
func standing(n *SidecarNamespace, now time.Time) (connected []replica.Sidecar) {
	for _, name := range []string{"away", "starts", "behind", "failing", "ends", "ended", "image", "good"} {
		p := podWith(name, true, nil)
		p.Spec.InitContainers = []corev1.Container{{Name: workload.SidecarContainer, Image: "weir-proxy:2"}}
		s := replica.Sidecar{Pod: "shop/" + name, Serves: true, Behind: name == "behind", Wrong: name == "failing", Ends: now.Add(20 * time.Hour).Unix()}
		began := now.Add(-time.Hour)
		switch name {
		case "image":
			p.Spec.InitContainers[0].Image = "weir-proxy:1"
		case "ends":
			s.Ends = now.Add(5 * time.Hour).Unix()
		case "ended":
			s.Ends = now.Add(-time.Minute).Unix()
		case "starts":
			began = now
		}
		p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: workload.SidecarContainer, Ready: name != "failing", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(began)}}}}
		n.Pods = append(n.Pods, p)
		if name != "away" && name != "starts" {
			connected = append(connected, s)
		}
	}
	return connected
}

// TestSidecarsInShort counts them.
func TestSidecarsInShort(t *testing.T) {
	now := time.Date(2026, 11, 28, 12, 0, 0, 0, time.UTC)
	c := &Cluster{Controller: &Controller{Namespace: "weir-system", Sidecars: inject.NewSettings()}}
	n := &SidecarNamespace{Name: "shop", Label: inject.Enabled}
	c.Sidecars = &Sidecars{Namespaces: []*SidecarNamespace{n}}
	if got := c.sidecarSummary(now, "").String(); got != "0 of 0 pods ready" {
		t.Error(got)
	}
	c.Controller.Sidecars.Image = "weir-proxy:2"
	c.Sidecars.know(standing(n, now))
	n.Pods = append(n.Pods, podWith("bare", false, nil))
	want := "7 of 8 pods ready, 6 connected, 1 behind, 1 failing, 2 with certificates that are due, 1 of another image, 1 missing, certificates until 2026-11-28 11:59Z"
	if got := c.sidecarSummary(now, "").String(); got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if of, other := c.sidecarSummary(now, "shop").String(), c.sidecarSummary(now, "other").String(); of != want || other != "0 of 0 pods ready, 0 connected" {
		t.Errorf("of its namespace: %s\nof another one: %s", of, other)
	}
	c.Sidecars.ConnectedSeen = false
	if got := c.sidecarSummary(now, "").String(); got != "7 of 8 pods ready, 1 of another image, 1 missing" {
		t.Error(got)
	}
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
		n.Level, n.MeshField, n.Mesh = "restricted", "metadata.labels[istio-injection]", "Istio"
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
	"sidecars as they should not be": sidecars(func(c *Cluster, n *SidecarNamespace) {
		c.Controller.Sidecars.Image = "weir-proxy:2"
		n.Pods = nil
		c.Sidecars.know(standing(n, time.Now()))
	}),
	"sidecars of which status has less": sidecars(func(c *Cluster, n *SidecarNamespace) {
		c.Sidecars.Whole, n.Trust, n.Level = false, nil, "restricted"
		n.Pods = append(n.Pods, podWith("bare", false, nil))
	}),
	"sidecars selected": sidecars(func(c *Cluster, n *SidecarNamespace) {
		// Of shop, only some pods are selected; the API server is not asked about bank.
		n.Label, n.Selected, n.Pods = "", true, append(n.Pods, podWith("selected", false, map[string]string{"app": "pay"}), podWith("other", false, map[string]string{"app": "web"}))
		c.Sidecars.Namespaces = append(c.Sidecars.Namespaces, &SidecarNamespace{
			Name: "bank", Selected: true, Level: "baseline", Trust: n.Trust, Unasked: []string{"MutatingWebhookConfiguration weir-controller-tlsconfigs"},
		})
		c.Sidecars.TLSConfigs = tlsconfig.NewIndex(setOf(`{apiVersion: tls.smi-spec.io/v1beta1, kind: TLSConfig, metadata: {name: pay, namespace: shop}, spec: {selector: {matchLabels: {app: pay}}}}`), nil)
	}),
	"sidecars not injected": sidecars(func(c *Cluster, n *SidecarNamespace) {
		c.Sidecars.Missing = []string{"MutatingWebhookConfiguration weir-controller-sidecars"}
		n.Trust = nil
		c.Sidecars.Namespaces = append(c.Sidecars.Namespaces,
			&SidecarNamespace{Name: "blog", Label: inject.Enabled, Trust: map[string]string{"app": "mine"}}, &SidecarNamespace{Name: "kube-system", Label: inject.Enabled},
			&SidecarNamespace{Name: "typo", Label: "true", Pods: []corev1.Pod{podWith("web", false, nil)}}, &SidecarNamespace{Name: "asks-itself", Pods: []corev1.Pod{podWith("web", false, map[string]string{inject.Label: inject.Enabled})}})
	}),
}
