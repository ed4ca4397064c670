package access_test

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	api "github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// join joins documents of YAML.
func join(documents ...string) string { return strings.Join(documents, "\n---\n") }

const (
	aRole       = "{apiVersion: access.smi-spec.io/v1beta1, kind: TrafficRole, metadata: {name: r, namespace: shop}, rules: [{methods: [GET]}]}"
	aTarget     = "{apiVersion: access.smi-spec.io/v1alpha4, kind: TrafficTarget, metadata: {name: t, namespace: shop}, spec: {destination: {kind: IdentityBinding, name: i}, rules: [{kind: TCPRoute, name: all}], sources: [{kind: ServiceAccount, name: default}]}}"
	aRoute      = "{apiVersion: specs.smi-spec.io/v1alpha4, kind: TCPRoute, metadata: {name: all, namespace: shop}, spec: {}}"
	badIdentity = "{apiVersion: access.smi-spec.io/v1alpha4, kind: IdentityBinding, metadata: {name: i, namespace: shop}, spec: {schemes: {serviceAccount: 7}}}"
	badTarget   = "{apiVersion: access.smi-spec.io/v1alpha4, kind: TrafficTarget, metadata: {name: u, namespace: shop}, spec: {destination: {kind: IdentityBinding, name: i}, rules: 7}}"
)

// closing are the policies that allow nothing, as "Kind name: target".
func closing(config model.Config) (out []string) {
	for _, p := range config.Policies {
		if p.Void != "" {
			out = append(out, fmt.Sprintf("%s %s: %s", p.Ref.Kind, p.Ref.Name, p.Targets[0].String()))
		}
	}
	return out
}

// TestAnIdentityBindingThatIsLeftOutClosesItsNamespaceAsADestination: it cannot be told which pods it means.
func TestAnIdentityBindingThatIsLeftOutClosesItsNamespaceAsADestination(t *testing.T) {
	elsewhere := strings.NewReplacer("name: i,", "name: j,").Replace(badIdentity)
	other := strings.NewReplacer("namespace: shop", "namespace: other").Replace(badIdentity)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"of a target":                   {join(aTarget, aRoute, badIdentity, elsewhere, other), []string{"IdentityBinding i: * shop/*"}},
		"of a target that is not valid": {join(badTarget, badIdentity), []string{"IdentityBinding i: * shop/*", "TrafficTarget u: IdentityBinding shop/i"}},
		"of nothing":                    {join(aRole, badIdentity, elsewhere), nil},
		"of a target, but not left out": {join(aTarget, aRoute, elsewhere, other), nil},
	} {
		for range 20 { // the order of what was left out is not fixed
			config, _, _, _ := access.Translate(loadKinds(t, dialect.Kinds(), c.text), access.Options{})
			if got := closing(config); !reflect.DeepEqual(got, c.want) {
				t.Fatalf("%s: closed by %q, want %q", name, got, c.want)
			}
		}
	}
}

const (
	aPod      = "{apiVersion: v1, kind: Pod, metadata: {name: web-1, namespace: shop}}"
	aService  = "{apiVersion: v1, kind: Service, metadata: {name: web, namespace: shop}, spec: {selector: {app: web}, ports: [{port: 80}]}}"
	aDenial   = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {weirmesh.github.io/access-deny: all, weirmesh.github.io/access-audit: 'true'}}}"
	plain     = "{apiVersion: v1, kind: Namespace, metadata: {name: shop, annotations: {weirmesh.github.io/access-audit: 'false'}}}"
	aBinding  = "{apiVersion: access.smi-spec.io/v1beta1, kind: TrafficRoleBinding, metadata: {name: b, namespace: shop}, subjects: [{kind: ServiceAccount, name: default}], roleRef: {kind: TrafficRole, name: r}}"
	aCluster  = "{apiVersion: access.smi-spec.io/v1beta1, kind: ClusterTrafficRole, metadata: {name: r}, rules: [{methods: [GET]}]}"
	inCluster = "{apiVersion: access.smi-spec.io/v1beta1, kind: ClusterTrafficRoleBinding, metadata: {name: b}, subjects: [{kind: ServiceAccount, name: default}], roleRef: {kind: ClusterTrafficRole, name: r}}"
	anID      = "{apiVersion: access.smi-spec.io/v1alpha4, kind: IdentityBinding, metadata: {name: i, namespace: shop}, spec: {schemes: {serviceAccount: default}}}"
)

// Of any two objects of access control each has a status: none hides that there is something to translate.
func TestEachObjectHasAStatus(t *testing.T) {
	all := []string{aRole, aBinding, aCluster, inCluster, aTarget, anID}
	for i := range all {
		for j := range i + 1 {
			want, text := 1, all[i]
			if j < i {
				want, text = 2, join(all[i], all[j])
			}
			if _, statuses, _, _ := access.Translate(loadKinds(t, dialect.Kinds(), text), access.Options{}); len(statuses) != want {
				t.Errorf("%d statuses of\n%s", len(statuses), text)
			}
		}
	}
}

func TestWithoutAccessControlNothingIsJudged(t *testing.T) {
	set := loadKinds(t, dialect.Kinds(), join(aPod, aService, plain))
	config, statuses, events, findings := access.Translate(set, access.Options{})
	if !reflect.DeepEqual(config, model.Config{}) || statuses != nil || events != nil || findings != nil {
		t.Errorf("%+v %v %v %v", config, statuses, events, findings)
	}
	if config, _, _, _ := access.Translate(set, access.Options{Deny: model.DenyAll}); len(config.Workloads) != 1 || config.Workloads[0].Deny != model.DenyAll {
		t.Errorf("where all is denied by default, workloads are %+v", config.Workloads)
	}
	other := "{apiVersion: v1, kind: Pod, metadata: {name: a, namespace: other}}"
	set = loadKinds(t, dialect.Kinds(), join(aPod, aDenial, other, "{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: shop}}"))
	all := access.Workloads(set, access.Options{})
	names := make([]string, len(all))
	for i := range all {
		names[i] = all[i].Name()
		if denied := all[i].Deny == model.DenyAll; denied != (all[i].Ref.Namespace == "shop") || denied != all[i].Audit {
			t.Errorf("workload %+v", all[i])
		}
	}
	if want := []string{"shop/Deployment/web", "other/Pod/a", "shop/Pod/web-1"}; !slices.Equal(names, want) {
		t.Errorf("workloads are %q, want %q", names, want)
	}
}

// The result has one order, whatever the files have.
func TestTheResultIsInOrder(t *testing.T) {
	routes := func(kind string, names ...string) (out []string) {
		for _, name := range names {
			out = append(out, "{apiVersion: specs.smi-spec.io/v1alpha4, kind: "+kind+", metadata: {name: "+name+", namespace: shop}, spec: {matches: {ports: [80]}}}")
		}
		return out
	}
	unnamed := append(routes("UDPRoute", "d", "b"), routes("TCPRoute", "c", "a")...)
	for name, objects := range map[string][]string{
		"routes alone": unnamed,
		"all":          append(unnamed, aTarget, strings.Replace(aPod, "web-1", "z", 1), aPod, aRole, aCluster, inCluster, strings.Replace(aBinding, "name: b,", "name: z,", 1), aBinding),
	} {
		set := loadKinds(t, dialect.Kinds(), join(objects...))
		config, statuses, _, findings := access.Translate(set, access.Options{})
		sorted := slices.Clone(findings)
		resource.SortFindings(sorted)
		if len(findings) < len(unnamed) || !reflect.DeepEqual(findings, sorted) {
			t.Errorf("%s: findings are %v", name, findings)
		}
		policies := slices.Clone(config.Policies)
		ordered := model.Config{Policies: policies, Workloads: slices.Clone(config.Workloads)}
		ordered.Sort()
		if !reflect.DeepEqual(config.Policies, ordered.Policies) || !reflect.DeepEqual(config.Workloads, ordered.Workloads) {
			t.Errorf("%s: policies are %+v, workloads %+v", name, config.Policies, config.Workloads)
		}
		if name == "all" && (len(config.Policies) < 4 || len(statuses) != 6) {
			t.Errorf("%d policies, %d statuses", len(config.Policies), len(statuses))
		}
	}
}

// What is left out beside a role, of access control or not, does not hide the role.
func TestARoleThatIsLeftOutClosesBesideOthersThatAre(t *testing.T) {
	text := join(
		"{apiVersion: access.smi-spec.io/v1beta1, kind: TrafficRole, metadata: {name: r, namespace: shop}, rules: 7}",
		"{apiVersion: access.smi-spec.io/v1beta1, kind: TrafficRoleBinding, metadata: {name: b, namespace: shop}, subjects: 7}",
		"{apiVersion: access.smi-spec.io/v1beta1, kind: ClusterTrafficRole, metadata: {name: r}, rules: 7}",
		"{apiVersion: specs.smi-spec.io/v1alpha4, kind: TCPRoute, metadata: {name: a, namespace: shop}, spec: 7}",
		"{apiVersion: specs.smi-spec.io/v1alpha4, kind: TCPRoute, metadata: {name: b, namespace: shop}, spec: 7}",
		"{apiVersion: specs.smi-spec.io/v1alpha4, kind: UDPRoute, metadata: {name: c, namespace: shop}, spec: 7}",
	)
	set := loadKinds(t, dialect.Kinds(), text)
	if len(set.Rejected) != 6 {
		t.Fatal(set.Rejected)
	}
	for range 20 { // they have no fixed order
		config, _, _, _ := access.Translate(set, access.Options{})
		if got := closing(config); !reflect.DeepEqual(got, []string{"TrafficRole r: * shop/*"}) {
			t.Fatalf("closed by %q", got)
		}
	}
}

// A schema rejects such selectors first; a release of it may not.
func TestASelectorThatIsNotValidSelectsNothing(t *testing.T) {
	set := loadKinds(t, dialect.Kinds(), join(
		"{apiVersion: access.smi-spec.io/v1alpha4, kind: IdentityBinding, metadata: {name: i, namespace: shop}, spec: {schemes: {podLabelSelectors: [{matchLabels: {a: x}}, {matchLabels: {app: web}}]}}}",
		strings.Replace(aPod, "name: web-1", "name: web-1, labels: {app: web}", 1)))
	access.Identities.In(set)[0].Spec.Schemes.Pods[0].MatchLabels = map[string]string{"no key": "x"}
	config, statuses, _, findings := access.Translate(set, access.Options{})
	if len(findings) != 1 || findings[0].Code != "WR1031" || findings[0].Ref.Field != "spec.schemes.podLabelSelectors[0]" {
		t.Errorf("findings are %v", findings)
	}
	if c := statuses[0].Conditions[0]; c.Reason != "PartlyInvalid" {
		t.Errorf("accepted is %+v", c)
	}
	if !slices.ContainsFunc(config.Workloads[0].Groups, func(g model.Group) bool { return g.Kind == "IdentityBinding" && g.Name == "i" }) {
		t.Errorf("the other selector does not select %+v", config.Workloads[0])
	}
}

func TestATargetSaysWhyAnIdentityBindingIsNotThere(t *testing.T) {
	for name, c := range map[string]struct {
		text    string
		partial bool
		want    string
	}{
		"left out":                         {join(aTarget, aRoute, badIdentity), true, "IdentityBinding shop/i is left out, because it is not valid"},
		"among manifests":                  {join(aTarget, aRoute), true, "IdentityBinding shop/i is not among the files"},
		"among manifests that have others": {join(aTarget, aRoute, strings.Replace(anID, "name: i,", "name: j,", 1)), true, "IdentityBinding shop/i does not exist"},
	} {
		_, _, events, findings := access.Translate(loadKinds(t, dialect.Kinds(), c.text), access.Options{Partial: c.partial})
		if !slices.ContainsFunc(findings, func(f resource.Finding) bool { return strings.Contains(f.Text(), c.want) }) {
			t.Errorf("%s: %v %v", name, findings, events)
		}
	}
	account := "{apiVersion: access.smi-spec.io/v1alpha4, kind: TrafficTarget, metadata: {name: t, namespace: shop}, spec: {destination: {kind: ServiceAccount, name: a}, rules: [{kind: TCPRoute, name: all}], sources: [{kind: ServiceAccount, name: a}]}}"
	other := "{apiVersion: v1, kind: ServiceAccount, metadata: {name: b, namespace: shop}}"
	_, _, _, findings := access.Translate(loadKinds(t, dialect.Kinds(), join(account, aRoute, other)), access.Options{Partial: true})
	if len(findings) != 2 || !strings.Contains(findings[0].Text(), "ServiceAccount shop/a does not exist") {
		t.Errorf("beside another ServiceAccount: %v", findings)
	}
}

func TestEachKindHasItsTraits(t *testing.T) {
	converted := 0
	for _, k := range access.Kinds() {
		if k.Status == nil || !slices.Equal(k.Status.Types, []string{"Accepted", "ResolvedRefs", "Effective"}) || !k.Status.Conditions || !k.Status.Generation {
			t.Errorf("%s: its status is %+v", k.Name, k.Status)
		}
		if k.Missing != resource.Info || !strings.Contains(k.Without, k.Name+"s of SMI") {
			t.Errorf("%s: without it %q, %v", k.Name, k.Without, k.Missing)
		}
		if k.Conversion != nil {
			if converted++; k.Conversion.Name != k.Name {
				t.Errorf("%s is converted as %s", k.Name, k.Conversion.Name)
			}
		}
	}
	if converted != len(api.Kinds()) || converted == 0 {
		t.Errorf("%d kinds are converted", converted)
	}
}

// TestTheFormOfATargetSaysItsVersion has it without apiVersion.
func TestTheFormOfATargetSaysItsVersion(t *testing.T) {
	spec := map[string]any{"destination": map[string]any{"kind": "ServiceAccount"}}
	port := map[string]any{"destination": map[string]any{"port": 80}}
	for _, c := range []struct {
		kind, apiVersion string
		object           map[string]any
		want             string
		ok               bool
	}{
		{"TrafficTarget", "", map[string]any{}, "v1alpha4", true},
		{"TrafficTarget", "", map[string]any{"spec": spec}, "v1alpha4", true},
		{"TrafficTarget", "", map[string]any{"spec": port}, "v1alpha2", true},
		{"TrafficTarget", "", spec, "v1alpha1", true},
		{"TrafficTarget", "", map[string]any{"spec": spec, "destination": port["destination"]}, "v1alpha4", true},
		{"TrafficTarget", "v1alpha1", spec, "v1alpha1", false},
		{"IdentityBinding", "", map[string]any{}, "v1alpha4", true},
		{"TrafficRole", "", map[string]any{}, "v1beta1", true},
		{"TrafficRole", "v1beta1", map[string]any{}, "v1beta1", true},
		{"TrafficRole", "v1", map[string]any{}, "v1beta1", false},
	} {
		got, ok := access.Kinds().Find("access.smi-spec.io", c.kind).Complete(c.apiVersion, c.kind, c.object)
		if got != "access.smi-spec.io/"+c.want || ok != c.ok {
			t.Errorf("%s %q %v is %s, %t", c.kind, c.apiVersion, c.object, got, ok)
		}
	}
}
