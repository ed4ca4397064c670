package access

import (
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/api/access"
	"github.com/weirmesh/weir/deploy/crds"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// Where a Set has the objects of each kind.
var (
	Roles           = resource.NewList[*access.TrafficRole]()
	RoleBindings    = resource.NewList[*access.TrafficRoleBinding]()
	ClusterRoles    = resource.NewList[*access.ClusterTrafficRole]()
	ClusterBindings = resource.NewList[*access.ClusterTrafficRoleBinding]()
	Targets         = resource.NewList[*access.TrafficTarget]()
	Identities      = resource.NewList[*access.IdentityBinding]()
)

// Kinds returns the kinds that are read.
func Kinds() resource.Kinds { return kinds[:len(kinds):len(kinds)] }

const about = "all of it ([access](access.md)); enforced by sidecars"

var kinds = resource.Kinds{
	kind(&resource.Kind{
		Name: "TrafficRole", Plural: "trafficroles", Versions: access.RoleVersions,
		Decoder: resource.Versioned(access.DecodeTrafficRole, nil), Objects: Roles,
		Table: "TRAFFICROLE", Columns: roleColumns(func(r *access.TrafficRole) []access.Rule { return r.Rules }),
		About: about + ". The first draft's form, also without a group",
	}),
	kind(&resource.Kind{
		Name: "TrafficRoleBinding", Plural: "trafficrolebindings", Versions: access.RoleVersions,
		Decoder: resource.Versioned(access.DecodeTrafficRoleBinding, nil), Objects: RoleBindings,
		Table: "TRAFFICROLEBINDING", Columns: bindingColumns(func(b *access.TrafficRoleBinding) ([]access.Subject, access.RoleRef) { return b.Subjects, b.RoleRef }),
		About: about + ". The first draft's form, also without a group",
	}),
	kind(&resource.Kind{
		Name: "ClusterTrafficRole", Plural: "clustertrafficroles", Cluster: true, Versions: access.RoleVersions,
		Decoder: resource.Versioned(access.DecodeClusterTrafficRole, nil), Objects: ClusterRoles,
		Table: "TRAFFICROLE", Columns: roleColumns(func(r *access.ClusterTrafficRole) []access.Rule { return r.Rules }),
		About: about + ". The first draft's form, also without a group; its resources may have a namespace",
	}),
	kind(&resource.Kind{
		Name: "ClusterTrafficRoleBinding", Plural: "clustertrafficrolebindings", Cluster: true, Versions: access.RoleVersions,
		Decoder: resource.Versioned(access.DecodeClusterTrafficRoleBinding, nil), Objects: ClusterBindings,
		Table: "TRAFFICROLEBINDING", Columns: bindingColumns(func(b *access.ClusterTrafficRoleBinding) ([]access.Subject, access.RoleRef) {
			return b.Subjects, b.RoleRef
		}),
		About: about + ". The first draft's form, also without a group",
	}),
	kind(&resource.Kind{
		Name: "TrafficTarget", Plural: "traffictargets", Versions: access.TargetVersions,
		Decoder: resource.Versioned(access.DecodeTrafficTarget, nil), Objects: Targets,
		Table: "TRAFFICTARGET", Columns: append([]resource.Column{
			resource.ColumnOf("DESTINATION", func(t *access.TrafficTarget) []string { return []string{destination(t.Spec)} }),
			resource.ColumnOf("SOURCES", func(t *access.TrafficTarget) (out []string) {
				for _, s := range t.Spec.Sources {
					out = append(out, identity(s))
				}
				return out
			}),
			resource.ColumnOf("RULES", func(t *access.TrafficTarget) (out []string) {
				all := t.Spec.Rules
				for i := range all {
					out = append(out, all[i].Kind+"/"+all[i].Name)
				}
				return out
			}),
		}, resource.Columns("ACCEPTED", "RESOLVED", "EFFECTIVE")...),
		About: about + ". The port of v1alpha1 and v1alpha2 is an annotation in the others",
	}),
	kind(&resource.Kind{
		Name: "IdentityBinding", Plural: "identitybindings", Versions: access.IdentityVersions,
		Decoder: resource.Versioned(access.DecodeIdentityBinding, nil), Objects: Identities,
		Table: "IDENTITYBINDING", Columns: append([]resource.Column{resource.ColumnOf("SCHEMES", schemes)}, resource.Columns("ACCEPTED", "RESOLVED", "EFFECTIVE")...),
		About: about + ". Pod selectors under both names and in both forms that the specification has",
	}),
}

// kind adds what all kinds have in common.
func kind(k *resource.Kind) *resource.Kind {
	k.Group, k.API, k.Domain, k.Bundled, k.Strict = access.Group, "SMI", "smi-spec.io", true, true
	k.Definition = resource.Definition{Files: crds.Files, Name: k.Group + "_" + k.Plural + ".yaml"}
	k.Status = &resource.StatusForm{Types: []string{"Accepted", "ResolvedRefs", "Effective"}, Conditions: true, Generation: true}
	k.Needs = workload.Kinds()
	k.Missing, k.Without = resource.Info, "there are no "+k.Name+"s of SMI"
	k.Effects, k.Complete = effects, complete(k.Name)
	for _, c := range access.Kinds() {
		if c.Name == k.Name {
			k.Conversion = &c
		}
	}
	return k
}

// effects are those of missing fields: resource.Kind.Effects.
var effects = map[string]string{
	"rules.resources": "the rule is for all resources", "rules.methods": "the rule allows every method", "rules.paths": "the rule allows every path",
	"resources.namespace": "the resource is of each namespace to which a binding gives the role", "subjects.apiGroup": "the kind's own group is meant",
	"TrafficRoleBinding.subjects.namespace": "the subject is of the binding's own namespace", "ClusterTrafficRoleBinding.subjects.namespace": "the subject is of any namespace",
	"roleRef.apiGroup": "the kind's own group is meant",

	"destination.namespace": "the destination is of the target's own namespace", "destination.port": "all ports are allowed",
	"sources.namespace": "the source is of the target's own namespace", "rules.matches": "the rule allows all matches of the group",

	"schemes.podLabelSelectors": "no pods are meant by their labels", "schemes.podLabelSelector": "no pods are meant by their labels",
	"schemes.spiffeIdentities": "nobody is meant by a SPIFFE ID", "schemes.serviceAccount": "no ServiceAccount is meant",
}

// complete returns the apiVersion that an object of a kind would have in a cluster. The first draft omits the group in its
// examples, the released specification all of it. The form of a TrafficTarget says which version it is: a port must not be
// overlooked.
func complete(of string) func(apiVersion, kind string, u map[string]any) (full string, ok bool) {
	return func(apiVersion, kind string, u map[string]any) (full string, ok bool) {
		if kind != of {
			return "", false
		}
		version := access.TargetVersions[0]
		switch kind {
		default:
			version = access.Draft
			ok = apiVersion == access.Draft
		case "IdentityBinding":
		case "TrafficTarget":
			spec, _ := u["spec"].(map[string]any)
			destination, _ := spec["destination"].(map[string]any)
			if _, port := destination["port"]; port {
				version = "v1alpha2"
			}
			if u["spec"] == nil && u["destination"] != nil {
				version = "v1alpha1"
			}
		}
		return access.Group + "/" + version, ok || apiVersion == ""
	}
}

func roleColumns[T metav1.Object](rules func(T) []access.Rule) []resource.Column {
	column := func(header string, of func(access.Rule) []string) resource.Column {
		return resource.ColumnOf(header, func(role T) (out []string) {
			for _, r := range rules(role) {
				out = append(out, of(r)...)
			}
			return out
		})
	}
	all := func(list []string) []string {
		if list == nil {
			return []string{access.Any}
		}
		return list
	}
	return append([]resource.Column{
		{Header: "KIND"},
		column("RESOURCES", func(r access.Rule) []string {
			if r.Resources == nil {
				return []string{access.Any}
			}
			var out []string
			for _, r := range r.Resources {
				out = append(out, string(r.Kind)+"/"+strings.TrimPrefix(r.Namespace+"/", "/")+r.Name)
			}
			return out
		}),
		column("METHODS", func(r access.Rule) []string { return all(r.Methods) }),
		column("PATHS", func(r access.Rule) []string { return all(r.Paths) }),
	}, resource.Columns("ACCEPTED", "RESOLVED", "EFFECTIVE")...)
}

func bindingColumns[T metav1.Object](parts func(T) ([]access.Subject, access.RoleRef)) []resource.Column {
	return append([]resource.Column{
		{Header: "KIND"},
		resource.ColumnOf("SUBJECTS", func(b T) (out []string) {
			subjects, _ := parts(b)
			for _, s := range subjects {
				out = append(out, string(s.Kind)+"/"+strings.TrimPrefix(s.Namespace+"/", "/")+s.Name)
			}
			return out
		}),
		resource.ColumnOf("ROLE", func(b T) []string {
			_, ref := parts(b)
			return []string{ref.Kind + "/" + ref.Name}
		}),
	}, resource.Columns("ACCEPTED", "RESOLVED", "EFFECTIVE")...)
}

func identity(i access.Identity) string {
	return i.Kind + "/" + strings.TrimPrefix(i.Namespace+"/", "/") + i.Name
}

func destination(s access.TargetSpec) string {
	if s.Port == 0 {
		return identity(s.Destination)
	}
	return identity(s.Destination) + ":" + strconv.Itoa(int(s.Port))
}

func schemes(b *access.IdentityBinding) (out []string) {
	s := b.Spec.Schemes
	if len(s.Pods) > 0 {
		out = append(out, "pods")
	}
	out = append(out, s.SPIFFE...)
	if s.ServiceAccount != "" {
		out = append(out, access.KindServiceAccount+"/"+s.ServiceAccount)
	}
	return out
}
