// Package roles reads Roles and ClusterRoles of Kubernetes and judges their rules about Traffic Metrics: an API server
// accepts every rule, also one that never permits anything. It judges nothing else in them, and makes nothing of the
// model.
//
// It is pure: it reads a resource.Set, which it does not change, and nothing else.
package roles

import (
	"fmt"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// role is what matters of a Role or ClusterRole.
type role struct {
	metav1.TypeMeta
	metav1.ObjectMeta
	rules []rbacv1.PolicyRule
}

// The kinds, each a type of its own, by which a Set tells them apart.
type (
	// Role is of rbac.authorization.k8s.io/v1.
	Role struct{ role }
	// ClusterRole is of rbac.authorization.k8s.io/v1.
	ClusterRole struct{ role }
)

var (
	roleList        = resource.NewList[*Role]()
	clusterRoleList = resource.NewList[*ClusterRole]()
)

// Kinds returns the kinds that are read.
func Kinds() resource.Kinds { return kinds[:len(kinds):len(kinds)] }

// They are from files only: the controller of a cluster may not read them. "weir check" reads those of a cluster with its
// user's rights, and judges them by Judge.
var kinds = resource.Kinds{
	{
		Group: rbacv1.GroupName, Name: "Role", Plural: "roles", Versions: []string{"v1"}, FilesOnly: true, Objects: roleList, Effects: resource.FieldEffects,
		Decoder: resource.Excerpt(func(u map[string]any, r *Role) field.ErrorList { return r.read(u) }), Unlike: []string{"RoleBinding"},
	},
	{
		Group: rbacv1.GroupName, Name: "ClusterRole", Plural: "clusterroles", Cluster: true, Versions: []string{"v1"}, FilesOnly: true, Objects: clusterRoleList,
		Decoder: resource.Excerpt(func(u map[string]any, r *ClusterRole) field.ErrorList { return r.read(u) }), Effects: resource.FieldEffects, Unlike: []string{"ClusterRoleBinding"},
	},
}

// read takes the rules, unless Kubernetes itself makes them from those of other roles.
func (r *role) read(u map[string]any) (errs field.ErrorList) {
	list := func(v any, at *field.Path) []any {
		l, ok := v.([]any)
		if !ok && v != nil {
			errs = append(errs, field.TypeInvalid(at, v, "must be a list"))
		}
		return l
	}
	texts := func(v any, at *field.Path) (out []string) {
		for i, v := range list(v, at) {
			s, ok := v.(string)
			if !ok {
				errs = append(errs, field.TypeInvalid(at.Index(i), v, "must be text; put it in quotes"))
			}
			out = append(out, s)
		}
		return out
	}
	if u["aggregationRule"] != nil {
		return nil
	}
	rules := field.NewPath("rules")
	for i, v := range list(u["rules"], rules) {
		at := rules.Index(i)
		of, ok := v.(map[string]any)
		if !ok {
			errs = append(errs, field.TypeInvalid(at, v, "must be an object"))
		}
		r.rules = append(r.rules, rbacv1.PolicyRule{
			Verbs: texts(of["verbs"], at.Child("verbs")), APIGroups: texts(of["apiGroups"], at.Child("apiGroups")),
			Resources: texts(of["resources"], at.Child("resources")), ResourceNames: texts(of["resourceNames"], at.Child("resourceNames")),
		})
	}
	return errs
}

// Translate judges the roles of a set.
func Translate(set *resource.Set) (findings []resource.Finding) {
	judged := func(ref model.Ref, rules []rbacv1.PolicyRule) {
		for _, f := range Judge(ref, rules) {
			findings = append(findings, set.About(ref, f, severities))
		}
	}
	for _, r := range roleList.In(set) {
		judged(model.Ref{Kind: "Role", Namespace: r.Namespace, Name: r.Name}, r.rules)
	}
	for _, r := range clusterRoleList.In(set) {
		judged(model.Ref{Kind: "ClusterRole", Name: r.Name}, r.rules)
	}
	resource.SortFindings(findings)
	return findings
}

// maxFindings is how many findings one role has.
const maxFindings = 20

// Judge judges the rules of one role: a Role if ref has a namespace, else a ClusterRole. Rules about other API groups have
// no findings.
func Judge(ref model.Ref, rules []rbacv1.PolicyRule) []resource.Finding {
	j := &judge{ref: ref, granted: map[[2]string]bool{}}
	for i := range rules {
		j.grant(&rules[i])
	}
	for i := range rules {
		j.rule(&rules[i], fmt.Sprintf("rules[%d]", i))
	}
	if n := len(j.found) - maxFindings; n > 0 {
		last := &j.found[maxFindings-1]
		last.Message += fmt.Sprintf("; %d more findings about this role are left out", n)
		j.found = j.found[:maxFindings]
	}
	return j.found
}
