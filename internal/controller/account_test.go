package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
	"github.com/weirmesh/weir/internal/resource"
)

// TestAServiceAccountIsOfTheOlderGateway checks that nobody can take over a Gateway's proxies by creating another
// Gateway whose objects have the same name.
func TestAServiceAccountIsOfTheOlderGateway(t *testing.T) {
	class := func(name, controller string) *gatewayv1.GatewayClass {
		return &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: gatewayv1.GatewayClassSpec{ControllerName: gatewayv1.GatewayController(controller)}}
	}
	edge := func(name, class string, age time.Duration) *gatewayv1.Gateway {
		return &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec:       gatewayv1.GatewaySpec{GatewayClassName: gatewayv1.ObjectName(class)},
		}
	}
	set := &resource.Set{
		GatewayClasses: []*gatewayv1.GatewayClass{class("c", dialect.ControllerName), class("b-c", dialect.ControllerName), class("theirs", "example.com/c")},
		Gateways:       []*gatewayv1.Gateway{edge("a", "b-c", time.Hour), edge("a-b", "c", time.Minute), edge("x", "theirs", time.Hour), edge("y", "none", time.Hour)},
	}
	for range 2 {
		gateways, accounts := ours(set)
		if len(gateways) != 2 || len(accounts) != 1 || accounts["shop/a-b-c"] != "shop/a" {
			t.Errorf("gateways %v, accounts %v", gateways, accounts)
		}
		set.Gateways[0], set.Gateways[1] = set.Gateways[1], set.Gateways[0]
	}
}
