package replica_test

import (
	"context"
	"crypto/sha256"
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
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
	synctest.Test(t, func(t *testing.T) {
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
	})
}

// TestTheWordOfAKilledReplicaEndsWithItsPod, and where that is not known three minutes after it was written last: an API server that is
// asked again for all there is makes it no younger.
func TestTheWordOfAKilledReplicaEndsWithItsPod(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, informers := fake.NewFakeClient(), &informertest.FakeInformers{}
		board := func(name string, pod *metav1.OwnerReference) *replica.Board {
			return begin(t, &replica.Board{
				Client: c, Cache: informers, Namespace: "weir-system", Name: name, Pod: pod, Logger: discard, Changed: func() {},
				Running: func() map[model.Owner][]feed.Proxy {
					return map[model.Owner][]feed.Proxy{"shop/edge": {{Name: "shop/edge-1"}}}
				},
			})
		}
		pod := metav1.OwnerReference{APIVersion: "v1", Kind: "Pod", Name: "weir-controller-1", UID: "u1"}
		one := board("one", nil)
		board("other", &pod)
		word := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "weir-system", Name: "other"}, word); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(word.OwnerReferences, []metav1.OwnerReference{pod}) {
			t.Errorf("Kubernetes does not remove it: %+v", word.ObjectMeta)
		}
		informer, err := informers.FakeInformerFor(t.Context(), &corev1.ConfigMap{})
		if err != nil {
			t.Fatal(err)
		}
		heard := func() bool { return len(one.Others("shop/edge")) > 0 }
		informer.Add(word)
		waitUntil(t, "the word", heard)
		for range 4 {
			time.Sleep(time.Minute)
			informer.Update(word, word.DeepCopy())
		}
		time.Sleep(time.Second)
		if heard() {
			t.Error("a word of four minutes ago counts")
		}
		renewed := word.DeepCopy()
		renewed.ResourceVersion += "1"
		informer.Update(word, renewed)
		waitUntil(t, "a new word", heard)
	})
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
	synctest.Test(t, func(t *testing.T) {
		c, informers := fake.NewFakeClient(), &informertest.FakeInformers{}
		now := time.Now().Truncate(time.Second).UTC()
		board := func(name, address string, proxies ...feed.Proxy) *replica.Board {
			b := &replica.Board{
				Client: c, Cache: informers, Namespace: "weir-system", Name: name, Address: address, Logger: discard, Changed: func() {},
				Running: func() map[model.Owner][]feed.Proxy { return map[model.Owner][]feed.Proxy{"shop/edge": proxies} },
			}
			return begin(t, b)
		}
		one := board("one", "10.0.0.1:18000", feed.Proxy{Name: "shop/came", Since: now})
		board("two", "10.0.0.2:18000", feed.Proxy{Name: "shop/came", Since: now.Add(-time.Minute)}, feed.Proxy{Name: "shop/a", Since: now}, feed.Proxy{Name: "shop/b", Since: now})
		board("old", "", feed.Proxy{Name: "shop/a", Since: now.Add(-time.Minute)}, feed.Proxy{Name: "shop/c", Since: now})
		hear(t, c, informers, "one", "two", "old")
		want := []replica.Replica{{Name: "old", Proxies: 1}, {Name: "two", Address: "10.0.0.2:18000", Proxies: 2}}
		waitUntil(t, "both replicas", func() bool { return reflect.DeepEqual(one.Replicas(), want) })
	})
}

func TestSidecarsAreWrongThatDoNotServeAllThatTheyAreToHave(t *testing.T) {
	for what, a := range map[string]feed.Alone{
		"refused":  {Proxy: feed.Proxy{Err: "no"}},
		"unserved": {Proxy: feed.Proxy{Unserved: []feed.Unserved{{Listener: "a"}}}},
		"unsent":   {Unsent: true},
		"":         {Proxy: feed.Proxy{Version: "v"}},
	} {
		if got := replica.SidecarsOf([]feed.Alone{a}); got[0].Wrong != (what != "") {
			t.Errorf("%q: %+v", what, got)
		}
	}
}

// TestReplicasKnowTheSidecarsOfOthers, of which a word about one that moved counts once.
func TestReplicasKnowTheSidecarsOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, informers := fake.NewFakeClient(), &informertest.FakeInformers{}
		board := func(name string, sidecars ...replica.Sidecar) *replica.Board {
			b := &replica.Board{
				Client: c, Cache: informers, Namespace: "weir-system", Name: name, Logger: discard, Changed: func() {},
				Running: func() map[model.Owner][]feed.Proxy { return map[model.Owner][]feed.Proxy{} }, Sidecars: func() []replica.Sidecar { return sidecars },
			}
			return begin(t, b)
		}
		one := board("one", replica.Sidecar{Pod: "shop/own", Since: 5, Serves: true})
		board("two", replica.Sidecar{Pod: "shop/a", Since: 7, Serves: true, Ends: 99}, replica.Sidecar{Pod: "shop/b", Since: 3, Behind: true})
		board("three", replica.Sidecar{Pod: "shop/a", Since: 6}, replica.Sidecar{Pod: "shop/b", Since: 4, Serves: true, Wrong: true})
		hear(t, c, informers, "one", "two", "three")
		want := []replica.Sidecar{{Pod: "shop/a", Since: 7, Serves: true, Ends: 99}, {Pod: "shop/b", Since: 4, Serves: true, Wrong: true}}
		waitUntil(t, "those of the others", func() bool { return reflect.DeepEqual(one.OtherSidecars(), want) })
		all, err := replica.ReadSidecars(t.Context(), c, "weir-system")
		if err != nil || len(all) != 3 || all[2].Pod != "shop/own" {
			t.Errorf("all are %+v, %v", all, err)
		}
	})
}

func TestSidecarsThatDoNotFitAreLeftOut(t *testing.T) {
	var all []replica.Sidecar
	for i := range 40_000 {
		sum := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
		all = append(all, replica.Sidecar{Pod: fmt.Sprintf("shop/%x", sum), Since: int64(i), Serves: true})
	}
	data, left, err := replica.PackSidecars(all)
	if err != nil || len(data) > 512<<10 || left < 30_000 || left == len(all) {
		t.Errorf("%d bytes, %d left, %v", len(data), left, err)
	}
	got, err := replica.UnpackSidecars(data)
	if err != nil || len(got) != len(all)-left || got[0] != all[0] {
		t.Errorf("%d are read, %v", len(got), err)
	}
}

// FuzzSidecars: what another replica, or who may write its ConfigMap, says is read within bounds, or not at all.
func FuzzSidecars(f *testing.F) {
	good, _, err := replica.PackSidecars([]replica.Sidecar{{Pod: "a/b", Since: 1, Serves: true}})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := replica.UnpackSidecars(data)
		if err != nil && got != nil || len(got) > 10_000 {
			t.Errorf("%d sidecars, %v", len(got), err)
		}
	})
}

// begin runs a board until the test ends, and returns it once it has written its first word.
func begin(t *testing.T, b *replica.Board) *replica.Board {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- b.Run(ctx) }()
	waitUntil(t, "the word of "+b.Name, func() bool {
		return b.Client.Get(ctx, client.ObjectKey{Namespace: b.Namespace, Name: b.Name}, &corev1.ConfigMap{}) == nil
	})
	t.Cleanup(func() { cancel(); <-ended })
	return b
}

// hear brings the words of boards to all of them.
func hear(t *testing.T, c client.Client, informers *informertest.FakeInformers, names ...string) {
	t.Helper()
	informer, err := informers.FakeInformerFor(t.Context(), &corev1.ConfigMap{})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		word := &corev1.ConfigMap{}
		if err := c.Get(t.Context(), client.ObjectKey{Namespace: "weir-system", Name: name}, word); err != nil {
			t.Fatal(err)
		}
		informer.Add(word)
	}
}
