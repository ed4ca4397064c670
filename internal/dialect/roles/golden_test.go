package roles_test

import (
	"path/filepath"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/dialect/roles"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const leastGoldens = 5

// TestRolesAreJudged runs the cases in testdata.
func TestRolesAreJudged(t *testing.T) {
	for path, g := range goldentest.All(t, leastGoldens) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".golden"), func(t *testing.T) {
			set := goldentest.Load(t, g)
			all := append(roles.Translate(set), set.Findings...)
			resource.SortFindings(all)
			var b strings.Builder
			for _, f := range all {
				b.WriteString(f.String() + "\n")
			}
			g.Compare(t, path, []goldentest.Part{{Name: "findings", Text: b.String()}})
		})
	}
}

// TestLargeRolesAreJudgedInTime: a role of the size that API servers take has few findings, and costs no more than its
// size.
func TestLargeRolesAreJudgedInTime(t *testing.T) {
	many := make([]string, 50_000)
	for i := range many {
		many[i] = "namespaces/edges"
	}
	group := []string{"traffic.metrics.k8s.io"}
	large := []rbacv1.PolicyRule{{APIGroups: group, Resources: many, Verbs: many}, {APIGroups: group, Resources: append(many, "pods"), Verbs: append(many, "get")}}
	for range 10_000 {
		large = append(large, rbacv1.PolicyRule{APIGroups: group, Resources: []string{"namespaces/edges", "x"}, Verbs: []string{"get"}})
	}
	found := roles.Judge(model.Ref{Kind: "ClusterRole", Name: "large"}, large)
	if n := len(found); n != 20 || !strings.Contains(found[19].Message, " more findings about this role are left out") {
		t.Errorf("%d findings, the last is %s", n, found[n-1])
	}
}
