package access_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kjson "sigs.k8s.io/json"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/access"
)

func object(t testing.TB, text string) map[string]any {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	var u map[string]any
	if err := kjson.UnmarshalCaseSensitivePreserveInts(data, &u); err != nil {
		t.Fatal(err)
	}
	return u
}

// role decodes a TrafficRole of the draft.
func role(t testing.TB, text string) *access.TrafficRole {
	t.Helper()
	r, errs := access.DecodeTrafficRole(access.Draft, object(t, text))
	if len(errs) > 0 {
		t.Fatalf("%s: %v", text, errs)
	}
	return r
}

func TestWhatIsNotWrittenIsNotWhatIsEmpty(t *testing.T) {
	rules := role(t, `{metadata: {name: r}, rules: [{}, {resources: [], methods: [], paths: []}]}`).Rules
	if r := rules[0]; r.Resources != nil || r.Methods != nil || r.Paths != nil {
		t.Errorf("not written: %#v", r)
	}
	if r := rules[1]; r.Resources == nil || r.Methods == nil || r.Paths == nil {
		t.Errorf("empty: %#v", r)
	}
	text, err := json.Marshal(rules)
	if err != nil || string(text) != `[{},{"resources":[],"methods":[],"paths":[]}]` {
		t.Errorf("as JSON: %s, %v", text, err)
	}
	if r := role(t, `{rules: []}`); r.Rules == nil {
		t.Error("no rules are nil")
	}
	b, errs := access.DecodeTrafficRoleBinding(access.Draft, object(t, `{subjects: [], roleRef: {kind: TrafficRole, name: r}}`))
	if len(errs) > 0 || b.Subjects == nil {
		t.Errorf("no subjects: %+v, %v", b, errs)
	}
	target, errs := access.DecodeTrafficTarget("v1alpha4", object(t, `{spec: {destination: {kind: ServiceAccount, name: a}, sources: [{kind: ServiceAccount, name: b}],
		rules: [{kind: HTTPRouteGroup, name: all}, {kind: HTTPRouteGroup, name: none, matches: []}]}}`))
	if len(errs) > 0 || target.Spec.Rules[0].Matches != nil || target.Spec.Rules[1].Matches == nil {
		t.Errorf("matches: %+v, %v", target, errs)
	}
}

// TestRolesOfTheDraftAreRead has the forms of the draft's examples, and the spellings of its list of resources.
func TestRolesOfTheDraftAreRead(t *testing.T) {
	want := []access.Rule{{Resources: []access.Resource{{Kind: access.Deployment, Name: "foo"}}, Methods: []string{"GET"}, Paths: []string{`/authors/\d+`}}}
	r := role(t, "{metadata: {name: path-specific, namespace: default}, rules: [{resources: [{name: foo, kind: Deployment}], methods: [GET], paths: ['/authors/\\d+']}]}")
	if r.Name != "path-specific" || r.Namespace != "default" || !reflect.DeepEqual(r.Rules, want) {
		t.Errorf("got %+v", r)
	}
	for kind, spellings := range map[access.WorkloadKind][]string{
		access.Pod: {"Pod", "pod", "pods"}, access.Service: {"Service", "service", "services"}, access.Job: {"Job", "job", "jobs"},
		access.ReplicationController: {"ReplicationController", "replicationcontrollers", "replicationscontrollers"}, access.DaemonSet: {"DaemonSet", "daemonsets"},
		access.Deployment: {"Deployment", "deployments"}, access.ReplicaSet: {"ReplicaSet", "replicasets"},
		access.StatefulSet: {"StatefulSet", "statefulsets", "statefulets"}, access.AnyKind: {"'*'"},
	} {
		for _, s := range spellings {
			if got := role(t, "{rules: [{resources: [{name: '*', kind: "+s+"}]}]}").Rules[0].Resources[0]; got.Kind != kind || got.Name != access.Any {
				t.Errorf("%s is %+v", s, got)
			}
		}
	}
	c, errs := access.DecodeClusterTrafficRole(access.Draft, object(t, `{rules: [{resources: [{kind: Pod, name: "*", namespace: "*"}, {kind: Pod, name: a, namespace: shop}, {kind: Pod, name: b}]}]}`))
	if len(errs) > 0 || fmt.Sprint(c.Rules[0].Resources) != "[{Pod * *} {Pod a shop} {Pod b }]" {
		t.Errorf("got %+v, %v", c, errs)
	}
	b, errs := access.DecodeClusterTrafficRoleBinding(access.Draft, object(t, `{subjects: [{kind: Node, name: "*"}, {kind: serviceaccounts, name: foo, namespace: x, apiGroup: ""},
		{kind: deployments, name: d, apiGroup: apps}, {kind: Job, name: j, apiGroup: batch}], roleRef: {kind: ClusterTrafficRole, name: health-check, apiGroup: access.smi-spec.io}}`))
	if len(errs) > 0 || fmt.Sprint(b.Subjects, b.RoleRef) != "[{Node * } {ServiceAccount foo x} {Deployment d } {Job j }] {ClusterTrafficRole health-check}" {
		t.Errorf("got %+v, %v", b, errs)
	}
}

// first is the first error, or "".
func first(errs field.ErrorList) string {
	if len(errs) == 0 {
		return ""
	}
	return errs[0].Error()
}

func decode(kind, version string, u map[string]any) (any, field.ErrorList) {
	switch kind {
	case "TrafficRole":
		return access.DecodeTrafficRole(version, u)
	case "ClusterTrafficRole":
		return access.DecodeClusterTrafficRole(version, u)
	case "TrafficRoleBinding":
		return access.DecodeTrafficRoleBinding(version, u)
	case "ClusterTrafficRoleBinding":
		return access.DecodeClusterTrafficRoleBinding(version, u)
	case "IdentityBinding":
		return access.DecodeIdentityBinding(version, u)
	}
	return access.DecodeTrafficTarget(version, u)
}

// TestNothingThatRestrictsIsIgnored holds that a part that is not understood is an error of the object, with the field and a reason.
func TestNothingThatRestrictsIsIgnored(t *testing.T) {
	const target = "destination: {kind: ServiceAccount, name: a}, sources: [{kind: ServiceAccount, name: b}], "
	long := strings.Repeat("x", 1025)
	for _, c := range []struct{ kind, version, text, want string }{
		{"TrafficRole", "v1beta1", "{}", "rules: Required value: write what is allowed"},
		{"TrafficRole", "v1beta1", "{rules: null}", "rules: Invalid value: \"null\": must not be null"},
		{"TrafficRole", "v1beta1", "{rules: {}}", "rules: Invalid value: \"map[]\": must be a list"},
		{"TrafficRole", "v1beta1", "{rules: [x]}", "rules[0]: Invalid value"},
		{"TrafficRole", "v1beta1", "{rules: [{}], methods: [GET]}", "methods: Invalid value: \"[GET]\": is no field here; there are apiVersion"},
		{"TrafficRole", "v1beta1", "{rules: [{metods: [GET]}]}", "rules[0].metods: Invalid value: \"[GET]\": is no field here; there are resources, methods, paths"},
		{"TrafficRole", "v1beta1", "{rules: [{methods: null}]}", "rules[0].methods: Invalid value: \"null\": must not be null"},
		{"TrafficRole", "v1beta1", "{rules: [{resources: null}]}", "rules[0].resources: Invalid value: \"null\""},
		{"TrafficRole", "v1beta1", "{rules: [{paths: null}]}", "rules[0].paths: Invalid value: \"null\""},
		{"TrafficRole", "v1beta1", "{rules: [{methods: GET}]}", "rules[0].methods: Invalid value: \"GET\": must be a list"},
		{"TrafficRole", "v1beta1", "{rules: [{methods: [get]}]}", "rules[0].methods[0]: Invalid value: \"get\": must be a method in upper case"},
		{"TrafficRole", "v1beta1", "{rules: [{methods: ['']}]}", "rules[0].methods[0]: Invalid value"},
		{"TrafficRole", "v1beta1", "{rules: [{methods: [1]}]}", "rules[0].methods[0]: Invalid value: \"1\": must be text"},
		{"TrafficRole", "v1beta1", "{rules: [{methods: [null]}]}", "rules[0].methods[0]: Invalid value: \"null\": must be text"},
		{"TrafficRole", "v1beta1", "{rules: [{paths: ['']}]}", "rules[0].paths[0]: Invalid value"},
		{"TrafficRole", "v1beta1", "{rules: [{paths: [" + long + "]}]}", "rules[0].paths[0]: Invalid value"},
		{"TrafficRole", "v1beta1", "{rules: [{resources: [{name: a}]}]}", "rules[0].resources[0].kind: Required"},
		{"TrafficRole", "v1beta1", "{rules: [{resources: [{kind: Pod}]}]}", "rules[0].resources[0].name: Required"},
		{"TrafficRole", "v1beta1", "{rules: [{resources: [{kind: Pod, name: 'web-*'}]}]}", "rules[0].resources[0].name: Invalid value: \"web-*\": must be the name of an object"},
		{"TrafficRole", "v1beta1", "{rules: [{resources: [{kind: ServiceAccount, name: a}]}]}", "rules[0].resources[0].kind: Unsupported value: \"ServiceAccount\""},
		{"TrafficRole", "v1beta1", "{rules: [{resources: [{kind: Pod, name: a, namespace: b}]}]}", "rules[0].resources[0].namespace: Forbidden: the resources are those of the role's own namespace"},
		{"TrafficRole", "v1beta1", "{rules: [{resources: [{kind: Pod, name: a, port: 80}]}]}", "rules[0].resources[0].port: Invalid value: \"80\": is no field here; there are kind, name"},
		{"TrafficRole", "v1alpha1", "{rules: []}", "apiVersion: Unsupported value"},
		{"ClusterTrafficRole", "v1beta1", "{rules: [{resources: [{kind: Pod, name: a, namespace: ''}]}]}", "rules[0].resources[0].namespace: Invalid value"},
		{"ClusterTrafficRole", "v1beta1", "{rules: [{resources: [{kind: Pod, name: a, namespace: null}]}]}", "rules[0].resources[0].namespace: Invalid value: \"null\""},
		{"TrafficRoleBinding", "v1beta1", "{roleRef: {kind: TrafficRole, name: a}}", "subjects: Required"},
		{"TrafficRoleBinding", "v1beta1", "{subjects: []}", "roleRef: Required"},
		{"TrafficRoleBinding", "v1beta1", "{subjects: [], roleRef: {kind: Role, name: a}}", "roleRef.kind: Unsupported value: \"Role\""},
		{"TrafficRoleBinding", "v1beta1", "{subjects: [], roleRef: {kind: TrafficRole, name: '*'}}", "roleRef.name: Invalid value"},
		{"TrafficRoleBinding", "v1beta1", "{subjects: [], roleRef: {kind: TrafficRole, name: a, apiGroup: rbac.authorization.k8s.io}}", "roleRef.apiGroup: Unsupported value"},
		{"TrafficRoleBinding", "v1beta1", "{subjects: [{kind: Service, name: a}], roleRef: {kind: TrafficRole, name: a}}", "subjects[0].kind: Unsupported value"},
		{"TrafficRoleBinding", "v1beta1", "{subjects: [{kind: Node, name: a, namespace: b}], roleRef: {kind: TrafficRole, name: a}}", "subjects[0].namespace: Forbidden: Nodes belong to no namespace"},
		{"TrafficRoleBinding", "v1beta1", "{subjects: [{kind: Pod, name: a, apiGroup: apps}], roleRef: {kind: TrafficRole, name: a}}", "subjects[0].apiGroup: Unsupported value"},
		{"ClusterTrafficRoleBinding", "v1beta1", "{subjects: [{kind: Pod, name: a, namspace: b}], roleRef: {kind: ClusterTrafficRole, name: a}}", "subjects[0].namspace: Invalid value: \"b\": is no field here"},
		{"ClusterTrafficRoleBinding", "v1beta1", "{subjects: [{kind: Pod, name: a, namespace: null}], roleRef: {kind: ClusterTrafficRole, name: a}}", "subjects[0].namespace: Invalid value: \"null\""},
		{"ClusterTrafficRoleBinding", "v1beta1", "{subjects: [], roleRef: {kind: TrafficRole, name: a}}", "roleRef.kind: Unsupported value"},

		{"TrafficTarget", "v1alpha4", "{}", "spec: Required"},
		{"TrafficTarget", "v1alpha4", "{spec: {" + target + "rules: []}}", "spec.rules: Invalid value: \"[]\": must have at least one element"},
		{"TrafficTarget", "v1alpha4", "{spec: {" + target + "}}", "spec.rules: Required"},
		{"TrafficTarget", "v1alpha4", "{spec: {" + target + "rules: [{kind: HTTPRouteGroup, name: g, match: [m]}]}}", "spec.rules[0].match: Invalid value: \"[m]\": is no field here"},
		{"TrafficTarget", "v1alpha3", "{spec: {" + target + "rules: [{kind: HTTPRouteGroup, name: g, matches: null}]}}", "spec.rules[0].matches: Invalid value: \"null\""},
		{"TrafficTarget", "v1alpha2", "{spec: {" + target + "rules: [{kind: HTTPRoute, name: g}]}}", "spec.rules[0].kind: Unsupported value"},
		{"TrafficTarget", "v1alpha1", "{" + target + "specs: [{kind: HTTPRoute, name: g}]}", "specs[0].kind: Unsupported value"},
		{"TrafficTarget", "v1alpha1", "{" + target + "specs: [{kind: TCPRoute, name: g}], port: 80}", "port: Invalid value: \"80\": is no field here; there are apiVersion, kind, metadata, status, destination, specs, sources"},
		{"TrafficTarget", "v1alpha1", "{spec: {}}", "spec: Invalid value"},
		{"TrafficTarget", "v1alpha4", "{spec: {destination: {kind: ServiceAccount, name: a, port: 80}, sources: [], rules: []}}", "spec.destination.port: Forbidden: v1alpha3 and v1alpha4 have no port"},
		{"TrafficTarget", "v1alpha2", "{spec: {destination: {kind: ServiceAccount, name: a, port: 0}, sources: [], rules: []}}", "spec.destination.port: Invalid value"},
		{"TrafficTarget", "v1alpha2", "{spec: {destination: {kind: ServiceAccount, name: a, port: null}, sources: [], rules: []}}", "spec.destination.port: Invalid value"},
		{"TrafficTarget", "v1alpha1", "{destination: {kind: ServiceAccount, name: a, port: http}, sources: [], specs: []}", "destination.port: Invalid value: \"http\": must be a port"},
		{"TrafficTarget", "v1alpha3", "{spec: {destination: {kind: IdentityBinding, name: a}, sources: [], rules: []}}", "spec.destination.name: Invalid value: \"a\": IdentityBindings are for v1alpha4"},
		{"TrafficTarget", "v1alpha3", "{spec: {destination: {kind: ServiceAccount, name: 'IdentityBinding:a'}, sources: [], rules: []}}", "spec.destination.name: Invalid value"},
		{"TrafficTarget", "v1alpha4", "{spec: {destination: {kind: ServiceAccount, name: a, group: access.smi-spec.io}, sources: [], rules: []}}", "spec.destination.group: Unsupported value"},

		{"IdentityBinding", "v1alpha4", "{}", "spec: Required"},
		{"IdentityBinding", "v1alpha4", "{spec: {}}", "spec.schemes: Required"},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {}}}", "spec.schemes: Required"},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {podLabelSelectors: []}}}", "spec.schemes: Required"},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {podLabelSelectors: [{}]}}}", "spec.schemes.podLabelSelectors[0].matchLabels: Required"},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {podLabelSelector: {matchlabels: {a: b}}}}}", "spec.schemes.podLabelSelector.matchlabels: Invalid value"},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {podLabelSelector: {matchLabels: {a: 1}}}}}", "spec.schemes.podLabelSelector.matchLabels[a]: Invalid value"},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {podLabelSelector: {matchExpressions: [{key: a, operator: Near}]}}}}", "spec.schemes.podLabelSelector.matchExpressions[0].operator: Invalid value"},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {podLabelSelectors: [{matchLabels: {a: b}}], serviceAccount: c}}}", "spec.schemes.serviceAccount: Forbidden: pod selectors and a ServiceAccount exclude each other"},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {serviceAccount: '*'}}}", "spec.schemes.serviceAccount: Invalid value"},
	} {
		object := object(t, c.text)
		before := fmt.Sprint(object)
		got, errs := decode(c.kind, c.version, object)
		if !strings.HasPrefix(first(errs), c.want) {
			t.Errorf("%s %s %s:\n%v, %v\nwant %s", c.kind, c.version, c.text, got, errs, c.want)
		}
		if fmt.Sprint(object) != before {
			t.Errorf("%s was changed", c.text)
		}
	}
}

func TestListsHaveBounds(t *testing.T) {
	many := func(n int, v any) []any {
		out := make([]any, n)
		for i := range out {
			out[i] = v
		}
		return out
	}
	rule := map[string]any{}
	pod := map[string]any{"kind": "Pod", "name": "a"}
	for _, c := range []struct {
		most int
		v    any
		in   func(list []any) map[string]any
	}{
		{access.MaxRules, rule, func(l []any) map[string]any { return map[string]any{"rules": l} }},
		{access.MaxResources, pod, func(l []any) map[string]any {
			return map[string]any{"rules": []any{map[string]any{"resources": l}}}
		}},
		{access.MaxMethods, "GET", func(l []any) map[string]any { return map[string]any{"rules": []any{map[string]any{"methods": l}}} }},
		{access.MaxPaths, "/", func(l []any) map[string]any { return map[string]any{"rules": []any{map[string]any{"paths": l}}} }},
	} {
		if _, errs := access.DecodeTrafficRole(access.Draft, c.in(many(c.most, c.v))); len(errs) > 0 {
			t.Errorf("%d of %v: %v", c.most, c.v, errs)
		}
		if _, errs := access.DecodeTrafficRole(access.Draft, c.in(many(c.most+1, c.v))); len(errs) != 1 || errs[0].Type != field.ErrorTypeTooMany {
			t.Errorf("%d of %v: %v", c.most+1, c.v, errs)
		}
	}
	ref := map[string]any{"kind": "TrafficRole", "name": "r"}
	if _, errs := access.DecodeTrafficRoleBinding(access.Draft, map[string]any{"roleRef": ref, "subjects": many(access.MaxSubjects+1, pod)}); len(errs) != 1 {
		t.Errorf("subjects: %v", errs)
	}
}

// TestEveryVersionOfATargetIsOneThing has one target in every version.
func TestEveryVersionOfATargetIsOneThing(t *testing.T) {
	const (
		target = "{kind: ServiceAccount, name: api, namespace: shop%s}"
		rest   = "[{kind: HTTPRouteGroup, name: g, matches: [a, b]}, {kind: TCPRoute, name: t, group: specs.smi-spec.io}]"
		from   = "sources: [{kind: ServiceAccount, name: web}]"
	)
	want := access.TargetSpec{
		Destination: access.Identity{Kind: "ServiceAccount", Name: "api", Namespace: "shop"}, Port: 8080, Sources: []access.Identity{{Kind: "ServiceAccount", Name: "web"}},
		Rules: []access.TargetRule{{Kind: "HTTPRouteGroup", Name: "g", Matches: []string{"a", "b"}}, {Kind: "TCPRoute", Name: "t"}},
	}
	withPort, withAnnotation := fmt.Sprintf(target, ", port: 8080"), "metadata: {annotations: {access.smi-spec.io/port: '8080'}}, spec: {destination: "+fmt.Sprintf(target, "")
	for _, c := range [][2]string{
		{"v1alpha1", "{destination: " + withPort + ", specs: " + rest + ", " + from + "}"},
		{"v1alpha1", "{destination: " + fmt.Sprintf(target, ", port: '8080'") + ", specs: " + rest + ", " + from + "}"},
		{"v1alpha2", "{spec: {destination: " + withPort + ", rules: " + rest + ", " + from + "}}"},
		{"v1alpha3", "{" + withAnnotation + ", rules: " + rest + ", " + from + "}}"},
		{"v1alpha4", "{" + withAnnotation + ", rules: " + rest + ", " + from + "}}"},
	} {
		got, errs := access.DecodeTrafficTarget(c[0], object(t, c[1]))
		if len(errs) > 0 || !reflect.DeepEqual(got.Spec, want) || got.APIVersion != "access.smi-spec.io/v1alpha4" || got.Kind != "TrafficTarget" {
			t.Errorf("%s %s: %+v, %v", c[0], c[1], got, errs)
		}
	}
}

// TestAPortIsNeverLost holds that an annotation that cannot be read does not become a target for all ports, in no version.
func TestAPortIsNeverLost(t *testing.T) {
	for _, note := range []string{"", "0", "65536", "http", `"http"`, "null", "8080 ", "80, 81", "[80]", "8080.0", "-1", "\"08080\"", "too large"} {
		u := object(t, "{apiVersion: access.smi-spec.io/v1alpha4, kind: TrafficTarget, metadata: {name: t}, spec: {destination: {kind: ServiceAccount, name: a}, sources: [{kind: ServiceAccount, name: b}], rules: [{kind: TCPRoute, name: r}]}}")
		u["metadata"].(map[string]any)["annotations"] = map[string]any{access.PortAnnotation: note}
		for _, version := range access.TargetVersions {
			out, err := access.Kinds()[0].Convert(u, version)
			if err != nil {
				t.Fatalf("%q to %s: %v: one object keeps all from being listed", note, version, err)
			}
			if got, errs := access.DecodeTrafficTarget(version, out); len(errs) == 0 {
				t.Errorf("%q in %s is read as port %d", note, version, got.Spec.Port)
			}
			spec, _ := out["spec"].(map[string]any)
			if version == "v1alpha1" {
				spec = out
			}
			if port, ok := spec["destination"].(map[string]any)["port"]; (version == "v1alpha1" || version == "v1alpha2") != ok || ok && port != int64(0) {
				t.Errorf("%q: in %s the port is %v", note, version, port)
			}
			if back, err := access.Kinds()[0].Convert(out, "v1alpha4"); err != nil || !reflect.DeepEqual(back, u) {
				t.Errorf("%q: from %s it comes back as %v, %v", note, version, back, err)
			}
		}
	}
	// Annotations may be full.
	u := object(t, "{apiVersion: access.smi-spec.io/v1alpha2, kind: TrafficTarget, spec: {destination: {kind: ServiceAccount, name: a, port: 80}, sources: [{kind: ServiceAccount, name: b}], rules: [{kind: TCPRoute, name: r}]}}")
	for left, fits := range map[int]bool{27: true, 26: true, 25: true, 24: false, 23: false, 0: false} {
		u["metadata"] = map[string]any{"annotations": map[string]any{"example.com/full": strings.Repeat("x", 256<<10-len("example.com/full")-left)}}
		out, err := access.Kinds()[0].Convert(u, "v1alpha4")
		if (err == nil) != fits {
			t.Errorf("%d bytes left: %v", left, err)
		}
		if err == nil {
			if got, errs := access.DecodeTrafficTarget("v1alpha4", out); len(errs) > 0 || got.Spec.Port != 80 {
				t.Errorf("%d bytes left: %+v, %v", left, got, errs)
			}
		}
	}
	u["metadata"], u["spec"].(map[string]any)["destination"].(map[string]any)["port"] = map[string]any{}, "80"
	if _, errs := access.DecodeTrafficTarget("v1alpha2", u); first(errs) != `spec.destination.port: Invalid value: "80": must be a number; only v1alpha1 has ports as text` {
		t.Errorf("a port as text in v1alpha2: %v", errs)
	}
	// A client of an old version that removes the port removes it.
	u = object(t, "{apiVersion: access.smi-spec.io/v1alpha1, kind: TrafficTarget, destination: {kind: ServiceAccount, name: a, port: '80'}, sources: [{kind: ServiceAccount, name: b}], specs: [{kind: TCPRoute, name: r}]}")
	old, err := access.Kinds()[0].Convert(u, "v1alpha2")
	if err != nil {
		t.Fatal(err)
	}
	delete(old["spec"].(map[string]any)["destination"].(map[string]any), "port")
	if got, errs := access.DecodeTrafficTarget("v1alpha2", old); len(errs) > 0 || got.Spec.Port != 0 {
		t.Errorf("after the port was removed: %+v, %v", got, errs)
	}
}

// TestOldReadersDoNotTakeBindingsForServiceAccounts holds that what an older version calls an IdentityBinding cannot be the name of a
// ServiceAccount, as readers of it look at the name alone.
func TestOldReadersDoNotTakeBindingsForServiceAccounts(t *testing.T) {
	u := object(t, `{apiVersion: access.smi-spec.io/v1alpha4, kind: TrafficTarget, spec: {destination: {kind: IdentityBinding, group: access.smi-spec.io, name: api},
		sources: [{kind: IdentityBinding, name: web}, {kind: ServiceAccount, name: web}], rules: [{kind: TCPRoute, name: r}]}}`)
	for _, version := range access.TargetVersions[1:] {
		out, err := access.Kinds()[0].Convert(u, version)
		if err != nil {
			t.Fatal(err)
		}
		holder := out
		if version != "v1alpha1" {
			holder = out["spec"].(map[string]any)
		}
		for name, want := range map[string]any{"IdentityBinding:api": holder["destination"], "IdentityBinding:web": holder["sources"].([]any)[0], "web": holder["sources"].([]any)[1]} {
			if got := want.(map[string]any)["name"]; got != name {
				t.Errorf("in %s a name is %v, want %s", version, got, name)
			}
		}
		got, errs := access.DecodeTrafficTarget(version, out)
		if len(errs) > 0 || got.Spec.Destination.Name != "api" || got.Spec.Sources[0] != (access.Identity{Kind: "IdentityBinding", Name: "web"}) {
			t.Errorf("%s is read as %+v, %v", version, got, errs)
		}
		if back, err := access.Kinds()[0].Convert(out, "v1alpha4"); err != nil || !reflect.DeepEqual(back, u) {
			t.Errorf("from %s it comes back as %v, %v", version, back, err)
		}
	}
}

func TestBothNamesAndFormsOfPodSelectorsAreOne(t *testing.T) {
	want := []access.PodSelector{{Name: "w", LabelSelector: metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}}}}
	for _, name := range []string{"podLabelSelectors", "podLabelSelector"} {
		for _, form := range []string{"{name: w, matchLabels: {app: a}}", "[{name: w, matchLabels: {app: a}}]"} {
			b, errs := access.DecodeIdentityBinding("v1alpha4", object(t, "{spec: {schemes: {"+name+": "+form+", spiffeIdentities: [cluster.local/ns/default/sa/a]}}}"))
			if len(errs) > 0 || !reflect.DeepEqual(b.Spec.Schemes.Pods, want) || len(b.Spec.Schemes.SPIFFE) != 1 {
				t.Errorf("%s: %s: %+v, %v", name, form, b, errs)
			}
		}
	}
	b, errs := access.DecodeIdentityBinding("v1alpha4", object(t, "{spec: {schemes: {podLabelSelector: {matchExpressions: [{key: app, operator: In, values: [a, b]}]}, podLabelSelectors: [{matchLabels: {}}]}}}"))
	if len(errs) > 0 || len(b.Spec.Schemes.Pods) != 2 || b.Spec.Schemes.Pods[1].MatchExpressions[0].Operator != "In" {
		t.Errorf("got %+v, %v", b, errs)
	}
}
