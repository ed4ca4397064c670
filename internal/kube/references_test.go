package kube

import (
	"maps"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/resource"
)

func TestEveryReferenceOfOursIsFound(t *testing.T) {
	set := resource.NewSet(resource.Kubernetes())
	name := func(namespace, name string) metav1.ObjectMeta {
		return metav1.ObjectMeta{Namespace: namespace, Name: name}
	}
	other := gatewayv1.Namespace("other")
	set.GatewayClasses = []*gatewayv1.GatewayClass{
		{ObjectMeta: name("", "ours"), Spec: gatewayv1.GatewayClassSpec{ControllerName: ours, ParametersRef: &gatewayv1.ParametersReference{Kind: "ConfigMap", Name: "class", Namespace: &other}}},
		{ObjectMeta: name("", "theirs"), Spec: gatewayv1.GatewayClassSpec{ControllerName: "example.com/c", ParametersRef: &gatewayv1.ParametersReference{Kind: "ConfigMap", Name: "no", Namespace: &other}}},
	}
	certificate := func(name string, namespace *gatewayv1.Namespace) *gatewayv1.ListenerTLSConfig {
		return &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: gatewayv1.ObjectName(name), Namespace: namespace}}}
	}
	authorities := func(kind, name string) gatewayv1.TLSConfig {
		return gatewayv1.TLSConfig{Validation: &gatewayv1.FrontendTLSValidation{CACertificateRefs: []gatewayv1.ObjectReference{{Kind: gatewayv1.Kind(kind), Name: gatewayv1.ObjectName(name)}}}}
	}
	widget := gatewayv1.Kind("Widget")
	gw := &gatewayv1.Gateway{ObjectMeta: name("ns", "g"), Spec: gatewayv1.GatewaySpec{
		GatewayClassName: "ours",
		Listeners: []gatewayv1.Listener{
			{Name: "a", TLS: certificate("listener", nil)}, {Name: "b", TLS: certificate("elsewhere", &other)}, {Name: "c"},
			{Name: "e", TLS: certificate("not-granted", &other)},
			{Name: "d", TLS: &gatewayv1.ListenerTLSConfig{CertificateRefs: []gatewayv1.SecretObjectReference{{Name: "widget", Kind: &widget}}}},
		},
		Infrastructure: &gatewayv1.GatewayInfrastructure{ParametersRef: &gatewayv1.LocalParametersReference{Kind: "ConfigMap", Name: "gateway"}},
		TLS: &gatewayv1.GatewayTLSConfig{
			Backend: &gatewayv1.GatewayBackendTLS{ClientCertificateRef: &gatewayv1.SecretObjectReference{Name: "client"}},
			Frontend: &gatewayv1.FrontendTLSConfig{Default: authorities("ConfigMap", "frontend"), PerPort: []gatewayv1.TLSPortConfig{
				{Port: 8443, TLS: authorities("Secret", "port")}, {Port: 9443},
			}},
		},
	}}
	granted := gatewayv1.ObjectName("elsewhere")
	set.ReferenceGrants = []*gatewayv1.ReferenceGrant{{ObjectMeta: name("other", "to-ns"), Spec: gatewayv1.ReferenceGrantSpec{
		From: []gatewayv1.ReferenceGrantFrom{{Group: gatewayv1.GroupName, Kind: "Gateway", Namespace: "ns"}},
		To:   []gatewayv1.ReferenceGrantTo{{Kind: "Secret", Name: &granted}},
	}}}
	foreign := gw.DeepCopy()
	foreign.Namespace, foreign.Spec.GatewayClassName = "foreign", "theirs"
	orphan := gw.DeepCopy()
	orphan.Namespace, orphan.Spec.GatewayClassName = "orphan", "missing"
	set.Gateways = []*gatewayv1.Gateway{foreign, gw, orphan}
	set.ListenerSets = []*gatewayv1.ListenerSet{
		{ObjectMeta: name("ns", "l"), Spec: gatewayv1.ListenerSetSpec{ParentRef: gatewayv1.ParentGatewayReference{Name: "g"}, Listeners: []gatewayv1.ListenerEntry{{Name: "a", TLS: certificate("set", nil)}}}},
		{ObjectMeta: name("foreign", "l"), Spec: gatewayv1.ListenerSetSpec{ParentRef: gatewayv1.ParentGatewayReference{Name: "g"}, Listeners: []gatewayv1.ListenerEntry{{Name: "a", TLS: certificate("no", nil)}}}},
	}
	set.BackendTLSPolicies = []*gatewayv1.BackendTLSPolicy{{ObjectMeta: name("ns", "p"), Spec: gatewayv1.BackendTLSPolicySpec{
		Validation: gatewayv1.BackendTLSPolicyValidation{CACertificateRefs: []gatewayv1.LocalObjectReference{{Kind: "ConfigMap", Name: "policy"}}},
	}}}
	var got []string
	for _, k := range slices.SortedFunc(maps.Keys(references(set, ours, Scope{})), compare) {
		got = append(got, k.String())
	}
	want := []string{
		"ConfigMap ns/frontend", "ConfigMap ns/gateway", "ConfigMap ns/policy", "ConfigMap other/class",
		"Secret ns/client", "Secret ns/listener", "Secret ns/port", "Secret ns/set", "Secret other/elsewhere",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
