package admission

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	admissionv1 "k8s.io/api/admission/v1"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/rollout/workload"
)

var update = flag.Bool("update", false, "rewrite golden files")

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// review is the body of one about a Rollout in namespace shop: objects are YAML, empty for none.
func review(t testing.TB, operation, version, old, object string) []byte {
	t.Helper()
	r := map[string]any{
		"uid": "u-1", "operation": operation, "namespace": "shop", "name": "web",
		"kind":     map[string]any{"group": "rollouts.kruise.io", "version": version, "kind": "Rollout"},
		"resource": map[string]any{"group": "rollouts.kruise.io", "version": version, "resource": "rollouts"},
	}
	for name, text := range map[string]string{"object": object, "oldObject": old} {
		if text == "" {
			continue
		}
		var u any
		if err := yaml.Unmarshal([]byte(text), &u); err != nil {
			t.Fatal(err)
		}
		r[name] = u
	}
	body, err := json.Marshal(map[string]any{"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": r})
	if err != nil {
		t.Fatal(err)
	}
	return body
}

// judged is the answer to a review.
func judged(t testing.TB, v *Rollouts, body []byte) *admissionv1.AdmissionResponse {
	t.Helper()
	text, err := v.Answer(t.Context(), body)
	if err != nil {
		t.Fatal(err)
	}
	var out admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &out); err != nil || out.Response == nil || out.APIVersion != "admission.k8s.io/v1" || out.Kind != "AdmissionReview" || out.Response.UID != "u-1" {
		t.Fatalf("%s: %v", text, err)
	}
	return out.Response
}

// others are the Rollouts of the namespace, as YAML.
func others(t testing.TB, text string) func(context.Context, string, string) ([]map[string]any, error) {
	return func(_ context.Context, _, namespace string) (all []map[string]any, err error) {
		if namespace != "shop" {
			return nil, fmt.Errorf("asked for %s", namespace)
		}
		if strings.HasPrefix(text, "error: ") {
			return nil, errors.New(strings.TrimPrefix(text, "error: "))
		}
		for _, d := range strings.Split(text, "\n---\n") {
			var u map[string]any
			if err := yaml.Unmarshal([]byte(d), &u); err != nil {
				t.Fatal(err)
			}
			if u != nil {
				all = append(all, u)
			}
		}
		return all, nil
	}
}

// only has the Deployment and the Service of a golden file, as YAML, or an error that begins with "error: ".
func only(t testing.TB, parts map[string]string) func(context.Context, string, string, string) (map[string]any, error) {
	return func(_ context.Context, kind, _, _ string) (u map[string]any, err error) {
		text := parts[strings.ToLower(kind)]
		if why, ok := strings.CutPrefix(text, "error: "); ok {
			return nil, errors.New(strings.TrimSpace(why))
		}
		if err := yaml.Unmarshal([]byte(text), &u); err != nil {
			t.Fatal(err)
		}
		return u, nil
	}
}

const extraPods = `
apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {namespace: shop, name: web}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  strategy: {canary: {enableExtraWorkloadForCanary: true, patchPodTemplateMetadata: {labels: {app: canary}}, steps: [{replicas: 1}]}}
`

// TestAFloodOfReviewsFindsNothing: what selects pods is asked for as rarely as other Rollouts are.
func TestAFloodOfReviewsFindsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked int
		v := &Rollouts{List: others(t, ""), Find: func(ctx context.Context, _, _, _ string) (map[string]any, error) {
			asked++
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		var ended sync.WaitGroup
		warned := make(chan string, 2*listsAtOnce)
		for range 2 * listsAtOnce {
			ended.Go(func() {
				r := judged(t, v, review(t, "CREATE", "v1beta1", "", extraPods))
				if !r.Allowed {
					t.Errorf("%+v", r)
				}
				warned <- strings.Join(r.Warnings, "; ")
			})
			synctest.Wait()
		}
		ended.Wait()
		close(warned)
		busy, late := 0, 0
		for w := range warned {
			switch {
			case strings.Contains(w, "it is not known whether selectors match pods with these labels") && strings.Contains(w, "too many reviews"):
				busy++
			case strings.Contains(w, "it is not known whether selectors match pods with these labels") && strings.Contains(w, "deadline"):
				late++
			}
		}
		if busy != listsAtOnce || late != listsAtOnce || asked != listsAtOnce {
			t.Errorf("%d asked, %d too late, %d too many; want %d each", asked, late, busy, listsAtOnce)
		}
	})
}

// TestAnswers compares golden files: parts of the input, then the answer as its user sees it.
func TestAnswers(t *testing.T) {
	kinds, err := workload.Named([]string{"GameSet:gamesets.apps.example.com"})
	if err != nil {
		t.Fatal(err)
	}
	files, err := filepath.Glob("testdata/*.golden")
	if err != nil || len(files) < 10 {
		t.Fatalf("%d golden files, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(strings.TrimSuffix(filepath.Base(file), ".golden"), func(t *testing.T) {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			input, want, _ := strings.Cut(string(text), "-- answer --\n")
			parts := map[string]string{}
			for _, p := range strings.Split("\n"+input, "\n-- ")[1:] {
				name, content, _ := strings.Cut(p, " --\n")
				parts[name] = content
			}
			operation := admissionv1.Create
			if parts["old"] != "" {
				operation = admissionv1.Update
			}
			_, version, _ := strings.Cut(parts["object"], "rollouts.kruise.io/")
			version, _, _ = strings.Cut(version, "\n")
			v := &Rollouts{List: others(t, strings.TrimSpace(parts["others"])), Find: only(t, parts), Kinds: kinds}
			r := judged(t, v, review(t, string(operation), version, parts["old"], parts["object"]))
			got := fmt.Sprintf("allowed: %t\n", r.Allowed)
			if r.Result != nil {
				got += fmt.Sprintf("%d %s, %d causes\n%s\n", r.Result.Code, r.Result.Reason, len(r.Result.Details.Causes), r.Result.Message)
			}
			for _, w := range r.Warnings {
				got += "warning: " + w + "\n"
			}
			if *update {
				if err := os.WriteFile(file, []byte(input+"-- answer --\n"+got), 0o644); err != nil {
					t.Fatal(err)
				}
			} else if got != want {
				t.Errorf("answered\n%s\nwant\n%s", got, want)
			}
			if s := v.Stats(); s.Answered != 1 || (s.Denied == 1) == r.Allowed {
				t.Errorf("counted %+v", s)
			}
		})
	}
}

const valid = `apiVersion: rollouts.kruise.io/v1beta1
kind: Rollout
metadata: {namespace: shop, name: web}
spec:
  workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  strategy: {canary: {trafficRoutings: [{service: web, gateway: {httpRouteName: web}}], steps: [{traffic: 20%, replicas: 1}]}}
`

// TestWhatNeedsNoJudgingPasses has a Rollout that is not valid, whatever happens to it but to its spec. Nobody is asked for
// others.
func TestWhatNeedsNoJudgingPasses(t *testing.T) {
	broken := strings.Replace(valid, "20%", "900%", 1) + "status: {phase: Progressing}\n"
	v := &Rollouts{List: func(context.Context, string, string) ([]map[string]any, error) { t.Error("asked"); return nil, nil }}
	alpha := func(text string) string {
		return strings.NewReplacer("v1beta1", "v1alpha1", "workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}", "objectRef: {}").Replace(text)
	}
	for what, body := range map[string][]byte{
		"finalizers":           review(t, "UPDATE", "v1beta1", broken, strings.Replace(broken, "name: web}", "name: web, finalizers: [a]}", 1)),
		"finalizers, old":      review(t, "UPDATE", "v1alpha1", alpha(broken), strings.Replace(alpha(broken), "name: web}", "name: web, finalizers: [a]}", 1)),
		"annotations, old":     review(t, "UPDATE", "v1alpha1", alpha(valid), strings.Replace(alpha(valid), "name: web}", "name: web, annotations: {a: b}}", 1)),
		"deletion":             review(t, "DELETE", "v1beta1", broken, ""),
		"connection":           review(t, "CONNECT", "v1beta1", "", ""),
		"status":               []byte(strings.Replace(string(review(t, "UPDATE", "v1beta1", broken, valid)), `"uid"`, `"subResource":"status","uid"`, 1)),
		"valid, same":          review(t, "UPDATE", "v1beta1", valid, valid),
		"valid, workload kept": review(t, "UPDATE", "v1beta1", valid, strings.Replace(valid, "20%", "30%", 1)),
		"mended":               review(t, "UPDATE", "v1beta1", broken, valid),
	} {
		if r := judged(t, v, body); !r.Allowed || len(r.Warnings) > 0 {
			t.Errorf("%s: %+v %v", what, r, r.Result)
		}
	}
	if r := judged(t, v, review(t, "UPDATE", "v1beta1", broken, strings.Replace(broken, "replicas: 1", "replicas: 2", 1))); r.Allowed {
		t.Error("a spec that is changed and not valid passes")
	}
	// In the old version the style is an annotation: changing it is a change of spec.
	old := strings.NewReplacer("v1beta1", "v1alpha1", "workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}", "objectRef: {workloadRef: {apiVersion: apps/v1, kind: Deployment, name: web}}", "traffic: 20%", "weight: 20").Replace(valid) + "status: {phase: Progressing}\n"
	if r := judged(t, v, review(t, "UPDATE", "v1alpha1", old, strings.Replace(old, "name: web}\n", "name: web, annotations: {rollouts.kruise.io/rolling-style: partition}}\n", 1))); r.Allowed {
		t.Error("the style changes by its annotation while a release is under way")
	}
}

func TestWhatIsNoReviewIsAnError(t *testing.T) {
	v := &Rollouts{List: others(t, "")}
	good := string(review(t, "CREATE", "v1beta1", "", valid))
	if r := judged(t, v, []byte(good)); !r.Allowed {
		t.Fatal(r.Result)
	}
	for what, edit := range map[string][2]string{
		"version of the review": {`"admission.k8s.io/v1"`, `"admission.k8s.io/v1beta1"`}, "kind of the review": {"AdmissionReview", "ConversionReview"},
		"no uid": {`"uid":"u-1"`, `"uid":""`}, "another resource": {`"resource":"rollouts"`, `"resource":"pods"`}, "another version": {`"resource":"rollouts","version":"v1beta1"`, `"resource":"rollouts","version":"v2"`},
		"another group": {`"resource":{"group":"rollouts.kruise.io"`, `"resource":{"group":"argoproj.io"`}, "no object": {`"object":{`, `"thing":{`}, "an update without the old object": {`"CREATE"`, `"UPDATE"`},
		"another case": {`"request"`, `"Request"`},
	} {
		body := strings.Replace(good, edit[0], edit[1], 1)
		if body == good {
			t.Fatalf("%s: nothing is edited in %s", what, good)
		}
		if text, err := v.Answer(t.Context(), []byte(body)); err == nil {
			t.Errorf("%s: %s", what, text)
		}
	}
	for _, body := range []string{"", "x", "null", "[]", `{"apiVersion":"admission.k8s.io/v1","kind":"AdmissionReview"}`, strings.Replace(good, `"object":{`, `"object":7,"x":{`, 1)} {
		if text, err := v.Answer(t.Context(), []byte(body)); err == nil {
			t.Errorf("%s: %s", body, text)
		}
	}
	if s := v.Stats(); s.Answered != 1 || s.Denied != 0 {
		t.Errorf("counted %+v", s)
	}
}

// TestManyReviewsAskForFewLists holds up every list, and asks much more than may be asked at once: each is answered, none
// later than the API server waits, and none is refused.
func TestManyReviewsAskForFewLists(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		at, most := 0, 0
		var turn = make(chan struct{}, 1)
		count := func(n int) { turn <- struct{}{}; at += n; most = max(most, at); <-turn }
		v := &Rollouts{List: func(ctx context.Context, _, _ string) ([]map[string]any, error) {
			count(1)
			defer count(-1)
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		body := review(t, "CREATE", "v1beta1", "", valid)
		began, warned := time.Now(), 0
		done := make(chan *admissionv1.AdmissionResponse)
		const all = 3 * listsAtOnce
		for range all {
			go func() { done <- judged(t, v, body) }()
		}
		for range all {
			r := <-done
			if !r.Allowed {
				t.Errorf("refused: %v", r.Result)
			}
			for _, w := range r.Warnings {
				if strings.Contains(w, "it is not known whether another Rollout releases Deployment web") {
					warned++
				}
			}
		}
		if warned != all || most != listsAtOnce || time.Since(began) > listTimeout {
			t.Errorf("%d of %d warned, %d lists at once, after %s", warned, all, most, time.Since(began))
		}
	})
}

func TestAnswersAreBounded(t *testing.T) {
	steps := strings.Repeat("{traffic: "+strings.Repeat("ü", 2000)+", replicas: 0},", 49) + "{replicas: 0}"
	many := strings.Replace(valid, "{traffic: 20%, replicas: 1}", steps, 1)
	v := &Rollouts{List: others(t, "")}
	r := judged(t, v, review(t, "CREATE", "v1beta1", "", many))
	if r.Allowed || len(r.Result.Details.Causes) != 99 || len(r.Result.Message) > (maxProblems+2)*(maxText+3) {
		t.Errorf("%d causes, %d bytes", len(r.Result.Details.Causes), len(r.Result.Message))
	}
	steps = strings.Repeat("{traffic: 20%, replicas: 1, matches: [{headers: [{name: a, value: b}]}]},", 30)
	r = judged(t, v, review(t, "CREATE", "v1beta1", "", strings.Replace(valid, "{traffic: 20%, replicas: 1}", strings.TrimSuffix(steps, ","), 1)))
	if !r.Allowed || len(r.Warnings) != maxWarnings || !strings.Contains(r.Warnings[9], "and 21 more") {
		t.Errorf("%d warnings: %q", len(r.Warnings), r.Warnings)
	}
	for _, w := range r.Warnings {
		if len(w) > maxWarning || strings.Contains(w, "\n") {
			t.Errorf("%q", w)
		}
	}
	if got := cut(strings.Repeat("ü", 300), maxWarning); len(got) > maxWarning || !strings.HasSuffix(got, "ü...") {
		t.Errorf("cut to %q", got)
	}
}

// FuzzAnswer looks for a body that ends the process, and for answers that an API server does not take.
func FuzzAnswer(f *testing.F) {
	f.Add(review(f, "CREATE", "v1beta1", "", valid))
	f.Add(review(f, "UPDATE", "v1beta1", valid+"status: {phase: Progressing}\n", strings.Replace(valid, "name: web}\n  strategy", "name: other}\n  strategy", 1)))
	f.Add(review(f, "UPDATE", "v1alpha1", "{apiVersion: rollouts.kruise.io/v1alpha1, spec: {objectRef: {workloadRef: {name: a}}}}", "{apiVersion: rollouts.kruise.io/v1alpha1, metadata: {annotations: {rollouts.kruise.io/rolling-style: partition}}, spec: {objectRef: {workloadRef: {name: b}}, strategy: {canary: {steps: [{weight: 7}]}}}}"))
	f.Add(review(f, "DELETE", "v1alpha1", valid, ""))
	f.Add(review(f, "CREATE", "v1beta1", "", "{spec: {strategy: {blueGreen: {steps: [null, 7, {matches: [{}], replicas: 1}]}}}}"))
	f.Add(review(f, "CREATE", "v1beta1", "", extraPods))
	v := &Rollouts{List: others(f, valid), Find: only(f, map[string]string{"deployment": "{metadata: {name: web}, spec: {selector: {matchLabels: {app: web}}}}"})}
	f.Fuzz(func(t *testing.T, body []byte) {
		text, err := v.Answer(t.Context(), body)
		if err != nil {
			return
		}
		var in, out admissionv1.AdmissionReview
		if json.Unmarshal(body, &in) != nil || json.Unmarshal(text, &out) != nil || out.Response == nil {
			t.Fatalf("%s is not read", text)
		}
		r := out.Response
		if r.UID != in.Request.UID || r.Allowed == (r.Result != nil) || len(r.Warnings) > maxWarnings || len(r.Patch) > 0 {
			t.Fatalf("%s is no answer to %s", text, body)
		}
		if !r.Allowed && (r.Result.Message == "" || len(r.Result.Details.Causes) == 0) {
			t.Fatalf("%s gives no reason", text)
		}
	})
}
