package release

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube/edit"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

var deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}

const policy = "ValidatingAdmissionPolicy 'frozen' with binding 'frozen' denied request: nothing changes in December"

// refuses has the cluster refuse writes of one kind.
func (c *toy) refuses(kind string, err func() error) {
	c.refuse = func(what string) error {
		if what == kind {
			return err()
		}
		return nil
	}
}

// says reports whether every message of the status ends with a text.
func (c *toy) says(text string) bool {
	s := c.status()
	all := []string{s.Message}
	if rel := s.Release(); rel != nil {
		all = append(all, rel.Message)
	}
	if p := s.Condition(rollouts.ConditionProgressing); p != nil && s.Phase == rollouts.PhaseProgressing {
		all = append(all, p.Message)
	}
	for _, m := range all {
		if !strings.HasSuffix(m, text) {
			return false
		}
	}
	return true
}

// retries has the controller try for a while, and returns how many statuses it writes.
func (c *toy) retries(d time.Duration) (statuses int) {
	c.writes = nil
	end := time.Now().Add(d)
	c.run(func() bool { return !time.Now().Before(end) })
	for _, w := range c.writes {
		if w == "status" {
			statuses++
		}
	}
	return statuses
}

func (c *toy) count(event string) (n int) {
	for _, e := range c.told {
		if e == event {
			n++
		}
	}
	return n
}

// TestARefusedChangeIsToldOnceUntilItIsAccepted has each change of a release refused, in other words each time.
func TestARefusedChangeIsToldOnceUntilItIsAccepted(t *testing.T) {
	for what, object := range map[string]string{
		"Deployment": "update Deployment web", "Service": "update Service web", "ReplicaSet": "change the number of pods of ReplicaSet web-",
		"+ReplicaSet": "create ReplicaSet ", "+Service": "create Service web-canary", "HTTPRoute": "update HTTPRoute web", "Rollout": "update Rollout web",
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newToy(t, twoSteps)
				c.run(c.healthy)
				attempt := 0
				c.refuses(what, func() error {
					attempt++
					return apierrors.NewForbidden(deployments, "web", fmt.Errorf("%s, request %d", policy, attempt))
				})
				c.release("v2")
				c.run(func() bool {
					return c.says("request 1. To fix it, have the ValidatingAdmissionPolicy frozen allow this change by Weir's controller.")
				})
				if m := c.status().Message; !strings.Contains(m, "Weir cannot "+object) || !strings.Contains(m, ": the API server refuses it: ") {
					t.Errorf("it says %q", m)
				}
				if n := c.retries(25 * time.Second); n > 0 || attempt < 100 {
					t.Errorf("%d statuses in %d attempts", n, attempt)
				}
				if n := c.count("ChangeRefused"); n != 1 {
					t.Errorf("%d Events", n)
				}
				c.refuse = nil
				c.run(c.waits(1))
				if m := c.status().Message; m != "Step 1 of 2 waits until somebody approves it." {
					t.Errorf("afterwards it says %q", m)
				}
				if len(c.obstructions) > 0 {
					t.Errorf("remembered are %v", c.obstructions)
				}
			})
		})
	}
}

// TestAnotherControllerDoesNotTellARefusalAgain restarts it while a change is refused.
func TestAnotherControllerDoesNotTellARefusalAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newToy(t, twoSteps)
		c.run(c.healthy)
		c.refuses("Deployment", func() error { return apierrors.NewForbidden(deployments, "web", errors.New(policy)) })
		c.release("v2")
		c.retries(time.Second)
		c.start()
		if n := c.retries(5 * time.Second); n > 0 || c.count("ChangeRefused") != 1 {
			t.Errorf("%d statuses, Events %q", n, c.told)
		}
	})
}

// TestARefusalAtTheEndIsToldOnce has the Rollout itself not be written when it is disabled midway.
func TestARefusalAtTheEndIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newToy(t, twoSteps)
		c.run(c.healthy)
		c.release("v2")
		c.run(c.waits(1))
		c.refuses("Rollout", func() error { return apierrors.NewForbidden(deployments, "web", errors.New(policy)) })
		c.edit(rolloutKind, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, true, "spec", "disabled")
		})
		c.retries(20 * time.Second)
		if m := c.status().Message; !strings.Contains(m, "Weir cannot update Rollout web") {
			t.Errorf("it says %q", m)
		}
		if n := c.retries(20 * time.Second); n > 0 || c.count("ChangeRefused") != 1 {
			t.Errorf("%d statuses, Events %q", n, c.told)
		}
		c.refuse = nil
		c.run(func() bool { return c.status().Phase == rollouts.PhaseDisabled })
		c.retries(40 * time.Second)
		u := c.objects[c.key(rolloutKind)]
		if m := c.status().Message; m != "The Rollout is disabled." || len(u.GetFinalizers()) > 0 {
			t.Errorf("it says %q, finalizers %v", m, u.GetFinalizers())
		}
	})
}

// TestAFinalizerThatIsRefusedToBeRemovedIsToldOnce has everything of a Rollout that is disabled midway be written, but for its last change.
func TestAFinalizerThatIsRefusedToBeRemovedIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newToy(t, twoSteps)
		c.run(c.healthy)
		c.release("v2")
		c.run(c.waits(1))
		attempts := 0
		c.refuses("Rollout", func() error {
			if c.objects[c.key(rolloutKind)].GetAnnotations()[workload.RecordAnnotation] != "" {
				return nil // the release is not over yet
			}
			attempts++
			return apierrors.NewForbidden(deployments, "web", errors.New(policy))
		})
		c.edit(rolloutKind, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, true, "spec", "disabled")
		})
		c.run(func() bool {
			return c.says("have the ValidatingAdmissionPolicy frozen allow this change by Weir's controller.")
		})
		if s := c.status(); s.Phase != rollouts.PhaseDisabled || !strings.HasPrefix(s.Message, "The Rollout is disabled. Weir cannot update Rollout web: ") {
			t.Errorf("phase %s: %q", s.Phase, s.Message)
		}
		if n := c.retries(25 * time.Second); n > 0 || attempts < 100 || c.count("ChangeRefused") != 1 {
			t.Errorf("%d statuses in %d attempts, Events %q", n, attempts, c.told)
		}
		c.refuse = nil
		c.run(func() bool { return c.status().Message == "The Rollout is disabled." })
		if f := c.objects[c.key(rolloutKind)].GetFinalizers(); len(f) > 0 {
			t.Errorf("finalizers %v are left", f)
		}
	})
}

// TestARefusalKeepsWhatTheStatusSaid refuses what keeps pods as they should be while a step waits.
func TestARefusalKeepsWhatTheStatusSaid(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waits = "Step 1 of 2 waits until somebody approves it."
		c := newToy(t, twoSteps)
		c.run(c.healthy)
		c.release("v2")
		c.run(c.waits(1))
		c.refuses("ReplicaSet", func() error {
			return apierrors.NewForbidden(deployments, "web", errors.New("exceeded quota: few, requested: pods=1"))
		})
		c.edit(deploymentKind, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, int64(6), "spec", "replicas")
		})
		c.run(func() bool { return c.says("raise the ResourceQuota few, or remove some of what it counts.") })
		if m := c.status().Message; !strings.HasPrefix(m, waits+" Weir cannot ") {
			t.Errorf("it says %q", m)
		}
		if n := c.retries(25 * time.Second); n > 0 {
			t.Errorf("%d statuses while nothing is new", n)
		}
		c.refuse = nil
		c.run(func() bool { return c.status().Message == waits })
	})
}

// TestWhatPassesByItselfIsToldOnlyIfItLasts has the API server be away, and busy.
func TestWhatPassesByItselfIsToldOnlyIfItLasts(t *testing.T) {
	for what, err := range map[string]error{
		"a conflict": apierrors.NewConflict(deployments, "web", errors.New("it has changed")), "too many requests": apierrors.NewTooManyRequests("wait", 1),
		"a webhook that is away": apierrors.NewInternalError(errors.New(`failed calling webhook "w": no endpoints`)), "no answer": errors.New("timeout"),
	} {
		t.Run(what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newToy(t, twoSteps)
				c.run(c.healthy)
				c.refuses("Deployment", func() error { return err })
				c.release("v2")
				c.retries(49 * time.Second)
				if m := c.status().Message; strings.Contains(m, "Weir cannot") {
					t.Errorf("it says %q", m)
				}
				c.retries(12 * time.Second)
				if m := c.status().Message; !strings.Contains(m, "Weir cannot update Deployment web: it has failed for a minute or longer: ") {
					t.Errorf("it says %q", m)
				}
				if n := c.retries(25 * time.Second); n > 0 || c.count("ChangeRefused") != 1 {
					t.Errorf("%d statuses, Events %q", n, c.told)
				}
				c.refuse = nil
				c.run(c.waits(1))
				if m := c.status().Message; strings.Contains(m, "Weir cannot") {
					t.Errorf("afterwards it says %q", m)
				}
			})
		})
	}
}

func TestFixOfARefusal(t *testing.T) {
	for message, want := range map[string]string{
		`deployments.apps "web" is forbidden: User "system:serviceaccount:weir-system:weir-controller" cannot update resource "deployments"`: "grant the controller this right, as the chart does with rollouts.enabled",
		`admission webhook "a.b" denied the request: no`:                                               "have the admission webhook a.b allow this change by Weir's controller",
		`Internal error occurred: failed calling webhook "a.b": no`:                                    "see that the admission webhook a.b can be reached, or remove it",
		`ValidatingAdmissionPolicy 'weir-controller-releases' with binding 'b' denied request: of a`:   "store the object once as it is, such as by an annotation of yours: the policy is Weir's own, and denies what another admission webhook adds to the controller's change",
		`Service "web-canary" is invalid: spec.ports[0].port: Invalid value: 0: must be between 1 and`: "",
	} {
		if got := fix(message); got != want {
			t.Errorf("%s: %q, want %q", message, got, want)
		}
	}
	gone := &failure{err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: 403, Details: &metav1.StatusDetails{Causes: []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}}}}}
	if _, refused := gone.refused(); refused {
		t.Error("that a namespace ends is told as a refusal")
	}
}

// TestARolloutThatCannotBeCarriedOutIsLeftAlone: a step with a path that no route accepts, before a release and midway.
func TestARolloutThatCannotBeCarriedOutIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const told = `Weir cannot carry out the Rollout: it is not valid, and is left alone: spec.strategy.canary.steps[1].matches[0].path.value: "api" does not begin with a slash, so no path matches it: write "/api".`
		path := func(value string) func(*unstructured.Unstructured) {
			return func(u *unstructured.Unstructured) {
				steps, _, _ := unstructured.NestedSlice(u.Object, "spec", "strategy", "canary", "steps")
				steps[1].(map[string]any)["matches"] = []any{map[string]any{"path": map[string]any{"value": value}}}
				if err := unstructured.SetNestedSlice(u.Object, steps, "spec", "strategy", "canary", "steps"); err != nil {
					t.Fatal(err)
				}
			}
		}
		c := newToy(t, "{traffic: 20%, replicas: 1}, {replicas: 2}")
		leftAlone := func(events int) {
			t.Helper()
			before := c.written()
			c.run(func() bool { return c.says(told) })
			if n := c.retries(30 * time.Second); n > 0 || c.count("Invalid") != events || c.written() != before {
				t.Errorf("%d statuses, events %q, %+v\n%s", n, c.told, c.status(), c.written())
			}
		}
		c.edit(rolloutKind, path("api"))
		leftAlone(1)
		if s := c.status(); s.Phase != rollouts.PhaseInitial {
			t.Errorf("%+v", s)
		}
		c.edit(rolloutKind, path("/api"))
		c.run(c.healthy)
		time.Sleep(again) // so that it is told anew
		c.edit(rolloutKind, path("api"))
		c.release("v2")
		leftAlone(2)
		c.edit(rolloutKind, path("/api"))
		c.run(c.waits(1))
		time.Sleep(again)
		c.edit(rolloutKind, path("api"))
		c.approve()
		leftAlone(3)
		c.edit(rolloutKind, path("/api"))
		c.run(func() bool { return !strings.Contains(c.status().Message, "Weir cannot") })
		if s := c.status(); s.Phase != rollouts.PhaseProgressing {
			t.Errorf("%+v", s)
		}
		// What it changed is put back also if it cannot be carried out.
		time.Sleep(again)
		c.edit(rolloutKind, path("api"))
		leftAlone(4)
		c.edit(rolloutKind, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, true, "spec", "disabled")
		})
		c.run(func() bool { return c.status().Phase == rollouts.PhaseDisabled })
	})
}

// TestWhatAStepCannotBeIsInTheStatus: as long as the step is carried out.
func TestWhatAStepCannotBeIsInTheStatus(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const header = `matches: [{headers: [{name: x, type: RegularExpression, value: "a.*"}]}]`
		c := newToy(t, "{traffic: 20%, replicas: 1, "+header+"}, {replicas: 1, "+header+"}, {traffic: 50%, replicas: 1}")
		c.run(c.healthy)
		c.release("v2")
		condition := func() string {
			s := c.status()
			if a := s.Condition(rollouts.ConditionAsWritten); a != nil {
				return fmt.Sprintf("%s %s: %s", a.Status, a.Reason, a.Message)
			}
			return ""
		}
		want := func(text string) {
			t.Helper()
			if got := condition(); got != text {
				t.Errorf("the condition is %q, want %q", got, text)
			}
		}
		c.run(c.waits(1))
		want("False TrafficIgnored: Step 1 is not carried out as it is written: traffic: has no effect beside matches; remove it, or make two steps of it.")
		c.approve()
		c.run(c.waits(2))
		want("")
		c.edit(edit.GVK("gateway.networking.k8s.io", "v1", "HTTPRoute"), func(u *unstructured.Unstructured) { // its user applies another file
			delete(u.Object["metadata"].(map[string]any), "annotations")
			u.Object["spec"] = map[string]any{"parentRefs": []any{map[string]any{"name": "edge"}}, "rules": []any{map[string]any{
				"matches":     []any{map[string]any{"headers": []any{map[string]any{"name": "x", "type": "RegularExpression", "value": "b.*"}}}},
				"backendRefs": []any{map[string]any{"name": "web", "port": int64(80), "weight": int64(7)}},
			}}}
		})
		const told = "False NotExpressed: Step 2 is not carried out as it is written: matches[0]: the condition cannot be written for spec.rules[0] of HTTPRoute web together with those of the rule, so its requests stay with the stable version; write a path or an exact value that lies inside what the rule matches."
		c.run(func() bool { return condition() == told })
		if n := c.retries(30 * time.Second); n > 0 {
			t.Errorf("%d statuses", n)
		}
		c.approve()
		c.run(c.waits(3))
		want("")
	})
}

// FuzzRefusal holds the size of what a status tells, and that Decide takes it out, whatever an API server says.
func FuzzRefusal(f *testing.F) {
	f.Add(policy, int32(422))
	f.Add("exceeded quota: \xff\x00\n, a", int32(403))
	f.Add(`admission webhook "`+strings.Repeat("w", 5000), int32(400))
	f.Fuzz(func(t *testing.T, message string, code int32) {
		x := &failure{verb: "update", object: "Deployment web", err: &apierrors.StatusError{ErrStatus: metav1.Status{Code: code, Message: message}}}
		s := rollouts.Status{Phase: rollouts.PhaseProgressing, Message: "before", Conditions: []rollouts.Condition{{Type: rollouts.ConditionProgressing, Message: "before"}}}
		said := rollout.Obstruct(&s, x.change(), x.why())
		if len(said) > 1024 || !slices.Equal([]string{s.Message, s.Conditions[0].Message}, []string{"before " + said, "before " + said}) {
			t.Errorf("%d bytes: %+v", len(said), s)
		}
		if utf8.ValidString(message) && !utf8.ValidString(said) {
			t.Errorf("cut inside a character: %q", said)
		}
		if rollout.Obstruct(&s, "a", "b."); s.Message != "before Weir cannot a: b." {
			t.Errorf("it grows: %q", s.Message)
		}
	})
}
