package control_test

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"reflect"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/test/size"
)

// changing is a cluster that changes at random: pods with sidecars and without, Services, their endpoints, splits, a
// TLSConfig, policies and a Gateway.
type changing struct {
	*testing.T
	*resource.Collection
	*rand.Rand
}

func (c *changing) put(text string) {
	c.Helper()
	read := func(to any) {
		if err := yaml.Unmarshal([]byte(text), to); err != nil {
			c.Fatal(err)
		}
	}
	var u map[string]any
	read(&u)
	switch u["kind"] {
	case "Service":
		s := &corev1.Service{}
		read(s)
		c.Put(resource.Adopt(dialect.Kinds(), s))
		return
	case "EndpointSlice":
		s := &discoveryv1.EndpointSlice{}
		read(s)
		c.Put(resource.Adopt(dialect.Kinds(), s))
		return
	}
	o, err := resource.Decode(dialect.Kinds(), &unstructured.Unstructured{Object: u})
	if err != nil {
		c.Fatal(err)
	}
	c.Put(o)
}

const pods, services = 6, 4

// change puts one object, or takes it away.
func (c *changing) change() {
	c.Helper()
	pod, service := c.IntN(pods), c.IntN(services)
	gone := c.IntN(4) == 0
	remove := func(group, kind, name string) {
		c.Remove(resource.Key{Group: group, Kind: kind, Namespace: "shop", Name: name})
	}
	switch c.IntN(10) {
	case 0, 1:
		name := fmt.Sprintf("p%d", pod)
		if gone {
			remove("", "Pod", name)
			return
		}
		sidecar := []string{"", ", initContainers: [{name: weir-sidecar, restartPolicy: Always}]"}[c.IntN(2)]
		c.put(fmt.Sprintf("{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: %s, labels: {app: a%d}}, spec: {serviceAccountName: s%d, containers: [{name: c, ports: [{containerPort: %d}]}]%s}, status: {podIP: 10.0.0.%d}}",
			name, c.IntN(services), c.IntN(3), []int{8080, 3306}[c.IntN(2)], sidecar, pod+1))
	case 2:
		name := fmt.Sprintf("a%d", service)
		if gone {
			remove("", "Service", name)
			return
		}
		c.put(fmt.Sprintf("{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: %s}, spec: {clusterIP: 10.96.0.%d, selector: {app: %s}, ports: [{port: 80, name: %s, targetPort: 8080}, {port: 3306, name: db}]}}",
			name, service/2*2+c.IntN(2), name, []string{"http", "x"}[c.IntN(2)]))
	case 3, 4, 5, 6:
		name := fmt.Sprintf("a%d-1", service)
		if gone {
			remove("discovery.k8s.io", "EndpointSlice", name)
			return
		}
		ends := ""
		for i := range pods {
			if c.IntN(2) == 0 {
				ends += fmt.Sprintf("{addresses: [10.0.0.%d], targetRef: {kind: Pod, namespace: shop, name: p%d}}, ", i+1, i)
			}
		}
		c.put(fmt.Sprintf("{apiVersion: discovery.k8s.io/v1, kind: EndpointSlice, metadata: {namespace: shop, name: %s, labels: {kubernetes.io/service-name: a%d}}, addressType: IPv4, ports: [{name: http, port: 8080}, {name: db, port: 3306}], endpoints: [%s]}", name, service, ends))
	case 7:
		name := fmt.Sprintf("split-%d", c.IntN(2))
		if gone {
			remove("split.smi-spec.io", "TrafficSplit", name)
			return
		}
		c.put(fmt.Sprintf("{apiVersion: split.smi-spec.io/v1alpha2, kind: TrafficSplit, metadata: {namespace: shop, name: %s}, spec: {service: a%d, backends: [{service: a%d, weight: 90}, {service: a%d, weight: 10}]}}", name, service, c.IntN(services), c.IntN(services)))
	case 8:
		if gone {
			remove("access.smi-spec.io", "TrafficTarget", "t")
			return
		}
		c.put(fmt.Sprintf("{apiVersion: access.smi-spec.io/v1alpha3, kind: TrafficTarget, metadata: {namespace: shop, name: t}, spec: {destination: {kind: ServiceAccount, name: s%d, namespace: shop}, sources: [{kind: ServiceAccount, name: s0, namespace: shop}], rules: [{kind: TCPRoute, name: all}]}}", c.IntN(3)))
	case 9:
		if gone {
			remove("tls.smi-spec.io", "TLSConfig", "c")
			return
		}
		c.put(fmt.Sprintf("{apiVersion: tls.smi-spec.io/v1beta1, kind: TLSConfig, metadata: {namespace: shop, name: c}, spec: {subjectNames: [a0], selector: {matchLabels: {app: a%d}}}}", c.IntN(services)))
	}
}

func sameConfig(a, b *model.Config) bool {
	if a == nil || b == nil {
		return a == b
	}
	return reflect.DeepEqual(a, b) || a.Equal(b)
}

// TestWhatIsMadeAgainIsWhatIsMadeAnew has a cluster change at random, and compares what a Translator that has seen each state
// makes with what one makes that has seen the last alone. Configurations are asked for now and then, as connected sidecars do.
func TestWhatIsMadeAgainIsWhatIsMadeAnew(t *testing.T) {
	var to []netip.AddrPort
	for i := range 8 {
		for _, port := range []uint16{80, 3306, 8080, 9999} {
			to = append(to, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), port), netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i)}), port))
		}
	}
	known, kept := 0, 0
	for seed := range uint64(size.Of(4, 12)) {
		c := &changing{t, resource.NewCollection(dialect.Kinds()), rand.New(rand.NewPCG(seed, 1))}
		c.put("{apiVersion: specs.smi-spec.io/v1alpha4, kind: TCPRoute, metadata: {namespace: shop, name: all}, spec: {matches: {}}}")
		c.put("{apiVersion: gateway.networking.k8s.io/v1, kind: GatewayClass, metadata: {name: weir}, spec: {controllerName: weirmesh.github.io/gateway-controller}}")
		c.put("{apiVersion: gateway.networking.k8s.io/v1, kind: Gateway, metadata: {namespace: shop, name: edge}, spec: {gatewayClassName: weir, listeners: [{name: http, port: 80, protocol: HTTP}]}}")
		c.put("{apiVersion: gateway.networking.k8s.io/v1, kind: HTTPRoute, metadata: {namespace: shop, name: r}, spec: {parentRefs: [{name: edge}], rules: [{backendRefs: [{name: a0, port: 80}, {name: a1, port: 80}]}]}}")
		o := control.InCluster()
		o.Mesh = true
		again := control.NewTranslator(o)
		var before *control.Sidecars
		for step := range 150 {
			c.change()
			set := c.Set()
			is, err := again.Translate(set)
			if err != nil {
				t.Fatal(err)
			}
			want, err := o.Translate(c.Set())
			if err != nil {
				t.Fatal(err)
			}
			if !is.Config.Equal(want.Config) || !reflect.DeepEqual(is.Findings, want.Findings) || !reflect.DeepEqual(is.Statuses, want.Statuses) || !reflect.DeepEqual(is.Events, want.Events) {
				t.Fatalf("seed %d, step %d: another result", seed, step)
			}
			if step%3 == 2 {
				continue // nobody asks
			}
			for _, at := range to {
				got, made := is.Sidecars.To("shop", at), want.Sidecars.To("shop", at)
				if !sameConfig(got, made) {
					t.Fatalf("seed %d, step %d: %s: %+v, want %+v", seed, step, at, got, made)
				}
				if got != nil {
					if known++; before != nil && before.To("shop", at) == got {
						kept++
					}
				}
			}
			for i := range pods {
				got, left := is.Sidecars.Inbound("shop", fmt.Sprint("p", i))
				made, leftOut := want.Sidecars.Inbound("shop", fmt.Sprint("p", i))
				if !sameConfig(got, made) || !slices.Equal(left, leftOut) {
					t.Fatalf("seed %d, step %d: p%d: %+v, want %+v", seed, step, i, got, made)
				}
				if before != nil && is.Sidecars.SameInbound(before) {
					if earlier, _ := before.Inbound("shop", fmt.Sprint("p", i)); !sameConfig(earlier, got) {
						t.Fatalf("seed %d, step %d: p%d is not the same", seed, step, i)
					}
				}
			}
			got, _ := is.Sidecars.Outbound("shop")
			if made, _ := want.Sidecars.Outbound("shop"); !sameConfig(got, made) {
				t.Fatalf("seed %d, step %d: another Outbound", seed, step)
			}
			before = is.Sidecars
		}
	}
	if known < 1000 || kept < known/10 {
		t.Errorf("%d destinations were known, %d of them taken over", known, kept)
	}
	t.Logf("%d destinations were known, %d of them taken over", known, kept)
}
