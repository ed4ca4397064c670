package kube

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"strconv"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/resource"
)

// BenchmarkManyObjects is a source over SCALE HTTPRoutes (default 1,000), a fifth as many Services, and twice as many
// endpoints: how long it takes to know them, what they weigh, how soon a changed one is in a set, and how long their
// statuses take to write.
func BenchmarkManyObjects(b *testing.B) {
	n := scale(b)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "scale-"}}
	if err := admin.Create(b.Context(), ns); err != nil {
		b.Fatal(err)
	}
	fill(b, ns.Name, n)
	for b.Loop() {
		measure(b, ns.Name, n)
	}
}

// scale is how many objects there are to be.
func scale(b *testing.B) int {
	text := os.Getenv("SCALE")
	if text == "" {
		return 1000
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		b.Fatal(err)
	}
	return n
}

// createAll creates objects, many at a time.
func createAll(b *testing.B, objects func(create func(client.Object))) {
	work := make(chan client.Object)
	var wait sync.WaitGroup
	for range 16 {
		wait.Go(func() {
			for o := range work {
				if err := admin.Create(context.Background(), o); err != nil {
					b.Error(err)
				}
			}
		})
	}
	objects(func(o client.Object) { work <- o })
	close(work)
	wait.Wait()
}

// heap is how much is in use, in megabytes.
func heap() float64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return float64(m.HeapAlloc) / 1e6
}

// fill creates routes, Services and their endpoints.
func fill(b *testing.B, ns string, n int) {
	createAll(b, func(create func(client.Object)) { fillWith(ns, n, create) })
}

func fillWith(ns string, n int, create func(client.Object)) {
	for i := range n {
		create(&gatewayv1.HTTPRoute{ObjectMeta: named(ns, fmt.Sprintf("r%d", i)), Spec: gatewayv1.HTTPRouteSpec{
			CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: "edge"}}},
			Hostnames:       []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("h%d.example", i))},
			Rules: []gatewayv1.HTTPRouteRule{{BackendRefs: []gatewayv1.HTTPBackendRef{{BackendRef: gatewayv1.BackendRef{
				BackendObjectReference: gatewayv1.BackendObjectReference{Name: gatewayv1.ObjectName(fmt.Sprintf("s%d", i/5)), Port: ptr(gatewayv1.PortNumber(80))},
			}}}}},
		}})
	}
	for i := range n / 5 {
		name := fmt.Sprintf("s%d", i)
		create(&corev1.Service{ObjectMeta: named(ns, name), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Port: 80}}}})
		slice := &discoveryv1.EndpointSlice{ObjectMeta: named(ns, name), AddressType: discoveryv1.AddressTypeIPv4,
			Ports: []discoveryv1.EndpointPort{{Port: ptr(int32(8080))}}}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		for j := range 10 {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{fmt.Sprintf("10.%d.%d.%d", i/256, i%256, j+1)}})
		}
		create(slice)
	}
}

func measure(b *testing.B, ns string, n int) {
	before := heap()
	source := kube.NewSource(admin, kube.SourceOptions{Kinds: kinds, Controller: controller})
	writer := kube.NewStatusWriter(admin, source, controller, nil)
	ctx, cancel := context.WithCancel(b.Context())
	var wait sync.WaitGroup
	defer wait.Wait()
	defer cancel()
	sets := make(chan *resource.Set, 1000)
	began := time.Now()
	wait.Go(func() { _ = source.Run(ctx, func(s *resource.Set) { sets <- s }) })
	set := <-sets
	b.ReportMetric(time.Since(began).Seconds(), "s/first-set")
	if len(set.HTTPRoutes) != n {
		b.Fatalf("%d routes", len(set.HTTPRoutes))
	}
	b.ReportMetric(heap()-before, "MB/heap")

	began = time.Now()
	const changes = 20
	for i := range changes {
		route := set.HTTPRoutes[0].DeepCopy()
		if err := admin.Get(ctx, client.ObjectKeyFromObject(route), route); err != nil {
			b.Fatal(err)
		}
		route.Spec.Hostnames = []gatewayv1.Hostname{gatewayv1.Hostname(fmt.Sprintf("changed%d-%d.example", i, time.Now().UnixNano()))}
		if err := admin.Update(ctx, route); err != nil {
			b.Fatal(err)
		}
		for set = <-sets; set.HTTPRoutes[0].ResourceVersion != route.ResourceVersion; set = <-sets {
		}
	}
	b.ReportMetric(time.Since(began).Seconds()*1000/changes, "ms/change")

	var statuses []resource.Status
	gateway := fmt.Sprintf("p%d", time.Now().UnixNano())
	for _, r := range set.HTTPRoutes {
		statuses = append(statuses, routeStatus(r, "True", gateway))
	}
	wait.Go(func() { _ = writer.Run(ctx) })
	began = time.Now()
	writer.Set(statuses)
	for written := 0; written < n; time.Sleep(50 * time.Millisecond) {
		written = 0
		for _, o := range source.Objects() {
			if r, ok := o.Value().(*gatewayv1.HTTPRoute); ok && len(r.Status.Parents) == 1 && string(r.Status.Parents[0].ParentRef.Name) == gateway {
				written++
			}
		}
	}
	b.ReportMetric(time.Since(began).Seconds(), "s/statuses")
}
