package control

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/resource"
)

// behind keeps requests from the pods that a Service had before. Who changes a Service's selector and then shares, as Argo Rollouts does
// at the end of a release, has both known before Kubernetes has made other EndpointSlices: the new shares would lead to the old pods. So
// a TrafficSplit or route that leads to such a Service stays as it was until the Service's EndpointSlices have changed, too, at most for
// behindMost. It is for one goroutine at a time.
type behind struct {
	last *resource.Set // what hold returned last
	late map[resource.Key]late
	held map[resource.Key]time.Time // the objects that stay as they were, and since when
}

// late is a Service whose selector has changed, and whose EndpointSlices are still these.
type late struct {
	since  time.Time
	slices []*discoveryv1.EndpointSlice
}

const behindMost = 2 * time.Second

// hold returns the set in which objects stay as they were, and when to ask again if no other set comes; the zero time is never.
func (b *behind) hold(set *resource.Set, now time.Time) (held *resource.Set, again time.Time) {
	if b.last != nil {
		b.note(set, now)
	}
	stay := make(map[resource.Key]metav1.Object)
	since := make(map[resource.Key]time.Time)
	for key := range b.waiting(set) {
		before := b.last.Object(key)
		if before == nil || before == set.Object(key) {
			continue
		}
		from, known := b.held[key]
		if !known {
			from = now
		}
		since[key] = from
		if now.Sub(from) >= behindMost {
			continue
		}
		stay[key] = before
		if end := from.Add(behindMost); again.IsZero() || end.Before(again) {
			again = end
		}
	}
	b.held = since
	if len(stay) > 0 {
		set = set.Instead(stay)
	}
	b.last = set
	return set, again
}

// note finds out which Services are late.
func (b *behind) note(set *resource.Set, now time.Time) {
	for before, s := range changed(b.last.Services, set.Services) {
		if before.UID == s.UID && len(s.Spec.Selector) > 0 && !maps.Equal(before.Spec.Selector, s.Spec.Selector) {
			if b.late == nil {
				b.late = make(map[resource.Key]late)
			}
			b.late[serviceKey(s.Namespace, s.Name)] = late{now, b.last.EndpointSlicesOf(s.Namespace, s.Name)}
		}
	}
	maps.DeleteFunc(b.late, func(key resource.Key, l late) bool {
		return now.Sub(l.since) >= behindMost || !slices.Equal(set.EndpointSlicesOf(key.Namespace, key.Name), l.slices)
	})
}

// changed yields the Services that are in both lists, sorted by namespace and name, and differ.
func changed(before, now []*corev1.Service) func(yield func(before, now *corev1.Service) bool) {
	return func(yield func(before, now *corev1.Service) bool) {
		at := 0
		for _, s := range now {
			for at < len(before) && (before[at].Namespace < s.Namespace || before[at].Namespace == s.Namespace && before[at].Name < s.Name) {
				at++
			}
			if at < len(before) && before[at] != s && before[at].Namespace == s.Namespace && before[at].Name == s.Name && !yield(before[at], s) {
				return
			}
		}
	}
}

// waiting are the objects that lead to Services that are late.
func (b *behind) waiting(set *resource.Set) map[resource.Key]bool {
	all := make(map[resource.Key]bool)
	if len(b.late) == 0 {
		return all
	}
	note := func(u resource.Use) {
		if _, is := b.late[serviceKey(u.Namespace, u.Service)]; is {
			all[u.By] = true
		}
	}
	for u := range set.RouteUses() {
		note(u)
	}
	for _, s := range set.TrafficSplits {
		_, backends := resource.SplitUses(s)
		for _, u := range backends {
			note(u)
		}
	}
	return all
}

func serviceKey(namespace, name string) resource.Key {
	return resource.Key{Kind: "Service", Namespace: namespace, Name: name}
}
