package trust

import (
	"log/slog"
	"maps"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube"
)

// TestOneConfigMapIsKept goes its way: made, corrected, and dropped when nobody has needed it for a while.
func TestOneConfigMapIsKept(t *testing.T) {
	ctx := t.Context()
	users := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "users", Name: inject.CAName}, Data: map[string]string{"mine": "yes"}}
	cluster := fake.NewClientBuilder().WithScheme(kube.Scheme()).WithObjects(users.DeepCopy()).Build()
	k := &Keeper{Client: &kube.Client{Client: cluster}, Logger: slog.New(slog.DiscardHandler), unused: map[string]time.Time{}}
	get := func(namespace string) *corev1.ConfigMap {
		t.Helper()
		c := &corev1.ConfigMap{}
		err := cluster.Get(ctx, client.ObjectKey{Namespace: namespace, Name: inject.CAName}, c)
		if apierrors.IsNotFound(err) {
			return nil
		} else if err != nil {
			t.Fatal(err)
		}
		return c
	}
	keep := func(namespace, bundle string) error { return k.keep(ctx, namespace, get(namespace), bundle) }
	want := func(what, bundle string) {
		t.Helper()
		if c := get("shop"); c == nil || !ours(c) || !maps.Equal(c.Data, map[string]string{inject.CAKey: bundle}) {
			t.Errorf("%s: %+v", what, c)
		}
	}
	if err := keep("shop", "one"); err != nil {
		t.Fatal(err)
	}
	want("made", "one")
	if err := k.keep(ctx, "shop", nil, "two"); err != nil { // the cache is behind
		t.Error(err)
	}
	want("there already", "one")
	stale := get("shop")
	changed := stale.DeepCopy()
	changed.Data = map[string]string{inject.CAKey: "x", "more": "y"}
	if err := cluster.Update(ctx, changed); err != nil {
		t.Fatal(err)
	}
	if err := k.keep(ctx, "shop", stale, "two"); err != nil {
		t.Error(err)
	}
	if c := get("shop"); c.Data["more"] != "y" {
		t.Errorf("a version that was not read was overwritten: %+v", c.Data)
	}
	if err := keep("shop", "two"); err != nil {
		t.Error(err)
	}
	want("corrected", "two")
	if err := keep("users", "two"); err == nil || !strings.Contains(err.Error(), "there is one already without the label") {
		t.Errorf("a user's: %v", err)
	}
	if c := get("users"); !maps.Equal(c.Data, users.Data) {
		t.Errorf("a user's was changed: %+v", c.Data)
	}
	if err := k.drop(ctx, "shop", get("shop")); err != nil || get("shop") == nil {
		t.Errorf("one that was needed a moment ago is gone, or %v", err)
	}
	k.unused["shop"] = time.Now().Add(-linger)
	if err := k.drop(ctx, "shop", get("shop")); err != nil || get("shop") != nil {
		t.Errorf("one that nobody needs stays, or %v", err)
	}
}
