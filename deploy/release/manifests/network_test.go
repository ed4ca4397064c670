package main

import (
	"net/netip"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"
)

// end is one end of a connection: a pod, or an address outside the cluster, which has no labels.
type end struct {
	namespace string
	labels    labels.Set
	address   string
}

func (e end) pod() bool { return e.labels != nil }

// network judges connections by NetworkPolicies, as networking.k8s.io/v1 says: a pod that policies of a direction select takes part in
// what one of them allows and nothing else.
type network []*networkingv1.NetworkPolicy

// networkOf is that of a chart with values.
func networkOf(t *testing.T, values string) (n network) {
	t.Helper()
	set := map[string]any{}
	if err := yaml.Unmarshal([]byte(values), &set); err != nil {
		t.Fatal(err)
	}
	objects, err := render(load(t), set)
	if err != nil {
		t.Fatal(err)
	}
	for _, o := range objects {
		if o.Head.Kind != "NetworkPolicy" {
			continue
		}
		p := &networkingv1.NetworkPolicy{}
		if err := yaml.UnmarshalStrict([]byte(o.Content), p); err != nil {
			t.Fatalf("%v\n%s", err, o.Content)
		}
		n = append(n, p)
	}
	return n
}

func selects(t *testing.T, s *metav1.LabelSelector, of labels.Set) bool {
	t.Helper()
	selector, err := metav1.LabelSelectorAsSelector(s)
	if err != nil {
		t.Fatal(err)
	}
	return selector.Matches(of)
}

// peer says whether an end is one that a rule of a policy in a namespace names.
func peer(t *testing.T, p networkingv1.NetworkPolicyPeer, namespace string, e end) bool {
	t.Helper()
	if b := p.IPBlock; b != nil {
		address := netip.MustParseAddr(e.address)
		return netip.MustParsePrefix(b.CIDR).Contains(address) &&
			!slices.ContainsFunc(b.Except, func(x string) bool { return netip.MustParsePrefix(x).Contains(address) })
	}
	if !e.pod() || p.NamespaceSelector == nil && e.namespace != namespace {
		return false
	}
	return (p.NamespaceSelector == nil || selects(t, p.NamespaceSelector, labels.Set{corev1.LabelMetadataName: e.namespace})) &&
		(p.PodSelector == nil || selects(t, p.PodSelector, e.labels))
}

func rule(t *testing.T, peers []networkingv1.NetworkPolicyPeer, ports []networkingv1.NetworkPolicyPort, namespace string, e end, protocol corev1.Protocol, port int32) bool {
	t.Helper()
	named := len(peers) == 0 || slices.ContainsFunc(peers, func(p networkingv1.NetworkPolicyPeer) bool { return peer(t, p, namespace, e) })
	open := len(ports) == 0 || slices.ContainsFunc(ports, func(p networkingv1.NetworkPolicyPort) bool {
		if p.Protocol != nil && *p.Protocol != protocol || p.Protocol == nil && protocol != corev1.ProtocolTCP {
			return false
		}
		if p.Port == nil {
			return true
		}
		if p.Port.Type == intstr.String {
			t.Fatal("ports have numbers here")
		}
		last := p.Port.IntVal
		if p.EndPort != nil {
			last = *p.EndPort
		}
		return p.Port.IntVal <= port && port <= last
	})
	return named && open
}

// allows says whether one end may connect to a port of another.
func (n network) allows(t *testing.T, from, to end, protocol corev1.Protocol, port int32) bool {
	t.Helper()
	outHeld, outOpen, inHeld, inOpen := false, false, false, false
	for _, p := range n {
		if from.pod() && p.Namespace == from.namespace && selects(t, &p.Spec.PodSelector, from.labels) && slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeEgress) {
			outHeld = true
			for _, r := range p.Spec.Egress {
				outOpen = outOpen || rule(t, r.To, r.Ports, p.Namespace, to, protocol, port)
			}
		}
		if to.pod() && p.Namespace == to.namespace && selects(t, &p.Spec.PodSelector, to.labels) && slices.Contains(p.Spec.PolicyTypes, networkingv1.PolicyTypeIngress) {
			inHeld = true
			for _, r := range p.Spec.Ingress {
				inOpen = inOpen || rule(t, r.From, r.Ports, p.Namespace, from, protocol, port)
			}
		}
	}
	return (!outHeld || outOpen) && (!inHeld || inOpen)
}

// The ends of the tests: pods with the labels that the chart and internal/kube/infra give, and others.
var (
	controllerPod = end{namespace, labels.Set{
		"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "controller", "app.kubernetes.io/instance": "weir", "app.kubernetes.io/part-of": "weir",
	}, "10.244.0.2"}
	metadata  = end{address: "169.254.169.254"}
	client    = end{address: "203.0.113.7"}
	apiServer = end{address: "198.51.100.1"}
)

func proxyIn(namespace string) end {
	return end{namespace, labels.Set{
		"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "proxy", "app.kubernetes.io/instance": "edge-weir", "app.kubernetes.io/managed-by": "weir",
		"gateway.networking.k8s.io/gateway-name": "edge", "gateway.networking.k8s.io/gateway-class-name": "weir",
	}, "10.244.0.3"}
}

func podIn(namespace string, of labels.Set) end { return end{namespace, of, "10.244.0.4"} }

type flow struct {
	from, to end
	protocol corev1.Protocol
	port     int32
	allowed  bool
}

func judge(t *testing.T, n network, flows map[string]flow) {
	t.Helper()
	for name, f := range flows {
		if f.protocol == "" {
			f.protocol = corev1.ProtocolTCP
		}
		if got := n.allows(t, f.from, f.to, f.protocol, f.port); got != f.allowed {
			t.Errorf("%s: allowed is %t, want %t", name, got, f.allowed)
		}
	}
}

func TestNetworkPoliciesOfAllNamespaces(t *testing.T) {
	n := networkOf(t, "{}")
	if len(n) != 1 {
		t.Fatalf("%d policies", len(n))
	}
	shop := podIn("shop", labels.Set{"app": "cart"})
	judge(t, n, map[string]flow{
		"proxy asks for its configuration":         {proxyIn("shop"), controllerPod, "", 18000, true},
		"proxy of another namespace, too":          {proxyIn("blog"), controllerPod, "", 18000, true},
		"another pod to the feed":                  {shop, controllerPod, "", 18000, false},
		"a pod called weir to the feed":            {podIn("shop", labels.Set{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "proxy"}), controllerPod, "", 18000, false},
		"from outside to the feed":                 {client, controllerPod, "", 18000, false},
		"a controller to the feed of another":      {controllerPod, controllerPod, "", 18000, true}, // for taps
		"a controller elsewhere to the feed":       {podIn("shop", controllerPod.labels), controllerPod, "", 18000, false},
		"a controller to that of one elsewhere":    {controllerPod, podIn("shop", controllerPod.labels), "", 18000, false},
		"the API server has versions converted":    {apiServer, controllerPod, "", 18443, true},
		"a pod may ask, too":                       {shop, controllerPod, "", 18443, true}, // in many networks the API server cannot be told from it
		"the Service's port is not the pod's":      {apiServer, controllerPod, "", 443, false},
		"Prometheus":                               {podIn("monitoring", labels.Set{"app": "prometheus"}), controllerPod, "", 19081, true},
		"metrics from outside":                     {client, controllerPod, "", 19081, false},
		"another port of the controller":           {proxyIn("shop"), controllerPod, "", 8080, false},
		"controller to the API server":             {controllerPod, apiServer, "", 443, true},
		"controller to the API server on a node":   {controllerPod, apiServer, "", 6443, true},
		"controller to another pod":                {controllerPod, shop, "", 8080, false},
		"controller to metadata of the cloud":      {controllerPod, metadata, "", 80, false},
		"controller to a name server":              {controllerPod, podIn("kube-system", labels.Set{"k8s-app": "kube-dns"}), corev1.ProtocolUDP, 53, false},
		"controller to a proxy's report":           {controllerPod, proxyIn("shop"), "", 19080, true},
		"controller to such a port of another pod": {controllerPod, shop, "", 19080, false},
		"controller to another port of a proxy":    {controllerPod, proxyIn("shop"), "", 80, false},
		"controller to a Prometheus":               {controllerPod, podIn("monitoring", labels.Set{"app": "prometheus"}), "", 9090, false},
		"a pod of weir-system that is none of its": {shop, podIn(namespace, labels.Set{"app": "other"}), "", 8080, true},
	})
}

func TestNetworkPoliciesOfNamedNamespaces(t *testing.T) {
	n := networkOf(t, `
namespaces: [shop]
networkPolicies:
  proxyNamespaces: [blog]
  metricsFrom:
  - namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}
    podSelector: {matchLabels: {app: prometheus}}
  apiServer: {cidrs: [198.51.100.0/24], ports: [443]}
  conversionFrom: [{ipBlock: {cidr: 198.51.100.0/24}}]
`)
	if len(n) != 3 {
		t.Fatalf("%d policies", len(n))
	}
	cart, post := podIn("shop", labels.Set{"app": "cart"}), podIn("blog", labels.Set{"app": "post"})
	names := podIn("kube-system", labels.Set{"k8s-app": "kube-dns"})
	prometheus := podIn("monitoring", labels.Set{"app": "prometheus"})
	judge(t, n, map[string]flow{
		"proxy asks for its configuration":            {proxyIn("shop"), controllerPod, "", 18000, true},
		"proxy of a namespace that is not watched":    {proxyIn("elsewhere"), controllerPod, "", 18000, false},
		"another pod to the feed":                     {cart, controllerPod, "", 18000, false},
		"the API server has versions converted":       {apiServer, controllerPod, "", 18443, true},
		"a proxy asks for conversions":                {proxyIn("shop"), controllerPod, "", 18443, false},
		"another pod asks for conversions":            {cart, controllerPod, "", 18443, false},
		"a client asks for conversions":               {client, controllerPod, "", 18443, false},
		"Prometheus to the controller":                {prometheus, controllerPod, "", 19081, true},
		"Prometheus to a proxy":                       {prometheus, proxyIn("shop"), "", 19080, true},
		"another pod to a proxy's admin endpoint":     {cart, proxyIn("shop"), "", 19080, false},
		"another pod to the controller's":             {cart, controllerPod, "", 19081, false},
		"a client to a proxy's admin endpoint":        {client, proxyIn("shop"), "", 19080, false},
		"a proxy to another's admin endpoint":         {proxyIn("shop"), proxyIn("shop"), "", 19080, false},
		"a client":                                    {client, proxyIn("shop"), "", 80, true},
		"a client of a high port":                     {client, proxyIn("shop"), "", 30443, true},
		"another pod as a client":                     {post, proxyIn("shop"), "", 443, true},
		"UDP":                                         {client, proxyIn("shop"), corev1.ProtocolUDP, 443, false},
		"proxy to a backend":                          {proxyIn("shop"), cart, "", 8080, true},
		"proxy to a pod of another namespace":         {proxyIn("shop"), podIn("elsewhere", labels.Set{}), "", 8080, false},
		"proxy to the controller's admin endpoint":    {proxyIn("shop"), controllerPod, "", 19081, false},
		"proxy to a name server":                      {proxyIn("shop"), names, corev1.ProtocolUDP, 53, true},
		"proxy to the API server":                     {proxyIn("shop"), apiServer, "", 443, false},
		"proxy to metadata of the cloud":              {proxyIn("shop"), metadata, "", 80, false},
		"proxy to the internet":                       {proxyIn("shop"), client, "", 443, false},
		"proxy of a namespace with a policy alone":    {client, proxyIn("blog"), "", 19080, false},
		"controller to the API server":                {controllerPod, apiServer, "", 443, true},
		"controller to another address":               {controllerPod, client, "", 443, false},
		"controller to a proxy":                       {controllerPod, proxyIn("shop"), "", 80, false},
		"controller to a proxy's report":              {controllerPod, proxyIn("shop"), "", 19080, true},
		"controller to one that it does not watch":    {controllerPod, proxyIn("elsewhere"), "", 19080, false},
		"pods that are none of Weir's are left alone": {client, cart, "", 19080, true},
	})
	outside := networkOf(t, "{namespaces: [shop], networkPolicies: {backends: [{ipBlock: {cidr: 203.0.113.0/24}}]}}")
	judge(t, outside, map[string]flow{
		"proxy to a backend outside":     {proxyIn("shop"), client, "", 443, true},
		"proxy to another":               {proxyIn("shop"), metadata, "", 80, false},
		"proxy to pods, which are named": {proxyIn("shop"), cart, "", 8080, false},
	})
	asked := networkOf(t, `
namespaces: [shop]
networkPolicies: {metricsFrom: [], prometheus: {to: [{namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: monitoring}}}], ports: [9091]}}
traffic: {prometheus: {url: "http://prometheus.monitoring"}}
`)
	judge(t, asked, map[string]flow{
		"controller to Prometheus":                  {controllerPod, prometheus, "", 9091, true},
		"controller to another port of it":          {controllerPod, prometheus, "", 9090, false},
		"controller to a name server":               {controllerPod, names, corev1.ProtocolUDP, 53, true},
		"controller to a proxy, which is not asked": {controllerPod, proxyIn("shop"), "", 19080, false},
		"controller to other pods":                  {controllerPod, cart, "", 9091, false},
	})
	judge(t, networkOf(t, "{namespaces: [shop], networkPolicies: {metricsFrom: []}, traffic: {enabled: false}}"), map[string]flow{
		"controller to a proxy's report":    {controllerPod, proxyIn("shop"), "", 19080, false},
		"controller to a name server":       {controllerPod, names, corev1.ProtocolUDP, 53, false},
		"whoever is called controller":      {podIn(namespace, controllerPod.labels), proxyIn("shop"), "", 19080, false},
		"controller to Prometheus":          {controllerPod, prometheus, "", 9090, false},
		"a controller to another, untapped": {controllerPod, controllerPod, "", 18000, false},
		"proxy asks for its configuration":  {proxyIn("shop"), controllerPod, "", 18000, true},
	})
	if n := networkOf(t, "networkPolicies: {create: false}"); len(n) != 0 {
		t.Errorf("%d policies without create", len(n))
	}
}
