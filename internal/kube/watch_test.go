package kube

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestOfGatewaysOwnServicesTheAddressesAreKept holds what is known of a Service's status: where a Gateway is reached, and nothing of other Services.
func TestOfGatewaysOwnServicesTheAddressesAreKept(t *testing.T) {
	for _, c := range []struct {
		labels map[string]string
		want   int
	}{{nil, 0}, {map[string]string{gatewayv1.GatewayNameLabelKey: "edge"}, 1}} {
		s := &corev1.Service{ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: c.labels}}
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: "192.0.2.1"}}
		s.Status.Conditions = []metav1.Condition{{Type: "Other"}}
		if strip(s); len(s.Status.LoadBalancer.Ingress) != c.want || s.Status.Conditions != nil {
			t.Errorf("labels %v: status %+v", c.labels, s.Status)
		}
	}
}
