package rest_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/workload"
)

// largeSet has 5,000 pods of 500 Deployments in 50 namespaces, each with a Service.
func largeSet() *resource.Set {
	var all []metav1.Object
	yes := true
	owner := func(kind, name string) []metav1.OwnerReference {
		return []metav1.OwnerReference{{Kind: kind, Name: name, Controller: &yes}}
	}
	for i := range 500 {
		ns, name := fmt.Sprintf("ns%02d", i%50), fmt.Sprintf("app%03d", i)
		labels := map[string]string{"app": name, "tier": "web"}
		of := func(name string) workload.Object {
			o := workload.Object{PodLabels: labels, Account: name[:6]}
			o.Namespace, o.Name, o.Labels = ns, name, labels
			return o
		}
		set := of(name + "-5d4f8c7b9")
		set.OwnerReferences = owner("Deployment", name)
		all = append(all, &workload.Deployment{Object: of(name)}, &workload.ReplicaSet{Object: set},
			&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name}, Spec: corev1.ServiceSpec{Selector: map[string]string{"app": name}}})
		for j := range 10 {
			p := of(fmt.Sprintf("%s-5d4f8c7b9-%05d", name, j))
			p.OwnerReferences, p.Node = owner("ReplicaSet", set.Name), fmt.Sprintf("node%d", j)
			p.Addresses = []string{fmt.Sprintf("10.%d.%d.%d", i/250, i%250, j+1)}
			all = append(all, &workload.Pod{Object: p})
		}
	}
	return resource.NewSet(dialect.Kinds(), all...)
}

// largeTraffic is 20,000 edges between these pods: half of them observed at those that receive, half at those that send.
func largeTraffic() (all []metrics.Traffic) {
	r := rand.New(rand.NewPCG(1, 1))
	pod := func() telemetry.Side {
		i := r.IntN(500)
		return telemetry.Side{Kind: "Pod", Namespace: fmt.Sprintf("ns%02d", i%50), Name: fmt.Sprintf("app%03d-5d4f8c7b9-%05d", i, r.IntN(10))}
	}
	registry := telemetry.NewRegistry(telemetry.Options{MaxSeries: 100_000})
	for len(all) < 20_000 {
		l := telemetry.EdgeLabels{At: pod(), Out: r.IntN(2) == 0, Peer: pod()}
		e := registry.Edge(l)
		for range 10 {
			e.Observe(0, r.IntN(20) > 0, time.Duration(r.ExpFloat64()*float64(20*time.Millisecond)))
		}
		s := e.Snapshot()
		all = append(all, metrics.Traffic{EdgeLabels: l, Success: s.Success, Failure: s.Failure, Latency: s.Latency})
	}
	return all
}

// BenchmarkHandler answers about 5,000 pods and 20,000 edges. The store's time to look for rows is in it.
func BenchmarkHandler(b *testing.B) {
	set := largeSet()
	s := &store{rows: largeTraffic()}
	h := handler(metrics.NewIndex(set), s)
	goals := map[string]time.Duration{"pods": 300 * time.Millisecond, "edges of a pod": 50 * time.Millisecond}
	for name, path := range map[string]string{
		"pods": "/pods", "pods of a namespace": "/namespaces/ns07/pods", "deployments": "/deployments", "namespaces": "/namespaces", "edges of a pod": "/namespaces/ns07/pods/app007-5d4f8c7b9-00003/edges",
		"edges of a deployment": "/namespaces/ns07/deployments/app007/edges", "edges of a namespace": "/namespaces/ns07/edges", "edges of a node": "/nodes/node3/edges", "one deployment": "/namespaces/ns07/deployments/app007",
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if w := get(h, draft+path); w.Code != 200 {
					b.Fatal(w.Body)
				}
			}
			if each := b.Elapsed() / time.Duration(b.N); os.Getenv("GOALS") != "" && goals[name] > 0 && each > goals[name] {
				b.Errorf("takes %v, more than %v", each, goals[name])
			}
		})
	}
}

func BenchmarkNewIndex(b *testing.B) {
	set := largeSet()
	b.ReportAllocs()
	for b.Loop() {
		metrics.NewIndex(set)
	}
}
