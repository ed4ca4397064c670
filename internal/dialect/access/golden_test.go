package access_test

import (
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

const leastGoldens = 20

func TestTranslateGoldens(t *testing.T) {
	goldentest.Run(t, leastGoldens, func(name string, set *resource.Set) goldentest.Output {
		var o access.Options
		switch name {
		case "deny-all":
			o.Deny = model.DenyAll
		case "partial":
			o.Partial = true
		case "cluster":
			o.Unenforced = true
		case "mesh":
			o.Mesh = true
		case "unseen": // of a cluster of which a part is watched, and not all kinds
			set.Watched = []string{"blog"}
			for _, k := range set.Kinds() {
				if k.Name == "Pod" || k.Name == "ServiceAccount" {
					set.Unread = append(set.Unread, k)
				}
			}
		}
		config, statuses, events, found := access.Translate(set, o)
		findings := slices.Concat(set.Findings, found)
		resource.SortFindings(findings)
		return goldentest.Output{Config: model.Merge(config), Statuses: statuses, Events: events, Findings: findings}
	})
}

// A sidecar closes a workload that it does not know, so it needs them also where there is nothing of access control.
func TestASidecarKnowsItsWorkloadWithoutAnyPolicy(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in.yaml")
	if err := os.WriteFile(file, []byte("apiVersion: v1\nkind: Pod\nmetadata: {name: web-1, namespace: shop}\nspec: {containers: [{name: web, image: web}]}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	set, err := resource.Load(slices.Concat(access.Kinds(), workload.Kinds()), []string{file}, nil)
	if err != nil {
		t.Fatal(err)
	}
	of := func(o access.Options) []model.Workload {
		config, _, _, found := access.Translate(set, o)
		if len(config.Policies)+len(found) > 0 {
			t.Errorf("%+v %v", config.Policies, found)
		}
		return config.Workloads
	}
	if got, want := of(access.Options{Sidecar: true}), access.Workloads(set, access.Options{}); len(got) != 1 || !reflect.DeepEqual(got, want) {
		t.Errorf("a sidecar has %+v, want %+v", got, want)
	}
	if got := of(access.Options{}); len(got) > 0 {
		t.Errorf("others have %+v", got)
	}
}
