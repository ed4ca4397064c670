package resource

import (
	"slices"
	"strings"
	"testing"
)

// TestKindsThatAreNotReadAreTold checks that an object that was most likely meant for Weir is an error with a fix, and
// that a kind of an API that Weir reads is never ignored silently.
func TestKindsThatAreNotReadAreTold(t *testing.T) {
	for _, c := range []struct{ apiVersion, kind, code, fix string }{
		{"gateway.networking.k8s.io/v1", "HttpRoute", CodeMisspelt, `did you mean "HTTPRoute"?`},
		{"gateway.networking.k8s.io/v1", "HTTPRoutes", CodeMisspelt, `did you mean "HTTPRoute"?`},
		{"gateway.networking.k8s.io/v1", "gateway", CodeMisspelt, `did you mean "Gateway"?`},
		{"gateway.networking.k8s/v1", "HTTPRoute", CodeMisspelt, `did you mean "gateway.networking.k8s.io/v1"?`},
		{"gateway.networking.k8s.io/v1", "Sevice", CodeNotServed, "write it with kinds that Weir reads"},
		{"v1", "HTTPRoute", CodeMisspelt, `did you mean "gateway.networking.k8s.io/v1"?`},
		{"gateway.networking.k8s.io", "Gateway", CodeMisspelt, `did you mean "gateway.networking.k8s.io/v1"?`},
		{"networking.k8s.io/v1", "HTTPRoute", CodeMisspelt, `did you mean "gateway.networking.k8s.io/v1"?`},
		{"split.smi-spec/v1alpha4", "TrafficSplit", CodeMisspelt, `did you mean "split.smi-spec.io/v1alpha4"?`},
		{"split.smi-spec.io/v1alpha4", "TraficSplit", CodeMisspelt, `did you mean "TrafficSplit"?`},
		{"v1beta1", "TrafficRoles", CodeMisspelt, `did you mean "TrafficRole"?`},
		{"v1beta1", "TrafficRoleBindings", CodeMisspelt, `did you mean "TrafficRoleBinding"?`},
		{"v1beta1", "trafficsplit", CodeMisspelt, `did you mean "TrafficSplit"?`},
		{"v1beta1", "TLSconfig", CodeMisspelt, `did you mean "TLSConfig"?`},
		{"v1alpha4", "HTTPRouteGroups", CodeMisspelt, `did you mean "HTTPRouteGroup"?`},
		{"v1alpha4", "TCPRoute", CodeMisspelt, `did you mean "specs.smi-spec.io/v1alpha4"?`},
		{"v1alpha2", "TCPRoute", CodeMisspelt, `did you mean "gateway.networking.k8s.io/v1alpha2"?`},
		{`""`, "TCPRoute", CodeNoObject, "write apiVersion: gateway.networking.k8s.io/v1 or specs.smi-spec.io/v1alpha4"},
		{"v1", "Sevice", CodeMisspelt, `did you mean "Service"?`},
		{"discovery.k8s.io/v1", "Endpointslice", CodeMisspelt, `did you mean "EndpointSlice"?`},
		{"gateway.networking.k8s.io/v2", "HTTPRoute", CodeVersion, "write gateway.networking.k8s.io/v1 or"},
		{"gateway.networking.k8s.io/v1", "TLSRoute", CodeNotServed, "write it with kinds that Weir reads (GatewayClass, Gateway"},
		{"metrics.smi-spec.io/v1alpha1", "TrafficMetrics", CodeNotServed, "write it with kinds that Weir reads (TrafficSplit"},
		{"networking.istio.io/v1", "Gateway", CodeUnknownKind, "check the kind and the apiVersion"},
		{"serving.knative.dev/v1", "Service", CodeUnknownKind, "check the kind and the apiVersion"},
		{"apps/v1", "ControllerRevision", CodeUnknownKind, "check the kind and the apiVersion"},
		{"v1", "ReplicationControllerStatus", CodeUnknownKind, "check the kind and the apiVersion"},
	} {
		set, err := Load(everything, []string{"-"}, strings.NewReader("apiVersion: "+c.apiVersion+"\nkind: "+c.kind+"\nmetadata: {name: x}\n"))
		if err != nil {
			t.Fatal(err)
		}
		if len(set.Findings) != 1 || set.Findings[0].Code != c.code || !strings.HasPrefix(set.Findings[0].Fix, c.fix) {
			t.Errorf("%s %s: %v, want %s %s", c.apiVersion, c.kind, set.Findings, c.code, c.fix)
		}
	}
	// Who refers to it learns what to mend.
	set, err := Load(everything, []string{"-"}, strings.NewReader("apiVersion: v1\nkind: Sevice\nmetadata: {name: x}\n---\nkind: Secret\nmetadata: {name: api, namespace: z}\n"))
	if err != nil {
		t.Fatal(err)
	}
	for k, want := range map[Key]string{{Kind: "Service", Namespace: "default", Name: "x"}: "mend WR115 at -:2", {Kind: "Secret", Namespace: "z", Name: "api"}: "mend WR103 at -:5"} {
		if _, fix := set.Missing(k); fix != want {
			t.Errorf("%s: %q, want %q", k, fix, want)
		}
	}
}

func TestKindsAreReadWhileAnotherNeedsThem(t *testing.T) {
	pod, job, files := &Kind{Name: "Pod"}, &Kind{Name: "Job"}, &Kind{Name: "Written", FilesOnly: true}
	role, rollout := &Kind{Name: "Role", Needs: Kinds{pod}}, &Kind{Name: "Rollout", Needs: Kinds{pod, job}}
	all := Kinds{pod, job, files, role, rollout}
	for _, c := range []struct{ has, want Kinds }{
		{nil, Kinds{role, rollout}},
		{Kinds{pod, job}, Kinds{role, rollout}}, // of these nobody is asked
		{Kinds{role}, Kinds{pod, role, rollout}},
		{Kinds{rollout}, Kinds{pod, job, role, rollout}},
		{Kinds{role, rollout}, Kinds{pod, job, role, rollout}},
	} {
		if got := all.Needed(func(k *Kind) bool { return slices.Contains(c.has, k) }); !slices.Equal(got, c.want) {
			t.Errorf("with %v: %v, want %v", c.has, got, c.want)
		}
	}
}
