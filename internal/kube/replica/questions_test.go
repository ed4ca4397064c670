package replica_test

import (
	"crypto/sha256"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/cache/informertest"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
)

// TestReplicasAnswerForTheirSidecars has a leader ask until all sidecars serve what it waits for, those alone that are connected
// to replicas which answer.
func TestReplicasAnswerForTheirSidecars(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, informers := fake.NewFakeClient(), &informertest.FakeInformers{}
		changed := make(chan struct{}, 64)
		var said atomic.Value // of two; empty if its sidecars serve everything
		said.Store("the sidecar of pod shop/a does not serve the configuration yet")
		var answered atomic.Int64
		want := replica.NewQuestion([]replica.Object{
			{Group: "gateway.networking.k8s.io", Kind: "HTTPRoute", Namespace: "shop", Name: "web", UID: "u", Generation: 3},
			{Group: "discovery.k8s.io", Kind: "EndpointSlice", Namespace: "shop", Name: "web-1", UID: "v"},
		}, map[string]bool{"shop/web": true, "shop/web-canary": true})
		var own atomic.Value
		own.Store([]replica.Sidecar{})
		board := func(name string, sidecars func() []replica.Sidecar, answer func(replica.Question) string) *replica.Board {
			b := &replica.Board{
				Client: c, Cache: informers, Namespace: "weir-system", Name: name, Logger: discard, Sidecars: sidecars, Answer: answer,
				Running: func() map[model.Owner][]feed.Proxy { return map[model.Owner][]feed.Proxy{} },
				Changed: func() {
					select {
					case changed <- struct{}{}:
					default:
					}
				},
			}
			return begin(t, b)
		}
		has := func(pod string) func() []replica.Sidecar {
			return func() []replica.Sidecar { return []replica.Sidecar{{Pod: pod, Since: 5}} }
		}
		none := func(replica.Question) string { t.Error("a replica without sidecars is asked"); return "" }
		one := board("one", func() []replica.Sidecar { return own.Load().([]replica.Sidecar) }, none)
		if awaited := one.Ask(want); awaited != "" {
			t.Errorf("alone, it awaits %q", awaited)
		}
		two := board("two", has("shop/a"), func(q replica.Question) string {
			answered.Add(1)
			if len(q.Objects) != 2 || q.Objects[1].Generation != 3 || strings.Join(q.Services, " ") != "shop/web shop/web-canary" {
				t.Errorf("asked is %+v", q)
			}
			return said.Load().(string)
		})
		board("old", has("shop/b"), nil)
		until := func(what string, holds func() bool) { // seldom, as time is free and events are not
			t.Helper()
			waitUntil(t, what, func() bool { time.Sleep(200 * time.Millisecond); return holds() })
		}
		awaits := func(what string, texts ...string) {
			t.Helper()
			until(what, func() bool {
				hear(t, c, informers, "one", "two", "old")
				awaited := one.Ask(want)
				for _, text := range texts {
					if !strings.Contains(awaited, text) {
						return false
					}
				}
				return len(texts) > 0 || awaited == ""
			})
		}
		awaits("that nobody has answered", "controller two does not say yet")
		awaits("the answer of two", "pod shop/a")
		for len(changed) > 0 {
			<-changed
		}
		said.Store("")
		two.AnswerAgain()
		awaits("that all serve it")
		wait(t, changed, "the news of the answer")
		before := answered.Load()
		two.Tell() // what was answered by yes is not asked of it again
		other := replica.NewQuestion(nil, map[string]bool{"shop/web": true, "shop/web-canary": true})
		other.Objects = append(other.Objects, want.Objects...)
		other.Objects[0].Generation = 1
		if one.Ask(other) == "" {
			t.Error("another question has the answer of the first")
		}
		until("the answer to the other one", func() bool {
			hear(t, c, informers, "one", "two", "old")
			return one.Ask(other) == ""
		})
		if got := answered.Load() - before; got != 1 {
			t.Errorf("it was asked %d times, want once", got)
		}
		// The sidecar goes to the leader: the replica is not awaited.
		said.Store("never")
		third := want
		third.Services = []string{"shop/web", "shop/web-canary"}
		third.Objects = append([]replica.Object{{Kind: "EndpointSlice", Name: "more"}}, want.Objects[1])
		own.Store([]replica.Sidecar{{Pod: "shop/a", Since: 6}})
		one.Tell()
		until("that two has no sidecars", func() bool { return one.Ask(third) == "" })
	})
}

// FuzzQuestions: what another replica, or who may write its ConfigMap, asks and answers is read within bounds, or not at all.
func FuzzQuestions(f *testing.F) {
	good, _, err := replica.PackQuestions(map[string]replica.Question{"a": replica.NewQuestion([]replica.Object{{Kind: "HTTPRoute", Generation: 2}}, map[string]bool{"shop/web": true})})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		got, err := replica.UnpackQuestions(data)
		if err != nil && got != nil || len(got) > 2_000 {
			t.Errorf("%d questions, %v", len(got), err)
		}
	})
}

func TestQuestionsThatDoNotFitAreLeftOut(t *testing.T) {
	all := map[string]replica.Question{}
	for i := range 2_500 {
		sum := sha256.Sum256([]byte{byte(i), byte(i >> 8)})
		name := fmt.Sprintf("%x", sum)
		all[name] = replica.NewQuestion([]replica.Object{{Kind: "HTTPRoute", Name: name, UID: name}}, map[string]bool{"shop/" + name: true})
	}
	data, left, err := replica.PackQuestions(all)
	if err != nil || len(data) > 128<<10 || left < 500 || left == len(all) {
		t.Errorf("%d bytes, %d left, %v", len(data), left, err)
	}
	got, err := replica.UnpackQuestions(data)
	if err != nil || len(got) != len(all)-left {
		t.Errorf("%d are read, %v", len(got), err)
	}
}
