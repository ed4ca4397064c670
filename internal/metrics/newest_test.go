package metrics

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// TestAllKindsButNodesAreRead: what runs on nodes is told by pods.
func TestAllKindsButNodesAreRead(t *testing.T) {
	all := Kinds()
	for _, r := range api.Resources() {
		n := 0
		for _, k := range all {
			if k.Name == r.Kind {
				n++
			}
		}
		if want := map[bool]int{true: 0, false: 1}[r.Kind == "Node"]; n != want {
			t.Errorf("%s is read %d times, want %d", r.Kind, n, want)
		}
	}
	if len(all) != len(api.Resources())-1 {
		t.Errorf("%d kinds are read", len(all))
	}
}

func TestAnIndexIsMadeOnceForASet(t *testing.T) {
	var n Newest
	if n.Index() != nil || n.Known() {
		t.Error("before there is a set there is an index")
	}
	set := func(namespace string) *resource.Set {
		c := resource.NewCollection(Kinds())
		c.Put(resource.Adopt(Kinds(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: namespace}}))
		return c.Set()
	}
	n.Know(set("a"))
	if n.index != nil || !n.Known() {
		t.Error("an index is made before somebody asks, or the set is not known")
	}
	first := n.Index()
	if first == nil || n.Index() != first {
		t.Error("an index is made anew for the same set")
	}
	n.Know(set("b"))
	second := n.Index()
	if _, err := second.Sides(kinds[namespaces], "", "b"); err != nil || second == first {
		t.Errorf("the index is not of the newest set: %v", err)
	}
}

// TestNodesOfAPartOfAClusterAreUnknown, as their sums would be wrong.
func TestNodesOfAPartOfAClusterAreUnknown(t *testing.T) {
	c := resource.NewCollection(Kinds())
	pod := &workload.Pod{Object: workload.Object{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1"}, Node: "node-1"}}
	pod.TypeMeta = metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"}
	c.Put(resource.Adopt(Kinds(), pod))
	set := c.Set()
	if _, err := NewIndex(set).Sides(kinds[nodes], "", "node-1"); err != nil {
		t.Errorf("of a whole cluster: %v", err)
	}
	set.Watched = []string{"shop"}
	x := NewIndex(set)
	if _, err := x.Sides(kinds[nodes], "", "node-1"); err == nil {
		t.Error("a node of a part of a cluster is known")
	}
	if _, err := x.Sides(kinds[pods], "shop", "web-1"); err != nil {
		t.Error(err)
	}
}

// TestPodsThatAreGoneAreForgotten after a time, the first of them earlier if they are too many.
func TestPodsThatAreGoneAreForgotten(t *testing.T) {
	list := func(names ...int) (all []*workload.Pod) {
		for _, i := range names {
			all = append(all, &workload.Pod{Object: workload.Object{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: fmt.Sprintf("web-%05d", i)}}})
		}
		return all
	}
	gone := func(n *Newest) (names string) {
		for _, d := range n.gone {
			names += d.pod.Name[6:] + " "
		}
		return names
	}
	var n Newest
	now := time.Now()
	n.remember(list(1, 2, 3, 4), list(2, 4, 5), now)
	n.remember(list(2, 4, 5), list(5), now.Add(time.Minute))
	if got := gone(&n); got != "001 003 002 004 " {
		t.Errorf("gone are %s", got)
	}
	n.remember(list(5), list(5), now.Add(goneFor+time.Second))
	if got := gone(&n); got != "002 004 " {
		t.Errorf("after a while they are %s", got)
	}
	var many []int
	for i := range mostGone + 10 {
		many = append(many, i+100)
	}
	n.remember(list(many...), nil, now.Add(goneFor+2*time.Second))
	if len(n.gone) != mostGone || n.gone[0].pod.Name != "web-00110" {
		t.Errorf("%d are remembered, the first is %s", len(n.gone), n.gone[0].pod.Name)
	}
}
