package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/test/toy"
)

// readToy reads a Toy from the API server.
func readToy(t *testing.T, u *unstructured.Unstructured) (*toy.Toy, error) {
	t.Helper()
	if err := admin.Get(t.Context(), client.ObjectKeyFromObject(u), u); err != nil {
		return nil, err
	}
	text, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	var out toy.Toy
	return &out, json.Unmarshal(text, &out)
}

// TestADescriptorIsEnoughForAKind holds that a kind which Weir does not have is read, reported on and told of in a cluster by its descriptor
// alone, with exactly the permissions that follow from it, also if it is installed later.
func TestADescriptorIsEnoughForAKind(t *testing.T) {
	kinds, options := toy.Dialects().Kinds(), control.Options{Dialects: toy.Dialects()}
	c, err := kube.NewClient(userWho(t, "weir-toys", access.Cluster(kinds)))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	var writer *kube.StatusWriter
	s := watchKinds(t, c, kinds, kube.Scope{}, func(s *kube.Source) { writer = kube.NewStatusWriter(c, s, controller, logger(t)) })
	background(t, writer.Run)
	recorder := kube.NewRecorder(c, s.Source, controller, "weir-0", logger(t))
	background(t, recorder.Run)
	if s.Version(toy.Group, "Toy") != "" {
		t.Fatal("toys are there already")
	}

	if err := install(t.Context(), filepath.Join(root, "test/toy/toys.yaml"), nil); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		d := &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: toy.Kind.Resource()}}
		if err := admin.Delete(context.Background(), d); client.IgnoreNotFound(err) != nil {
			t.Error(err)
		}
	})
	ns := namespace(t)
	u := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": toy.Group + "/v1beta1", "kind": "Toy", "metadata": map[string]any{"namespace": ns, "name": "train"},
		"spec": map[string]any{"port": int64(8080), "host": "train.example", "service": map[string]any{"name": "web"}, "path": "below"},
	}}
	create(t, &corev1.ConfigMap{ObjectMeta: named(ns, "below"), Data: map[string]string{"path": "/toys"}}, u)

	served := func(set *resource.Set) []metav1.Object { return slices.Collect(set.Of(toy.Kind)) }
	set := s.until("the toy, and what it refers to", func(set *resource.Set) bool { return len(served(set)) == 1 && set.ConfigMap(ns, "below") != nil })
	if o := served(set)[0].(*toy.Toy); o.APIVersion != toy.Group+"/v1" || o.Spec.Service.Port != 80 {
		t.Errorf("it is read as %+v", o)
	}

	// report is what the control loop does with a Set.
	report := func(set *resource.Set) control.Result {
		t.Helper()
		result, err := options.Translate(set)
		if err != nil {
			t.Fatal(err)
		}
		writer.Set(result.Statuses)
		recorder.Set(result.Events)
		return result
	}
	until := func(what string, holds func(*toy.Toy) bool) *toy.Toy {
		t.Helper()
		var last *toy.Toy
		err := within(t.Context(), func() (err error) {
			if last, err = readToy(t, u); err == nil && !holds(last) {
				err = fmt.Errorf("no %s: %+v", what, last.Status)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return last
	}
	condition := func(o *toy.Toy, of string) *metav1.Condition {
		i := slices.IndexFunc(o.Status.Conditions, func(c metav1.Condition) bool { return c.Type == of })
		if i < 0 {
			return &metav1.Condition{}
		}
		return &o.Status.Conditions[i]
	}

	// Without its Service: not served, and told so.
	if result := report(set); len(result.Config.Routes) > 0 {
		t.Errorf("routes %+v", result.Config.Routes)
	}
	bad := until("condition ResolvedRefs that is false", func(o *toy.Toy) bool { return condition(o, "ResolvedRefs").Status == metav1.ConditionFalse })
	if c := condition(bad, "ResolvedRefs"); c.ObservedGeneration != bad.Generation || c.LastTransitionTime.IsZero() || condition(bad, "Accepted").Status != metav1.ConditionTrue {
		t.Errorf("status %+v", bad.Status)
	}
	err = within(t.Context(), func() error {
		var events eventsv1.EventList
		if err := admin.List(t.Context(), &events, client.InNamespace(ns)); err != nil {
			return err
		}
		for _, e := range events.Items {
			if e.Reason == "NoService" && e.Regarding.Kind == "Toy" && e.Regarding.APIVersion == toy.Group+"/v1" && e.Regarding.UID == bad.UID {
				return nil
			}
		}
		return fmt.Errorf("no event among %d", len(events.Items))
	})
	if err != nil {
		t.Error(err)
	}

	// With it, and with a condition of somebody else's, which stays.
	bad.Status.Conditions = append(bad.Status.Conditions, metav1.Condition{Type: "example.com/Painted", Status: "True", Reason: "Red", LastTransitionTime: metav1.Unix(1000, 0)})
	conditions := []any{}
	for _, c := range bad.Status.Conditions {
		conditions = append(conditions, map[string]any{"type": c.Type, "status": string(c.Status), "reason": c.Reason, "message": c.Message, "lastTransitionTime": c.LastTransitionTime.UTC().Format("2006-01-02T15:04:05Z")})
	}
	u.Object["status"] = map[string]any{"conditions": conditions}
	if err := admin.Status().Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	create(t, &corev1.Service{ObjectMeta: named(ns, "web"), Spec: corev1.ServiceSpec{Ports: []corev1.ServicePort{{Port: 80}}}})
	set = s.until("the Service", func(set *resource.Set) bool { return set.Service(ns, "web") != nil })
	result := report(set)
	if r := result.Config.Routes; len(r) != 1 || r[0].Ref.Kind != "Toy" || r[0].Rules[0].Matches[0].Path.Value != "/toys" {
		t.Errorf("routes %+v", r)
	}
	good := until("condition ResolvedRefs that is true", func(o *toy.Toy) bool { return condition(o, "ResolvedRefs").Status == metav1.ConditionTrue })
	if c := condition(good, "example.com/Painted"); c.Reason != "Red" || len(good.Status.Conditions) != 3 {
		t.Errorf("status %+v", good.Status)
	}

	// What somebody breaks is mended.
	u.Object["status"] = map[string]any{}
	if err := admin.Status().Update(t.Context(), u); err != nil {
		t.Fatal(err)
	}
	until("status again", func(o *toy.Toy) bool { return condition(o, "Accepted").Status == metav1.ConditionTrue })

	// Load, which weir check and weir status use, reads the same.
	loaded, err := kube.Load(t.Context(), c, kinds, controller, kube.Scope{Namespaces: []string{ns}}, false)
	if err != nil || len(served(loaded)) != 1 || loaded.ConfigMap(ns, "below") == nil || loaded.Object(toy.Kind.Key(ns, "train")) == nil {
		t.Errorf("loaded %+v, %v", loaded, err)
	}
	for _, f := range loaded.Findings {
		if f.Code == resource.CodeRefused || f.Code == resource.CodeUnread {
			t.Errorf("not permitted: %s", f)
		}
	}

	// Without the definition there are none.
	if err := admin.Delete(t.Context(), &apiextensionsv1.CustomResourceDefinition{ObjectMeta: metav1.ObjectMeta{Name: toy.Kind.Resource()}}); err != nil {
		t.Fatal(err)
	}
	s.until("no toys", func(set *resource.Set) bool { return len(served(set)) == 0 })
}
