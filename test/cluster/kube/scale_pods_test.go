package kube

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/metrics"
	weirresource "github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/test/weirtest"
)

// BenchmarkManyPods is what the controller knows for Traffic Metrics of SCALE pods (default 1,000), ten of each Deployment:
// how long it takes to know them, what they weigh as objects and with the index of them, and what a controller takes of the
// machine without Traffic Metrics and with them, and at most while it begins.
func BenchmarkManyPods(b *testing.B) {
	n := scale(b)
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "pods-"}}
	if err := admin.Create(b.Context(), ns); err != nil {
		b.Fatal(err)
	}
	fillPods(b, ns.Name, n)
	for b.Loop() {
		before := heap()
		source := kube.NewSource(admin, kube.SourceOptions{Kinds: metrics.Kinds()})
		ctx, cancel := context.WithCancel(b.Context())
		var wait sync.WaitGroup
		sets := make(chan *weirresource.Set, 1000)
		began := time.Now()
		wait.Go(func() { _ = source.Run(ctx, func(s *weirresource.Set) { sets <- s }) })
		set := <-sets
		b.ReportMetric(time.Since(began).Seconds(), "s/first-set")
		b.ReportMetric(heap()-before, "MB/objects")
		began = time.Now()
		index := metrics.NewIndex(set)
		b.ReportMetric(time.Since(began).Seconds()*1000, "ms/index")
		b.ReportMetric(heap()-before, "MB/all")
		pods := 0
		for _, k := range metrics.Kinds() {
			if k.Name == "Pod" {
				for range set.Of(k) {
					pods++
				}
			}
		}
		if index == nil || pods != n {
			b.Fatalf("%d pods", pods)
		}
		cancel()
		wait.Wait()
		now, peak := resident(b, "--traffic-metrics=false")
		b.ReportMetric(now, "MB/process-without")
		b.ReportMetric(peak, "MB/peak-without")
		now, peak = resident(b, "--traffic-metrics")
		b.ReportMetric(now, "MB/process-with")
		b.ReportMetric(peak, "MB/peak-with")
	}
}

// resident is how much memory a controller has once it knows the objects, and had at most, in megabytes.
func resident(b *testing.B, flag string) (now, peak float64) {
	if err := admin.Create(b.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own}}); err != nil && !apierrors.IsAlreadyExists(err) {
		b.Fatal(err)
	}
	var log lines
	run := weirtest.Command("controller", "--kubeconfig="+server.Kubeconfig, "--namespace="+own, "--name=scale", "--proxy-image=weir:dev", "--leader-elect=false",
		"--feed-address=127.0.0.1:0", "--conversion-address=127.0.0.1:0", "--drain-delay=0s", "--admin=off", flag)
	run.Stdout, run.Stderr = &log, &log
	if err := run.Start(); err != nil {
		b.Fatal(err)
	}
	defer func() {
		_ = run.Process.Signal(syscall.SIGTERM)
		if err := run.Wait(); err != nil {
			b.Errorf("%v\n%s", err, log.String())
		}
	}()
	known := []string{`msg="the objects of the cluster are known" after=`}
	if flag == "--traffic-metrics" {
		known = append(known, `msg="the objects of the cluster are known" for="traffic metrics"`)
	}
	if err := within(b.Context(), func() error {
		for _, line := range known {
			if !strings.Contains(log.String(), line) {
				return fmt.Errorf("the log lacks %s:\n%s", line, log.String())
			}
		}
		return nil
	}); err != nil {
		b.Fatal(err)
	}
	time.Sleep(20 * time.Second) // what was used to read them goes back to the system
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", run.Process.Pid))
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		var kB float64
		if n, _ := fmt.Sscanf(line, "VmRSS: %f kB", &kB); n == 1 {
			now = kB * 1024 / 1e6
		}
		if n, _ := fmt.Sscanf(line, "VmHWM: %f kB", &kB); n == 1 {
			peak = kB * 1024 / 1e6
		}
	}
	return now, peak
}

// fillPods creates what runs pods, as the controllers of Kubernetes would, many at a time.
func fillPods(b *testing.B, ns string, n int) {
	createAll(b, func(create func(client.Object)) {
		for i := range n / 10 {
			name := fmt.Sprintf("service-%04d", i)
			labels := map[string]string{"app.kubernetes.io/name": name, "app.kubernetes.io/part-of": "shop", "pod-template-hash": "7d9f8c6b5d"}
			limits := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("256Mi")}
			template := corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{Containers: []corev1.Container{{
				Name: "main", Image: "registry.invalid/shop/" + name + ":1.2.3", Ports: []corev1.ContainerPort{{Name: "http", ContainerPort: 8080}, {Name: "metrics", ContainerPort: 9090}},
				Env:       []corev1.EnvVar{{Name: "ONE", Value: "a value of ordinary length"}, {Name: "TWO", Value: "another value of ordinary length"}},
				Resources: corev1.ResourceRequirements{Requests: limits, Limits: limits},
			}}}}
			owned := func(kind, name string) []metav1.OwnerReference {
				return []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: name, UID: "0", Controller: ptr(true)}}
			}
			selector := &metav1.LabelSelector{MatchLabels: labels}
			create(&appsv1.Deployment{ObjectMeta: named(ns, name), Spec: appsv1.DeploymentSpec{Selector: selector, Template: template}})
			const hash = "-7d9f8c6b5d"
			set := &appsv1.ReplicaSet{ObjectMeta: named(ns, name+hash), Spec: appsv1.ReplicaSetSpec{Selector: selector, Template: template}}
			set.OwnerReferences = owned("Deployment", name)
			create(set)
			create(&corev1.Service{ObjectMeta: named(ns, name), Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app.kubernetes.io/name": name}, Ports: []corev1.ServicePort{{Port: 80}}}})
			for j := range 10 {
				pod := &corev1.Pod{ObjectMeta: named(ns, fmt.Sprintf("%s%s-%05d", name, hash, j)), Spec: template.Spec}
				pod.Labels, pod.OwnerReferences = labels, owned("ReplicaSet", name+hash)
				create(pod)
			}
		}
	})
}
