package controller

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// TestAServiceAccountIsOfTheOlderGateway checks that nobody can take over a Gateway's proxies by creating another
// Gateway whose objects have the same name.
func TestAServiceAccountIsOfTheOlderGateway(t *testing.T) {
	edge := func(name, class string, age time.Duration) *gatewayv1.Gateway {
		return &gatewayv1.Gateway{
			ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name, CreationTimestamp: metav1.NewTime(time.Unix(1e9, 0).Add(-age))},
			Spec:       gatewayv1.GatewaySpec{GatewayClassName: gatewayv1.ObjectName(class)},
		}
	}
	all := []*gatewayv1.Gateway{edge("a", "b-c", time.Hour), edge("a-b", "c", time.Minute)}
	for range 2 {
		accounts := accountsOf(all)
		if len(accounts) != 1 || accounts["shop/a-b-c"] != "shop/a" {
			t.Errorf("accounts %v", accounts)
		}
		all[0], all[1] = all[1], all[0]
	}
}
