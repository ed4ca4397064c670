package balancer

import (
	"net/netip"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var pool = Pool{
	First: netip.MustParseAddr("192.0.2.1"), Last: netip.MustParseAddr("192.0.2.3"), Asked: netip.MustParseAddr("192.0.2.5"),
}

// service that asks for an address and has one, each empty if none; older ones first.
func service(name string, age time.Duration, asks, has string) *corev1.Service {
	s := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: "n", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1_000_000, 0).Add(-age))},
		Spec:       corev1.ServiceSpec{Type: corev1.ServiceTypeLoadBalancer, LoadBalancerIP: asks},
	}
	if has != "" {
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: has}}
	}
	return s
}

// answers are the addresses, or the reasons for none, by the Services' names.
func answers(decisions []decision) map[string]string {
	m := make(map[string]string)
	for _, d := range decisions {
		if d.address.IsValid() {
			m[d.service.Name] = d.address.String()
		} else {
			m[d.service.Name] = d.reason
		}
	}
	return m
}

func TestServicesGetAddressesOfTheirOwn(t *testing.T) {
	other, class := service("other", 0, "", ""), "example.com/other"
	other.Spec.LoadBalancerClass = &class
	internal := service("internal", 0, "", "")
	internal.Spec.Type = corev1.ServiceTypeClusterIP
	for _, c := range []struct {
		name     string
		services []*corev1.Service
		last     string
		want     map[string]string
	}{
		{"in the order of their age", []*corev1.Service{service("b", 1, "", ""), service("a", 2, "", "")}, "", map[string]string{"a": "192.0.2.1", "b": "192.0.2.2"}},
		{"one that asks", []*corev1.Service{service("a", 0, "192.0.2.5", "")}, "", map[string]string{"a": "192.0.2.5"}},
		{"what one has is kept", []*corev1.Service{service("a", 2, "192.0.2.2", ""), service("b", 1, "", "192.0.2.2")}, "", map[string]string{"a": reasonTaken, "b": "192.0.2.2"}},
		{"unless it asks for another", []*corev1.Service{service("a", 2, "192.0.2.4", "192.0.2.1"), service("b", 1, "192.0.2.1", "")}, "", map[string]string{"a": "192.0.2.4", "b": "192.0.2.1"}},
		{"of two that have the same", []*corev1.Service{service("a", 2, "", "192.0.2.1"), service("b", 1, "", "192.0.2.1")}, "", map[string]string{"a": "192.0.2.1", "b": "192.0.2.2"}},
		{"outside the pool", []*corev1.Service{service("a", 0, "192.0.2.6", ""), service("b", 0, "192.0.2.0", ""), service("c", 0, "nonsense", "")}, "",
			map[string]string{"a": reasonNotInPool, "b": reasonNotInPool, "c": reasonNotInPool}},
		{"one that has what the pool does not", []*corev1.Service{service("a", 0, "", "198.51.100.1")}, "", map[string]string{"a": "192.0.2.1"}},
		{"in turn", []*corev1.Service{service("a", 0, "", "")}, "192.0.2.1", map[string]string{"a": "192.0.2.2"}},
		{"and round again", []*corev1.Service{service("a", 2, "", ""), service("b", 1, "", "192.0.2.1")}, "192.0.2.3", map[string]string{"a": "192.0.2.2", "b": "192.0.2.1"}},
		{"until none is left", []*corev1.Service{service("a", 5, "", ""), service("b", 4, "", ""), service("c", 3, "", ""), service("d", 2, "", ""), service("e", 1, "192.0.2.4", "")}, "",
			map[string]string{"a": "192.0.2.1", "b": "192.0.2.2", "c": "192.0.2.3", "d": reasonExhausted, "e": "192.0.2.4"}},
		{"only ours", []*corev1.Service{other, internal}, "", map[string]string{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var last netip.Addr
			if c.last != "" {
				last = netip.MustParseAddr(c.last)
			}
			decisions, _ := pool.assign(c.services, current, last)
			got := answers(decisions)
			if len(got) != len(c.want) {
				t.Errorf("decisions about %v, want %v", got, c.want)
			}
			for name, want := range c.want {
				if got[name] != want {
					t.Errorf("%s: %s, want %s", name, got[name], want)
				}
			}
		})
	}
}
