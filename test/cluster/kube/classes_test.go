package kube

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/resource"
)

// keepClasses runs what keeps GatewayClasses, with the controller's rights, until the test ends.
func keepClasses(t *testing.T) {
	t.Helper()
	limited, err := kube.NewClient(controllerUser(t))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(limited.Close)
	var classes *kube.Classes
	watch(t, limited, func(s *kube.Source) { classes = kube.NewClasses(limited, s, controller, logger(t)) }).each(classes.Set)
	runClasses(t, classes)
}

// runClasses runs it until the test ends.
func runClasses(t *testing.T, classes *kube.Classes) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- classes.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// finalizers waits until a class has these; without any until it is gone.
func finalizers(t *testing.T, class *gatewayv1.GatewayClass, want ...string) {
	t.Helper()
	err := within(t.Context(), func() error {
		now := &gatewayv1.GatewayClass{}
		switch err := objects.Get(t.Context(), client.ObjectKeyFromObject(class), now); {
		case apierrors.IsNotFound(err) && len(want) == 0:
			return nil
		case err != nil:
			return err
		case len(want) == 0 || !slices.Equal(now.Finalizers, want):
			return fmt.Errorf("GatewayClass %s has the finalizers %q, want %q", class.Name, now.Finalizers, want)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestAClassThatGatewaysUseStays(t *testing.T) {
	const ours, others = gatewayv1.GatewayClassFinalizerGatewaysExist, "example.com/theirs"
	ns := namespace(t)
	used, shared, unused, foreign := class(t), class(t), class(t), &gatewayv1.GatewayClass{}
	foreign.GenerateName, foreign.Spec.ControllerName = "class-", "example.com/other"
	create(t, foreign)
	change(t, shared, func() { shared.Finalizers = []string{others} })
	change(t, unused, func() { unused.Finalizers = []string{others, ours} }) // of a Gateway that was
	a, b, c, d := gatewayOf(used, ns, "a"), gatewayOf(used, ns, "b"), gatewayOf(shared, ns, "c"), gatewayOf(foreign, ns, "d")
	create(t, a, b, c, d)
	keepClasses(t)
	finalizers(t, used, ours)
	finalizers(t, shared, others, ours)
	finalizers(t, unused, others)

	if err := objects.Delete(t.Context(), used); err != nil {
		t.Fatal(err)
	}
	if err := objects.Delete(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	// What comes while it is being deleted uses it, too.
	late := gatewayOf(used, ns, "late")
	create(t, late)
	if err := objects.Delete(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	if err := objects.Delete(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	finalizers(t, shared, others) // and so the other changes are known
	finalizers(t, used, ours)
	said, _ := weir(t, server.Kubeconfig, "check")
	holds(t, said, "WR713", "GatewayClass "+used.Name, ns+"/late")
	if err := objects.Delete(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	finalizers(t, used)

	if err := objects.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign); err != nil || len(foreign.Finalizers) > 0 {
		t.Errorf("another controller's class: %q, %v", foreign.Finalizers, err)
	}
	for _, class := range []*gatewayv1.GatewayClass{shared, unused} {
		change(t, class, func() { class.Finalizers = nil })
	}
}

// TestClassesAreKeptOnceThatMayBe has the rights of an older release at first.
func TestClassesAreKeptOnceThatMayBe(t *testing.T) {
	ns, used := namespace(t), class(t)
	gateway := gatewayOf(used, ns, "a")
	create(t, gateway)
	reader, role := user(t, "weir-classes-"+ns, rbacv1.PolicyRule{APIGroups: []string{gatewayv1.GroupName}, Resources: []string{"gatewayclasses"}, Verbs: []string{"get"}})
	log := &lines{}
	var classes *kube.Classes
	watch(t, admin, func(s *kube.Source) {
		classes = kube.NewClasses(reader, s, controller, slog.New(slog.NewTextHandler(log, nil)))
	}).each(classes.Set)
	runClasses(t, classes)
	if err := within(t.Context(), func() error {
		if !strings.Contains(log.String(), "forbidden") {
			return fmt.Errorf("the log does not tell: %s", log)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	change(t, role, func() { role.Rules[0].Verbs = append(role.Rules[0].Verbs, "patch") })
	finalizers(t, used, gatewayv1.GatewayClassFinalizerGatewaysExist)
	for _, o := range []client.Object{used, gateway} {
		if err := objects.Delete(t.Context(), o); err != nil {
			t.Fatal(err)
		}
	}
	finalizers(t, used)
}

// change updates an object as it is now.
func change[T client.Object](t *testing.T, o T, edit func()) {
	t.Helper()
	err := within(t.Context(), func() error {
		if err := objects.Get(t.Context(), client.ObjectKeyFromObject(o), o); err != nil {
			return err
		}
		edit()
		return objects.Update(t.Context(), o)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// each calls f with the sets, from the newest on.
func (s *watched) each(f func(*resource.Set)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	f(s.last)
	s.told = f
}
