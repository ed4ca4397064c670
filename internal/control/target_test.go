package control_test

import (
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/resource"
)

func TestTargetIsGuessedFromWhatOnlyOneOfThemHas(t *testing.T) {
	const (
		service    = "apiVersion: v1\nkind: Service\nmetadata: {name: shop}\nspec: {ports: [{port: 80}]}\n---\n"
		selecting  = "apiVersion: v1\nkind: Service\nmetadata: {name: shop}\nspec: {selector: {app: shop}, ports: [{port: 80}]}\n---\n"
		slice      = "apiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {name: shop, labels: {kubernetes.io/service-name: shop}}\nports: [{port: 80}]\nendpoints: [{addresses: [ADDRESS]}]\n---\n"
		deployment = "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: shop}\n---\n"
		namespace  = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop}\n---\n"
		class      = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: weir}\nspec: {controllerName: weirmesh.github.io/gateway-controller}\n---\n"
		parameters = "apiVersion: gateway.networking.k8s.io/v1\nkind: GatewayClass\nmetadata: {name: weir}\nspec: {controllerName: weirmesh.github.io/gateway-controller, parametersRef: {group: '', kind: ConfigMap, name: a, namespace: b}}\n---\n"
		gateway    = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: edge}\nspec: {gatewayClassName: weir, listeners: [{name: a, port: 80, protocol: HTTP}], infrastructure: {labels: {a: b}}}\n---\n"
		external   = "apiVersion: v1\nkind: Service\nmetadata: {name: far}\nspec: {type: ExternalName, externalName: localhost, ports: [{port: 80}]}\n---\n"
		local4     = "apiVersion: gateway.networking.k8s.io/v1\nkind: Gateway\nmetadata: {name: local}\nspec: {gatewayClassName: weir, addresses: [{value: 127.0.0.1}], listeners: [{name: a, port: 80, protocol: HTTP}]}\n---\n"
		kustomized = "apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nmetadata: {name: k}\n---\n"
	)
	local, far := strings.Replace(slice, "ADDRESS", "127.0.0.1", 1), strings.Replace(slice, "ADDRESS", "192.0.2.1", 1)
	for _, c := range []struct {
		text, why string
		want      control.Target
	}{
		{"", "nothing", control.TargetFiles},
		{service, "nothing", control.TargetFiles},
		{service + kustomized + class, "nothing", control.TargetFiles},
		{service + far, "by hand", control.TargetFiles},
		{selecting + far, "by hand", control.TargetFiles},
		{service + far + namespace, "by hand", control.TargetFiles},
		{selecting + local + deployment + parameters, "127.0.0.1", control.TargetFiles},
		{external + namespace, "stands for localhost", control.TargetFiles},
		{local4 + namespace, "listens on 127.0.0.1", control.TargetFiles},
		{selecting, "Service default/shop has a selector", control.TargetCluster},
		{service + far + deployment, "a Deployment", control.TargetCluster},
		{parameters, "parametersRef", control.TargetCluster},
		{gateway, "spec.infrastructure", control.TargetCluster},
		{service + namespace, "Namespace shop", control.TargetCluster},
	} {
		set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(c.text))
		if err != nil {
			t.Fatal(err)
		}
		if got, why := control.GuessTarget(set); got != c.want || !strings.Contains(why, c.why) {
			t.Errorf("%s because %q, want %s because of %q:\n%s", got, why, c.want, c.why, c.text)
		}
	}
}
