package controller

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/workload"
)

// meshSize is that of a large mesh: each Service has as many pods, which have sidecars.
const meshServices, meshPods, meshSidecars = 5_000, 20_000, 1_000

func meshNamespace(service int) string { return fmt.Sprintf("team-%02d", service%50) }

func meshService(service int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(service / 250), byte(service % 250)}), 80)
}

// largeMesh has meshServices with meshPods.
func largeMesh() *resource.Collection {
	c := resource.NewCollection(dialect.Kinds())
	put := func(o metav1.ObjectMetaAccessor) { c.Put(resource.Adopt(dialect.Kinds(), o)) }
	http, port := "http", int32(8080)
	for i := range meshServices {
		name, namespace := fmt.Sprintf("s%d", i), meshNamespace(i)
		put(&corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1}, Spec: corev1.ServiceSpec{
			ClusterIP: meshService(i).Addr().String(), Selector: map[string]string{"app": name}, Ports: []corev1.ServicePort{{Name: "http", Port: 80}}}})
		slice := &discoveryv1.EndpointSlice{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Generation: 1}, AddressType: discoveryv1.AddressTypeIPv4, Ports: []discoveryv1.EndpointPort{{Name: &http, Port: &port}}}
		slice.Labels = map[string]string{discoveryv1.LabelServiceName: name}
		for n := i; n < meshPods; n += meshServices {
			address := fmt.Sprintf("10.64.%d.%d", n/250, n%250+1)
			pod := &workload.Pod{Object: workload.Object{
				ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: fmt.Sprintf("p%d", n), Generation: 1}, PodLabels: map[string]string{"app": name}, Account: name,
				Ports: []workload.Port{{Name: "http", Number: 8080}}, Addresses: []string{address}, Sidecar: true,
			}}
			put(pod)
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}, TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod.Name}})
		}
		put(slice)
	}
	return c
}

// changeEndpoint takes an endpoint away from one Service, and gives it back the next time.
func changeEndpoint(c *resource.Collection, set *resource.Set, i int) {
	e := set.EndpointSlices[i/2%len(set.EndpointSlices)]
	if i%2 == 0 {
		e = e.DeepCopy()
		e.Endpoints = e.Endpoints[1:]
	}
	c.Put(resource.Adopt(dialect.Kinds(), e))
}

// changePod labels a pod, behind a Service or none.
func changePod(c *resource.Collection, set *resource.Set, i int) {
	all := workload.PodList.In(set)
	p := *all[i/2%len(all)]
	if i%2 == 0 {
		p.PodLabels = map[string]string{"app": "none"}
	}
	c.Put(resource.Adopt(dialect.Kinds(), &p))
}

// elsewhere names the environment variable with the feed's address and the file of its authority, for TestSidecarsElsewhere.
const elsewhere = "WEIR_TEST_SIDECARS"

// TestSidecarsElsewhere is the process of BenchmarkMesh's sidecars: it says when each has what it asked for, and ends with its
// input.
func TestSidecarsElsewhere(t *testing.T) {
	address, ca, ok := strings.Cut(os.Getenv(elsewhere), " ")
	if !ok {
		t.Skip("it is a part of a benchmark")
	}
	f := &fleet{TB: t, address: address, ca: ca}
	var all sync.WaitGroup
	for i := range meshSidecars {
		asks := &feed.Destinations{}
		f.connectAsking(fmt.Sprintf("%s/p%d", meshNamespace(i), i), asks)
		all.Go(func() {
			for n := range 3 {
				for asks.Find(t.Context(), meshService((i*3+n)%meshServices)) != nil {
				}
			}
		})
		time.Sleep(25 * time.Millisecond) // as often as one address may connect
	}
	all.Wait()
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
}

// sidecarsElsewhere starts that process, and returns when all have what they asked for.
func (f *fleet) sidecarsElsewhere() {
	f.Helper()
	cmd := exec.Command(os.Args[0], "-test.run", "^TestSidecarsElsewhere$")
	cmd.Env = append(os.Environ(), elsewhere+"="+f.address+" "+f.ca)
	in, err := cmd.StdinPipe()
	if err != nil {
		f.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		f.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		f.Fatal(err)
	}
	f.Cleanup(func() { in.Close(); _ = cmd.Wait() })
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if lines.Text() == "ready" {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			return
		}
	}
	f.Fatal("the sidecars' process has ended")
}

// BenchmarkMesh is what a change of one object costs a replica of the controller with meshSidecars connected, each of which
// uses three Services: the time in the loop, which Gateways wait for, the time until all sidecars have it, what is sent, and the
// memory of a connected sidecar.
func BenchmarkMesh(b *testing.B) {
	f := newFleet(b)
	source, reported := make(fed), make(chan control.Report, 1)
	loop := reloadLoop(f.feeds, func(r control.Report) { f.know(r.Sidecars); reported <- r })
	loop.Source, loop.Options = source, f.plane.translation()
	ctx, cancel := context.WithCancel(b.Context())
	done := make(chan error, 1)
	go func() { done <- loop.Run(ctx) }()
	cluster := largeMesh()
	first := cluster.Set()
	source <- first
	r := <-reported
	if r.Err != nil || r.Sidecars == nil {
		b.Fatal(r.Err)
	}
	r.Sidecars.Inbound(meshNamespace(0), "p0") // the index, which all share
	r.Sidecars.To("shop", meshService(0))
	inUse := func() int64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return int64(m.HeapAlloc + m.StackInuse)
	}
	before := inUse()
	f.sidecarsElsewhere()
	through := func() {
		for f.status().Due > 0 {
			time.Sleep(time.Millisecond)
		}
	}
	through()
	memory := float64(inUse()-before) / meshSidecars
	for _, change := range []struct {
		of   string
		make func(*resource.Collection, *resource.Set, int)
	}{{"endpoint", changeEndpoint}, {"pod", changePod}} {
		b.Run(change.of, func(b *testing.B) {
			var inLoop, until time.Duration
			sent := f.feeds.Stats()
			n := 0
			for ; b.Loop(); n++ {
				change.make(cluster, first, n)
				source <- cluster.Set()
				r := <-reported
				if r.Err != nil {
					b.Fatal(r.Err)
				}
				inLoop += r.TranslateTime + r.PublishTime
				start := time.Now()
				through()
				until += time.Since(start)
			}
			b.ReportMetric(memory, "B/sidecar")
			b.ReportMetric(float64(inLoop.Microseconds())/1000/float64(n), "ms-loop/op")
			b.ReportMetric(float64(until.Microseconds())/1000/float64(n), "ms-sidecars/op")
			b.ReportMetric(float64(f.feeds.Stats().Bytes-sent.Bytes)/float64(n), "B-sent/op")
			b.ReportMetric(float64(f.feeds.Stats().Parts-sent.Parts)/float64(n), "parts/op")
		})
	}
	cancel()
	if err := <-done; err != nil {
		b.Fatal(err)
	}
}
