package control_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// foreignGateway is a Gateway of another controller's class, with the port of a split Service.
const foreignGateway = `apiVersion: gateway.networking.k8s.io/v1
kind: GatewayClass
metadata: {name: theirs}
spec: {controllerName: example.com/controller}
---
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: theirs
  listeners: [{name: web, port: 80, protocol: HTTP}, {name: db, port: 5432, protocol: HTTP}]
---
apiVersion: split.smi-spec.io/v1alpha4
kind: TrafficSplit
metadata: {name: s}
spec: {service: web, backends: [{service: web, weight: 1}]}
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec: {ports: [{name: http, port: 80}, {name: db, port: 5432, appProtocol: tcp}]}
`

// TestAForeignGatewayTakesNoPort holds that all front ends agree on whose a Gateway is: one that is not served takes no port from Services served
// by their host names, and does not end that they are served by default.
func TestAForeignGatewayTakesNoPort(t *testing.T) {
	set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(foreignGateway))
	if err != nil {
		t.Fatal(err)
	}
	for _, serve := range [][]string{nil, {"web"}} {
		r, err := control.Options{Serve: serve}.Translate(set)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, l := range r.Config.Listeners {
			names = append(names, l.Name)
		}
		attached := func(r model.Route) bool {
			return len(r.Attachments) == 1 && slices.Contains(names, r.Attachments[0].Listener)
		}
		if !slices.Equal(names, []string{"services/5432", "services/80"}) || len(r.Config.Routes) != 2 || !attached(r.Config.Routes[0]) || !attached(r.Config.Routes[1]) {
			t.Errorf("--serve %v: listeners %v, %d routes", serve, names, len(r.Config.Routes))
		}
	}
}
