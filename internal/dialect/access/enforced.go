package access

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// enforced makes the condition Effective of what is in force say which of the pods that it is about have no sidecar, so
// that nothing is denied there. It is for clusters with sidecars.
func (t *translator) enforced() {
	pods := map[string][]int{} // their places, by namespace
	for i := range t.workloads {
		if t.pods[i].Kind != model.KindPod {
			continue // its pods are yet to come
		}
		pods[t.workloads[i].Ref.Namespace] = append(pods[t.workloads[i].Ref.Namespace], i)
	}
	of := map[model.Ref][]*model.Policy{}
	for i := range t.policies {
		p := &t.policies[i]
		for _, ref := range []model.Ref{p.Ref, p.Binding} {
			if ref.Field = ""; ref != (model.Ref{}) {
				of[ref] = append(of[ref], p)
			}
		}
	}
	for i := range t.statuses {
		s := &t.statuses[i]
		for j := range s.Conditions {
			if c := &s.Conditions[j]; c.Type == "Effective" && c.Status == resource.True("", "", "").Status {
				t.coverage(s.Ref, of[s.Ref], pods, c)
			}
		}
	}
}

// coverage completes one condition.
func (t *translator) coverage(ref model.Ref, policies []*model.Policy, in map[string][]int, c *resource.Condition) {
	var without []string
	covered := 0
	seen := map[int]bool{}
	for _, p := range policies {
		for _, target := range p.Targets {
			for namespace, places := range in {
				if target.Namespace != "" && target.Namespace != namespace {
					continue
				}
				for _, k := range places {
					if _, named := target.Names(&t.workloads[k]); !named || seen[k] {
						continue
					}
					seen[k] = true
					if t.pods[k].Sidecar {
						covered++
					} else {
						without = append(without, t.workloads[k].Name())
					}
				}
			}
		}
	}
	if len(without) == 0 {
		return
	}
	text := listed(without)
	if covered == 0 {
		p := resource.Problem(codeUnenforced, "NotEnforced", "", fmt.Sprintf("none of the pods that it is about has a sidecar (%s), so it denies nothing", text),
			"label their namespace weirmesh.github.io/inject=enabled and restart them")
		t.report(ref, p)
		*c = lacking("Effective", []resource.Finding{p})
		return
	}
	*c = resource.True("Effective", "PartlyEnforced", fmt.Sprintf("nothing is denied at the pods without a sidecar, %d of %d: %s", len(without), len(without)+covered, text))
}

// listed names a few of many workloads.
func listed(all []string) string {
	const few = 3
	slices.Sort(all)
	if len(all) > few {
		return fmt.Sprintf("%s and %d more", strings.Join(all[:few], ", "), len(all)-few)
	}
	return strings.Join(all, ", ")
}
