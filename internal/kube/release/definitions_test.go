package release

import (
	"context"
	"errors"
	"net/http"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/kube/edit"
	"github.com/weirmesh/weir/internal/rollout/workload"
)

// definitions has one, or fails.
type definitions struct {
	client.Reader
	reads int
	crd   *apiextensionsv1.CustomResourceDefinition
	err   error
}

func (d *definitions) Get(_ context.Context, key client.ObjectKey, into client.Object, _ ...client.GetOption) error {
	d.reads++
	if key.Name != "gamesets.apps.example.com" {
		return errors.New("another definition is read: " + key.Name)
	}
	if d.err == nil {
		d.crd.DeepCopyInto(into.(*apiextensionsv1.CustomResourceDefinition))
	}
	return d.err
}

func TestADefinitionIsReadNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kinds, err := workload.Named([]string{"GameSet:gamesets.apps.example.com"})
		if err != nil {
			t.Fatal(err)
		}
		kind, _ := kinds.For(rollouts.Ref{APIVersion: "apps.example.com/v1", Kind: "GameSet"})
		r := &definitions{crd: &apiextensionsv1.CustomResourceDefinition{}}
		d := &Definitions{Client: r}
		if why, err := d.Unfit(t.Context(), workload.Fixed()[0], "v1"); why != "" || err != nil || r.reads != 0 {
			t.Errorf("of a Deployment: %q, %v", why, err)
		}
		for range 3 {
			if why, err := d.Unfit(t.Context(), kind, "v1"); !strings.Contains(why, "is of the kind") || err != nil || r.reads != 1 {
				t.Errorf("%q, %v, after %d requests", why, err, r.reads)
			}
		}
		if _, err := d.Unfit(t.Context(), kind, "v2"); err != nil || r.reads != 2 {
			t.Errorf("another version: %v, after %d requests", err, r.reads)
		}
		time.Sleep(judgedFor)
		r.err = apierrors.NewNotFound(schema.GroupResource{}, "gamesets.apps.example.com")
		if why, err := d.Unfit(t.Context(), kind, "v1"); !strings.Contains(why, "no definition") || err != nil || r.reads != 3 {
			t.Errorf("%q, %v, after %d requests", why, err, r.reads)
		}
		time.Sleep(judgedFor)
		r.err = &apierrors.StatusError{ErrStatus: apierrors.NewForbidden(schema.GroupResource{}, "x", nil).ErrStatus}
		r.err.(*apierrors.StatusError).ErrStatus.Message = `customresourcedefinitions.apiextensions.k8s.io "gamesets.apps.example.com" is forbidden: User "a" cannot get`
		r.err.(*apierrors.StatusError).ErrStatus.Code = http.StatusForbidden
		_, err = d.Unfit(t.Context(), kind, "v1")
		var f *failure
		if !errors.As(err, &f) || f.change() != "read the definition gamesets.apps.example.com" || !strings.Contains(f.why(), "grant the controller this right, as the chart does with rollouts.workloads") {
			t.Errorf("%v", err)
		}
		// What fails is not remembered.
		r.err = nil
		if why, err := d.Unfit(t.Context(), kind, "v1"); !strings.Contains(why, "is of the kind") || err != nil {
			t.Errorf("%q, %v", why, err)
		}
	})
}

// TestAKindThatIsNotNamedIsNotRead: the Rollout says which one it is.
func TestAKindThatIsNotNamedIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newToy(t, "{replicas: 1}")
		c.edit(rolloutKind, func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedStringMap(u.Object, map[string]string{"apiVersion": "apps.example.com/v1", "kind": "GameSet", "name": "web"}, "spec", "workloadRef")
		})
		c.run(func() bool { return c.status().Message != "" })
		if s := c.status(); s.Phase != rollouts.PhaseInitial || s.Message != workload.Unlisted(rollouts.Ref{APIVersion: "apps.example.com/v1", Kind: "GameSet", Name: "web"}) {
			t.Errorf("%+v", s)
		}
	})
}

// TestWhatAReleaseOfAKindThatIsNotNamedAnyMoreChangedIsPutBack: requests go as before, and the workload is not touched.
func TestWhatAReleaseOfAKindThatIsNotNamedAnyMoreChangedIsPutBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newToy(t, "{traffic: 20%, replicas: 1}")
		routeKind := edit.GVK("gateway.networking.k8s.io", "v1", "HTTPRoute")
		service, route := c.objects[c.key(serviceKind)].Object["spec"], c.objects[c.key(routeKind)].Object["spec"]
		c.run(c.healthy)
		c.release("v2")
		c.run(c.waits(1))
		workloadAt := c.objects[c.key(deploymentKind)].GetResourceVersion()
		c.Workloads = nil
		c.run(func() bool {
			return strings.HasPrefix(c.status().Message, "Weir's controller may not release objects of the kind Deployment.apps")
		})
		if got := c.objects[c.key(serviceKind)].Object["spec"]; !reflect.DeepEqual(got, service) {
			t.Errorf("the Service is %v", got)
		}
		if got := c.objects[c.key(routeKind)].Object["spec"]; !reflect.DeepEqual(got, route) {
			t.Errorf("the route is %v", got)
		}
		canary := edit.Key{GroupVersionKind: serviceKind, Namespace: "default", Name: "web-canary"}
		if c.objects[canary] != nil || c.objects[c.key(deploymentKind)].GetResourceVersion() != workloadAt {
			t.Errorf("the canary's Service is there: %t, or the workload was changed", c.objects[canary] != nil)
		}
	})
}
