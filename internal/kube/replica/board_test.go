package replica_test

import (
	"context"
	"reflect"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
)

func TestReplicasReadWhatProxiesOfOthersRun(t *testing.T) {
	c, informers := fake.NewFakeClient(), &informertest.FakeInformers{}
	since := time.Now().Truncate(time.Second).UTC()
	runs := map[model.Owner][]feed.Proxy{"shop/edge": {{Name: "shop/edge-1", Version: "abc", Since: since}}}
	changed := make(chan struct{}, 16)
	one := &replica.Board{
		Client: c, Cache: informers, Namespace: "weir-system", Name: "one", Logger: discard,
		Running: func() map[model.Owner][]feed.Proxy { return runs }, Changed: func() { changed <- struct{}{} },
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- one.Run(ctx) }()

	written := &corev1.ConfigMap{}
	waitUntil(t, "the first word", func() bool {
		return c.Get(ctx, client.ObjectKey{Namespace: "weir-system", Name: "one"}, written) == nil
	})
	if written.Labels[replica.BoardLabel] != replica.BoardValue {
		t.Errorf("the ConfigMap has labels %v, so that others do not see it", written.Labels)
	}
	informer, err := informers.FakeInformerFor(ctx, &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	informer.Add(written) // its own is not another's
	theirs := written.DeepCopy()
	theirs.Name = "other"
	informer.Add(theirs)
	wait(t, changed, "a change")
	if got := one.Others("shop/edge"); len(got) != 1 || !reflect.DeepEqual(got[0], runs["shop/edge"][0]) {
		t.Errorf("another replica's proxies: %v, want %v", got, runs["shop/edge"])
	}
	broken := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Namespace: "weir-system", Name: "broken"}}
	informer.Add(broken)
	informer.Delete(theirs)
	waitUntil(t, "the end of a replica", func() bool { return len(one.Others("shop/edge")) == 0 })
	cancel()
	if err := wait(t, ended, "the end"); err != nil {
		t.Error(err)
	}
	if err := c.Get(t.Context(), client.ObjectKey{Namespace: "weir-system", Name: "one"}, written); err == nil {
		t.Error("a replica that ended leaves its word")
	}
}

func TestNewestWordAboutAProxyCounts(t *testing.T) {
	now := time.Now()
	got := replica.Newest(
		[]feed.Proxy{{Name: "b", Version: "new", Since: now}, {Name: "a", Version: "old", Since: now.Add(-time.Hour)}},
		[]feed.Proxy{{Name: "a", Version: "new", Since: now}, {Name: "b", Version: "old", Since: now.Add(-time.Hour)}},
	)
	if len(got) != 2 || got[0].Name != "a" || got[0].Version != "new" || got[1].Version != "new" {
		t.Errorf("%v, want the newest of each, by name", got)
	}
}

// TestTheBoardSaysWhereReplicasAre, and how many proxies each has, of which those that moved count where they are now.
func TestTheBoardSaysWhereReplicasAre(t *testing.T) {
	c, informers := fake.NewFakeClient(), &informertest.FakeInformers{}
	now := time.Now().Truncate(time.Second).UTC()
	board := func(name, address string, proxies ...feed.Proxy) *replica.Board {
		b := &replica.Board{
			Client: c, Cache: informers, Namespace: "weir-system", Name: name, Address: address, Logger: discard, Changed: func() {},
			Running: func() map[model.Owner][]feed.Proxy { return map[model.Owner][]feed.Proxy{"shop/edge": proxies} },
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- b.Run(ctx) }()
		waitUntil(t, "the word of "+name, func() bool {
			return c.Get(ctx, client.ObjectKey{Namespace: "weir-system", Name: name}, &corev1.ConfigMap{}) == nil
		})
		t.Cleanup(func() { cancel(); <-ended })
		return b
	}
	one := board("one", "10.0.0.1:18000", feed.Proxy{Name: "shop/came", Since: now})
	board("two", "10.0.0.2:18000", feed.Proxy{Name: "shop/came", Since: now.Add(-time.Minute)}, feed.Proxy{Name: "shop/a", Since: now}, feed.Proxy{Name: "shop/b", Since: now})
	board("old", "", feed.Proxy{Name: "shop/a", Since: now.Add(-time.Minute)}, feed.Proxy{Name: "shop/c", Since: now})
	informer, err := informers.FakeInformerFor(t.Context(), &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"one", "two", "old"} {
		word := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "weir-system", Name: name}, word); err != nil {
			t.Fatal(err)
		}
		informer.Add(word)
	}
	want := []replica.Replica{{Name: "old", Proxies: 1}, {Name: "two", Address: "10.0.0.2:18000", Proxies: 2}}
	waitUntil(t, "both replicas", func() bool { return reflect.DeepEqual(one.Replicas(), want) })
}
