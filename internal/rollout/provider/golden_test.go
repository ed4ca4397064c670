package provider_test

import (
	"fmt"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"

	dialects "github.com/weirmesh/weir/internal/dialect/rollouts"

	"github.com/weirmesh/weir/internal/dialect/goldentest"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider"
)

// leastGoldens keeps cases from being lost.
const leastGoldens = 10

// TestStepsOnObjects runs the cases in testdata: Rollouts and objects as users write them, and what each step makes of
// them.
func TestStepsOnObjects(t *testing.T) {
	for path, g := range goldentest.All(t, leastGoldens) {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".golden"), func(t *testing.T) {
			set := goldentest.Load(t, g)
			for _, f := range set.Findings {
				if f.Severity.String() == "error" {
					t.Error(f)
				}
			}
			var b strings.Builder
			for _, r := range dialects.List.In(set) {
				for _, stage := range provider.All().Plan(r, dialects.Written(set, r.Namespace)) {
					fmt.Fprintf(&b, "# Rollout %s, step %d. %s\n", r.Name, stage.Step+1, stage.Who)
					for _, part := range stage.Parts {
						write(t, &b, part)
					}
				}
			}
			g.Compare(t, path, []goldentest.Part{{Name: "steps", Text: b.String()}})
		})
	}
}

func write(t *testing.T, b *strings.Builder, part rollout.Part) {
	t.Helper()
	for _, told := range part.Laid.Told {
		kind := "note"
		if told.Short {
			kind = "short"
		}
		fmt.Fprintf(b, "# %s %s: %s: %s; %s\n", kind, part.Target, told.Field, told.Message, told.Fix)
	}
	if part.Before == nil {
		fmt.Fprintf(b, "# %s is not there\n", part.Target)
		return
	}
	if reflect.DeepEqual(part.Laid.Object, part.Before) {
		fmt.Fprintf(b, "# %s is as it was\n", part.Target)
	} else {
		object(t, b, part.Laid.Object)
	}
	for _, o := range part.Laid.Owned {
		object(t, b, o)
	}
}

func object(t *testing.T, b *strings.Builder, u map[string]any) {
	t.Helper()
	text, err := yaml.Marshal(u)
	if err != nil {
		t.Fatal(err)
	}
	fmt.Fprintf(b, "---\n%s", text)
}
