package kube

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	api "github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/resource"
)

// accessPlurals are the kinds of access control, by what paths call them.
var accessPlurals = map[string]string{
	"TrafficRole": "trafficroles", "TrafficRoleBinding": "trafficrolebindings", "ClusterTrafficRole": "clustertrafficroles",
	"ClusterTrafficRoleBinding": "clustertrafficrolebindings", "TrafficTarget": "traffictargets", "IdentityBinding": "identitybindings",
}

// accessClient sends objects of access control in a version, as a client does that knows no other.
type accessClient struct {
	t  *testing.T
	c  rest.Interface
	ns string
}

func (a accessClient) path(kind, version, name string) string {
	path := "/apis/" + api.Group + "/" + version
	if !strings.HasPrefix(kind, "Cluster") {
		path += "/namespaces/" + a.ns
	}
	return strings.TrimSuffix(path+"/"+accessPlurals[kind]+"/"+name, "/")
}

func (a accessClient) get(kind, version, name string) rest.Result {
	return a.c.Get().AbsPath(a.path(kind, version, name)).Do(a.t.Context())
}

// send sends an object that is written as YAML without its version and kind.
func (a accessClient) send(r *rest.Request, kind, version, at, text string) rest.Result {
	a.t.Helper()
	var u map[string]any
	if err := yaml.Unmarshal([]byte(text), &u); err != nil {
		a.t.Fatalf("%s: %v", text, err)
	}
	u["apiVersion"], u["kind"] = api.Group+"/"+version, kind
	body, err := json.Marshal(u)
	if err != nil {
		a.t.Fatal(err)
	}
	return r.AbsPath(a.path(kind, version, at)).SetHeader("Content-Type", "application/json").Body(body).Do(a.t.Context())
}

func (a accessClient) create(kind, version, text string) rest.Result {
	a.t.Helper()
	return a.send(a.c.Post(), kind, version, "", text)
}

// putAsRead puts an object as it is read in a version, which is want. The controller may write its status in between.
func (a accessClient) putAsRead(kind, version, name, want string) (answer rest.Result) {
	a.t.Helper()
	for range 10 {
		read := is(a.t, name+" in "+version, a.get(kind, version, name), want)
		body, err := json.Marshal(read)
		if err != nil {
			a.t.Fatal(err)
		}
		answer = a.send(a.c.Put(), kind, version, name, string(body))
		if !apierrors.IsConflict(answer.Error()) {
			break
		}
	}
	return answer
}

// TestAccessControlIsKeptInEveryVersion writes targets in each version, reads and writes them in all others, and has the controller's
// source read them.
func TestAccessControlIsKeptInEveryVersion(t *testing.T) {
	ns := namespace(t)
	ensureNamespace(t, own)
	for _, plural := range accessPlurals {
		define(t, api.Group, plural, nil)
	}
	a := accessClient{t, raw(t), ns}
	p := startController(t, "a")
	p.converts([]string{"traffictargets.access.smi-spec.io"})
	eventually(t, func() rest.Result { return a.get("TrafficTarget", "v1alpha1", "") })

	const (
		account = "{kind: ServiceAccount, name: api, namespace: shop}"
		ported  = "{kind: ServiceAccount, name: api, namespace: shop, port: %s}"
		sources = "sources: [{kind: ServiceAccount, name: web}]"
		rules   = "[{kind: HTTPRouteGroup, name: g, matches: [a]}, {kind: TCPRoute, name: t}]"
		noted   = "annotations: {access.smi-spec.io/port: %s}"
	)
	number, asText := fmt.Sprintf(noted, "'8080'"), fmt.Sprintf(noted, `'"8080"'`)
	// forms are one object each, in every version.
	forms := map[string]map[string]string{
		"number": {
			"v1alpha1": "{annotations: {}, destination: " + fmt.Sprintf(ported, "8080") + ", " + sources + ", specs: " + rules + "}",
			"v1alpha2": "{annotations: {}, spec: {destination: " + fmt.Sprintf(ported, "8080") + ", " + sources + ", rules: " + rules + "}}",
			"v1alpha3": "{" + number + ", spec: {destination: " + account + ", " + sources + ", rules: " + rules + "}}",
			"v1alpha4": "{" + number + ", spec: {destination: " + account + ", " + sources + ", rules: " + rules + "}}",
		},
		"text": {
			"v1alpha1": "{annotations: {}, destination: " + fmt.Sprintf(ported, "'8080'") + ", " + sources + ", specs: " + rules + "}",
			"v1alpha2": "{annotations: {access.smi-spec.io/port-as-text: 'true'}, spec: {destination: " + fmt.Sprintf(ported, "8080") + ", " + sources + ", rules: " + rules + "}}",
			"v1alpha3": "{" + asText + ", spec: {destination: " + account + ", " + sources + ", rules: " + rules + "}}",
			"v1alpha4": "{" + asText + ", spec: {destination: " + account + ", " + sources + ", rules: " + rules + "}}",
		},
		"binding": {
			"v1alpha1": "{annotations: {}, destination: {kind: IdentityBinding, name: 'IdentityBinding:api', group: access.smi-spec.io}, sources: [{kind: IdentityBinding, name: 'IdentityBinding:web'}, {kind: ServiceAccount, name: web}], specs: [{kind: HTTPRouteGroup, name: g, matches: []}]}",
			"v1alpha2": "{annotations: {}, spec: {destination: {kind: IdentityBinding, name: 'IdentityBinding:api', group: access.smi-spec.io}, sources: [{kind: IdentityBinding, name: 'IdentityBinding:web'}, {kind: ServiceAccount, name: web}], rules: [{kind: HTTPRouteGroup, name: g, matches: []}]}}",
			"v1alpha3": "{annotations: {}, spec: {destination: {kind: IdentityBinding, name: 'IdentityBinding:api', group: access.smi-spec.io}, sources: [{kind: IdentityBinding, name: 'IdentityBinding:web'}, {kind: ServiceAccount, name: web}], rules: [{kind: HTTPRouteGroup, name: g, matches: []}]}}",
			"v1alpha4": "{annotations: {}, spec: {destination: {kind: IdentityBinding, name: api, group: access.smi-spec.io}, sources: [{kind: IdentityBinding, name: web}, {kind: ServiceAccount, name: web}], rules: [{kind: HTTPRouteGroup, name: g, matches: []}]}}",
		},
	}
	var names []string
	for form, versions := range forms {
		for from, text := range versions {
			name := form + "-" + from
			names = append(names, name)
			written := strings.Replace(text, "{", "{metadata: {name: "+name+"}, ", 1)
			for _, part := range []string{number, asText, "annotations: {access.smi-spec.io/port-as-text: 'true'}", "annotations: {}"} {
				if strings.Contains(text, part) {
					written = strings.Replace(strings.Replace(text, part+", ", "", 1), "{", "{metadata: {name: "+name+", "+part+"}, ", 1)
				}
			}
			is(t, name+" is created", a.create("TrafficTarget", from, written), text)
			for to, want := range versions {
				is(t, name+" is put as "+to, a.putAsRead("TrafficTarget", to, name, want), want)
				is(t, name+" as it was", a.get("TrafficTarget", from, name), text)
			}
		}
	}
	for _, version := range api.TargetVersions {
		if items, _ := is(t, "all", a.get("TrafficTarget", version, ""), `{}`)["items"].([]any); len(items) != len(names) {
			t.Errorf("%d targets in %s, want %d", len(items), version, len(names))
		}
	}

	// What the draft and the released specification have as examples.
	for _, o := range [][2]string{
		{"TrafficRole", `{metadata: {name: path-specific}, rules: [{resources: [{name: foo, kind: Deployment}], methods: [GET], paths: ['/authors/\d+']}, {}, {methods: []}]}`},
		{"TrafficRoleBinding", `{metadata: {name: account-specific}, subjects: [{kind: Deployment, name: bar, namespace: default}], roleRef: {kind: TrafficRole, name: path-specific}}`},
		{"ClusterTrafficRole", `{metadata: {name: health-check}, rules: [{resources: [{name: "*", kind: Pod, namespace: "*"}], methods: [GET], paths: ['/health']}]}`},
		{"ClusterTrafficRoleBinding", `{metadata: {name: default-allow}, subjects: [{name: "*", kind: Node}], roleRef: {kind: ClusterTrafficRole, name: health-check}}`},
		{"IdentityBinding", `{metadata: {name: service-a}, spec: {schemes: {podLabelSelectors: [{name: podWorkloads, matchLabels: {app: service-a}}], spiffeIdentities: [cluster.local/ns/default/sa/service-a]}}}`},
	} {
		version := api.Draft
		if o[0] == "IdentityBinding" {
			version = "v1alpha4"
		}
		var u map[string]any
		if err := yaml.Unmarshal([]byte(o[1]), &u); err != nil {
			t.Fatal(err)
		}
		name := u["metadata"].(map[string]any)["name"].(string)
		delete(u, "metadata")
		want, err := json.Marshal(u)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			_ = a.c.Delete().AbsPath(a.path(o[0], version, name)).Do(t.Context()).Error()
		})
		is(t, o[0], a.create(o[0], version, o[1]), string(want))
		status := a.c.Patch(types.MergePatchType).AbsPath(a.path(o[0], version, name) + "/status").
			Body([]byte(`{"status":{"observedGeneration":1,"conditions":[{"type":"Accepted","status":"True","reason":"Accepted","message":"","lastTransitionTime":"2026-01-01T00:00:00Z"}]}}`)).Do(t.Context())
		got := is(t, "its status", status, string(want))
		if s, _ := got["status"].(map[string]any); len(s) != 2 {
			t.Errorf("the status of %s is %v", o[0], s)
		}
	}

	// What would restrict and is not understood is refused. Of null an API server says nothing; it is kept.
	for _, c := range []struct{ kind, version, text, want string }{
		{"TrafficRole", "v1beta1", "{rules: [{resources: [{kind: Pod, name: a, namespace: b}]}]}", "rules[0].resources[0].namespace: Forbidden: the resources are those of the role's own namespace; remove namespace, or write a ClusterTrafficRole"},
		{"TrafficRole", "v1beta1", "{rules: [{metods: [GET]}]}", "rules[0]"},
		{"TrafficRole", "v1beta1", "{rules: [{}], methods: [GET]}", "methods: Forbidden: belongs into an element of rules; indent it"},
		{"TrafficRole", "v1beta1", "{}", "rules: Required value"},
		{"ClusterTrafficRoleBinding", "v1beta1", "{subjects: [{kind: Node, name: a, namespace: b}], roleRef: {kind: ClusterTrafficRole, name: r}}", "subjects[0].namespace: Forbidden: Nodes belong to no namespace"},
		{"ClusterTrafficRoleBinding", "v1beta1", "{subjects: [{kind: Pod, name: a, namspace: b}], roleRef: {kind: ClusterTrafficRole, name: r}}", "subjects[0]"},
		{"TrafficTarget", "v1alpha4", "{spec: {destination: " + fmt.Sprintf(ported, "80") + ", " + sources + ", rules: " + rules + "}}", "spec.destination.port: Forbidden: v1alpha3 and v1alpha4 have no port"},
		{"TrafficTarget", "v1alpha2", "{spec: {destination: " + fmt.Sprintf(ported, "0") + ", " + sources + ", rules: " + rules + "}}", "spec.destination.port: Invalid value: \"0\": must be a port from 1 to 65535"},
		{"TrafficTarget", "v1alpha2", "{spec: {destination: " + fmt.Sprintf(ported, "null") + ", " + sources + ", rules: " + rules + "}}", "spec.destination.port: Invalid value"},
		{"TrafficTarget", "v1alpha1", "{destination: " + account + ", " + sources + ", specs: " + rules + ", port: 80}", "port: Invalid value: \"80\": is no field here"},
		{"TrafficTarget", "v1alpha3", "{spec: {destination: {kind: IdentityBinding, name: api}, " + sources + ", rules: " + rules + "}}", "spec.destination.name: Invalid value"},
		{"IdentityBinding", "v1alpha4", "{spec: {schemes: {serviceAccount: a, podLabelSelectors: [{matchLabels: {a: b}}]}}}", "spec.schemes"},
	} {
		if err := a.create(c.kind, c.version, strings.Replace(c.text, "{", "{metadata: {name: bad}, ", 1)).Error(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s %s: %v, want %s", c.kind, c.version, c.text, err, c.want)
		}
	}
	is(t, "null", a.create("TrafficRole", "v1beta1", "{metadata: {name: nothing}, rules: [{methods: null}]}"), "{rules: [{methods: null}]}")
	is(t, "a port that is none", a.create("TrafficTarget", "v1alpha4", "{metadata: {name: annotated, annotations: {access.smi-spec.io/port: http}}, spec: {destination: "+account+", "+sources+", rules: "+rules+"}}"), "{}")
	is(t, "to old clients", a.get("TrafficTarget", "v1alpha2", "annotated"), "{spec: {destination: "+fmt.Sprintf(ported, "0")+", "+sources+", rules: "+rules+"}}")

	// The controller's source reads all of it, in the version that is stored.
	set := watch(t, admin).until("everything", func(set *resource.Set) bool {
		return len(access.Targets.In(set)) == len(names) && len(access.Roles.In(set)) == 1 && len(access.ClusterBindings.In(set)) == 1 && len(access.Identities.In(set)) == 1 && len(set.Rejected) == 2
	})
	for _, target := range access.Targets.In(set) {
		want := int32(8080)
		if strings.HasPrefix(target.Name, "binding") {
			want = 0
		}
		if target.Spec.Port != want || target.Spec.Destination.Name != "api" {
			t.Errorf("%s is read as %+v", target.Name, target.Spec)
		}
	}
	if rules := access.Roles.In(set)[0].Rules; rules[1].Methods != nil || rules[2].Methods == nil {
		t.Errorf("the role is read as %#v", rules)
	}
	var rejected []string
	for _, f := range set.Rejected {
		rejected = append(rejected, f.Ref.Name+" "+f.Ref.Field)
	}
	slices.Sort(rejected)
	if want := "[annotated metadata.annotations[access.smi-spec.io/port] nothing rules[0].methods]"; fmt.Sprint(rejected) != want {
		t.Errorf("rejected are %v, want %s", rejected, want)
	}
}
