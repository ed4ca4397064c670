package rollouts

import (
	"context"
	"fmt"
	"strings"
	"testing"

	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/api/rollouts"
)

// frozen is a policy with a name, for a namespace.
const frozen = `
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: %[1]s}
spec:
  matchConstraints:
    namespaceSelector: {matchLabels: {kubernetes.io/metadata.name: %[2]s}}
    resourceRules: [{apiGroups: [apps], apiVersions: ["*"], operations: [UPDATE], resources: [deployments]}]
  validations: [{expression: "!has(object.spec.paused) || !object.spec.paused", message: nothing is paused here}]
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: %[1]s}
spec: {policyName: %[1]s, validationActions: [Deny]}
`

// forbid has the API server let no Deployment of the world be paused, until what it returns is called.
func (w *world) forbid(name string) (permit func()) {
	w.Helper()
	var objects []*unstructured.Unstructured
	permit = func() {
		for _, o := range objects {
			if err := client.IgnoreNotFound(admin.Delete(context.Background(), o)); err != nil {
				w.Error(err)
			}
		}
	}
	w.Cleanup(permit)
	for text := range strings.SplitSeq(fmt.Sprintf(frozen, name, w.namespace), "\n---\n") {
		u := &unstructured.Unstructured{}
		if err := yaml.Unmarshal([]byte(text), &u.Object); err != nil {
			w.Fatal(err)
		}
		if err := admin.Create(w.Context(), u); err != nil {
			w.Fatal(err)
		}
		objects = append(objects, u)
	}
	err := within(w.Context(), func() error {
		u, err := w.get(w.kind)
		if err != nil {
			return err
		}
		err = admin.Patch(w.Context(), u, client.RawPatch(types.MergePatchType, []byte(`{"spec":{"paused":true}}`)), client.DryRunAll)
		if err == nil || !strings.Contains(err.Error(), "nothing is paused here") {
			return fmt.Errorf("the policy is not in force: %v", err)
		}
		return nil
	})
	if err != nil {
		w.Fatal(err)
	}
	return permit
}

// TestAReleaseThatAPolicyDeniesSaysSoAndGoesOn has a policy deny that the workload is held, and removes it.
func TestAReleaseThatAPolicyDeniesSaysSoAndGoesOn(t *testing.T) {
	t.Parallel()
	w := newWorld(t, "Deployment", "replicas: 2", "{canary: {"+route+", steps: [{traffic: 20%, replicas: 1}, {traffic: 50%, replicas: 50%}]}}")
	w.settled("v1")
	before := w.written()
	permit := w.forbid(w.namespace + "-frozen")
	w.start(0, false)
	w.until(rollouts.PhaseHealthy, 0)
	w.release("v2")

	says := func(want string, told bool) {
		t.Helper()
		err := within(t.Context(), func() error {
			s, _, err := w.status()
			if err != nil {
				return err
			}
			c := s.Condition(rollouts.ConditionProgressing)
			if s.CanaryStatus == nil || c == nil {
				return fmt.Errorf("no release has begun: %+v", s)
			}
			for _, m := range []string{s.Message, s.CanaryStatus.Message, c.Message} {
				if strings.Contains(m, want) != told {
					return fmt.Errorf("it says %q, want %q: %t", m, want, told)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	says(`Weir cannot update Deployment web: the API server refuses it: deployments.apps "web" is forbidden: ValidatingAdmissionPolicy '`+w.namespace+"-frozen'", true)
	says("nothing is paused here. To fix it, have the ValidatingAdmissionPolicy "+w.namespace+"-frozen allow this change by Weir's controller.", true)
	refusals := func() (n int, err error) {
		var events eventsv1.EventList
		err = admin.List(t.Context(), &events, client.InNamespace(w.namespace))
		for _, e := range events.Items {
			if e.Reason == "ChangeRefused" && e.Regarding.Kind == "Rollout" {
				n++
			}
		}
		return n, err
	}
	err := within(t.Context(), func() error {
		if n, err := refusals(); err != nil || n != 1 {
			return fmt.Errorf("%d Events, %v", n, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}

	permit()
	says("Weir cannot", false)
	for step := range int32(2) {
		w.until(rollouts.PhaseProgressing, step+1)
		w.approve()
	}
	w.until(rollouts.PhaseHealthy, 0)
	w.same(before, "v2")
	if n, err := refusals(); err != nil || n != 1 {
		t.Errorf("%d Events, %v", n, err)
	}
}
