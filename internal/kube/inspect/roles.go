package inspect

import (
	"context"
	"fmt"
	"slices"

	rbacv1 "k8s.io/api/rbac/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/dialect/roles"
	"github.com/weirmesh/weir/internal/model"
)

// pageSize is how many roles one request lists.
const pageSize = 500

// roles judges the rules about Traffic Metrics of all Roles and ClusterRoles. Those that Kubernetes makes from others are
// left out: the others are judged.
func (r *reader) roles(ctx context.Context) error {
	judge := func(ref model.Ref, rules []rbacv1.PolicyRule) {
		r.out.Roles = append(r.out.Roles, roles.Judge(ref, rules)...)
	}
	of := &rbacv1.RoleList{}
	if err := r.pages(ctx, "Roles"+aboutTraffic, of, func() {
		for i := range of.Items {
			judge(model.Ref{Kind: "Role", Namespace: of.Items[i].Namespace, Name: of.Items[i].Name}, of.Items[i].Rules)
		}
	}); err != nil {
		return err
	}
	all := &rbacv1.ClusterRoleList{}
	return r.pages(ctx, "ClusterRoles"+aboutTraffic, all, func() {
		for i := range all.Items {
			if all.Items[i].AggregationRule == nil {
				judge(model.Ref{Kind: "ClusterRole", Name: all.Items[i].Name}, all.Items[i].Rules)
			}
		}
	})
}

const aboutTraffic = " (their rules about Traffic Metrics)"

// pages lists objects, and calls f for each part of them, which is in list. Objects that may not be
// read are noted.
func (r *reader) pages(ctx context.Context, what string, list client.ObjectList, f func(), options ...client.ListOption) error {
	for next := ""; ; {
		err := r.client.List(ctx, list, append(slices.Clone(options), client.Limit(pageSize), client.Continue(next))...)
		if r.refused(what, err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		f()
		if next = list.GetContinue(); next == "" {
			return nil
		}
	}
}
