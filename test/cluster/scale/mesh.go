package scale

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/model"
)

const (
	// podsOf is how many pods a Service of the mesh has, each with a sidecar.
	podsOf = 2
	// usesOf is to how many Services a pod connects.
	usesOf = 3
	// askers is how many pods connect to something new at a time.
	askers = 16
)

// Mesh is what was measured of the control plane of a mesh. Times are in seconds.
type Mesh struct {
	Pods, Sidecars int
	// Asked are the times from a connection's begin until the sidecar had what it needs, of destinations that were new to it,
	// Connected those until all sidecars had a first configuration, and Sent what the feed sent for both.
	Asked     []float64
	Connected float64
	Sent      Sent
	// Changes are of the readiness of one endpoint each. Served is until all sidecars had it that use the Service.
	Changes []MeshChange
	// CPU is the controller's for a change, on average.
	CPU        float64
	Controller Memory
}

// MeshChange is one: Users are the sidecars that use what changed, Told those that were sent anything.
type MeshChange struct {
	Write, Served float64
	Users, Told   int
	Sent          Sent
}

// Goals of the mesh, for 1,000 sidecars, 10,000 Services and 20,000 pods.
const (
	goalMeshMemory = 700 // MB
	goalMeshChange = 1.0 // seconds, of each
	goalMeshAsked  = 0.02
)

// sidecar is a simulated one: the real client of the feed, as a sidecar has it, without a proxy.
type sidecar struct {
	pod          int
	client       *feed.Client
	destinations *feed.Destinations
	uses         []int // Services

	mu      sync.Mutex
	config  *model.Config
	applied int
	changed chan struct{} // closed and replaced when a configuration was applied
}

func (s *sidecar) apply(c *model.Config) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.config = c
	s.applied++
	close(s.changed)
	s.changed = make(chan struct{})
	return nil
}

func (s *sidecar) state() (c *model.Config, applied int, changed <-chan struct{}) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.config, s.applied, s.changed
}

// await waits until a condition holds of the sidecar's configuration.
func (s *sidecar) await(ctx context.Context, holds func(*model.Config) bool) error {
	for {
		c, _, changed := s.state()
		if c != nil && holds(c) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func podName(i int) string { return fmt.Sprintf("p%d", i) }
func podAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 128 + byte(i>>16), byte(i >> 8), byte(i)})
}
func serviceAddress(i int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 96, 10 + byte(i>>8), byte(i)})
}

func podObject(i int) *corev1.Pod {
	always := corev1.ContainerRestartPolicyAlways
	p := &corev1.Pod{ObjectMeta: named(team(i/podsOf), podName(i)), Spec: corev1.PodSpec{
		ServiceAccountName: "default", NodeName: "node",
		InitContainers: []corev1.Container{{Name: inject.SidecarName, Image: "weir-proxy:dev", RestartPolicy: &always}},
		Containers:     []corev1.Container{{Name: "app", Image: "app", Ports: []corev1.ContainerPort{{ContainerPort: backendPort}}}},
	}}
	p.Labels = map[string]string{"app": serviceName(i / podsOf)}
	return p
}

func meshService(i int) *corev1.Service {
	return &corev1.Service{ObjectMeta: named(team(i), serviceName(i)), Spec: corev1.ServiceSpec{
		ClusterIP: serviceAddress(i).String(), Selector: map[string]string{"app": serviceName(i)},
		Ports: []corev1.ServicePort{{Name: "http", Port: 80, TargetPort: intstr.FromInt32(backendPort)}},
	}}
}

func meshSlice(i int) *discoveryv1.EndpointSlice {
	s := sliceObject(i)
	s.Endpoints = nil
	for n := range podsOf {
		pod := i*podsOf + n
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{podAddress(pod).String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)},
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Namespace: s.Namespace, Name: podName(pod)},
		})
	}
	return s
}

// mesh measures the control plane of a mesh.
func (r *run) mesh() []step {
	r.result.Mesh = &Mesh{Pods: r.Services * podsOf, Sidecars: r.Sidecars}
	return []step{
		{"starting an API server", r.startServer},
		{"creating the objects", r.createMesh},
		{"starting the controller", r.startController},
		{"connecting sidecars", r.startSidecars},
		{"asking for destinations", r.askDestinations},
		{"changing endpoints", r.changeMesh},
		{"looking at memory", r.meshMemory},
	}
}

func (r *run) createMesh(ctx context.Context) error {
	if err := r.installDefinitions(ctx); err != nil {
		return err
	}
	objects := []client.Object{&corev1.Namespace{ObjectMeta: named("", system)}}
	for i := range teams {
		ns := &corev1.Namespace{ObjectMeta: named("", team(i))}
		ns.Labels = map[string]string{inject.Label: inject.Enabled}
		objects = append(objects, ns, &corev1.ServiceAccount{ObjectMeta: named(team(i), "default")})
	}
	for _, o := range objects {
		if err := r.api.Create(ctx, o); err != nil {
			return err
		}
	}
	r.pods = make([]*corev1.Pod, r.Services*podsOf)
	if err := r.createMany(ctx, func(yield func(client.Object) bool) {
		for i := range r.pods {
			if r.pods[i] = podObject(i); !yield(r.pods[i]) {
				return
			}
		}
		for i := range r.Services {
			if !yield(meshService(i)) || !yield(meshSlice(i)) {
				return
			}
		}
	}); err != nil {
		return err
	}
	return r.each(ctx, len(r.pods), creators, func(ctx context.Context, i int) error {
		p := r.pods[i].DeepCopy()
		p.Status.Phase = corev1.PodRunning
		p.Status.PodIP = podAddress(i).String()
		p.Status.PodIPs = []corev1.PodIP{{IP: p.Status.PodIP}}
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
		return r.api.Status().Update(ctx, p)
	})
}

// each calls f for each number below n, so many at a time, until one fails.
func (r *run) each(ctx context.Context, n, parallel int, f func(context.Context, int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan int)
	var wait sync.WaitGroup
	for range parallel {
		wait.Go(func() {
			for i := range work {
				if err := f(ctx, i); err != nil {
					cancel(fmt.Errorf("number %d: %w", i, err))
				}
			}
		})
	}
	for i := range n {
		select {
		case work <- i:
			continue
		case <-ctx.Done():
		}
		break
	}
	close(work)
	wait.Wait()
	return context.Cause(ctx)
}

// startSidecars plays the pods' sidecars, and waits until each has a configuration.
func (r *run) startSidecars(ctx context.Context) error {
	ca := &corev1.ConfigMap{}
	if err := r.await(ctx, "the authority in a namespace", func() error {
		return r.api.Get(ctx, client.ObjectKey{Namespace: team(0), Name: inject.CAName}, ca)
	}); err != nil {
		return err
	}
	if err := os.WriteFile(r.path("ca.crt"), []byte(ca.Data[inject.CAKey]), 0o600); err != nil {
		return err
	}
	r.sidecars = make([]*sidecar, r.Sidecars)
	running, cancel := context.WithCancel(context.Background())
	r.stopSidecars = cancel
	began := time.Now()
	if err := r.each(ctx, r.Sidecars, askers, func(ctx context.Context, i int) error {
		pod := i * (len(r.pods) / r.Sidecars)
		token := filepath.Join(r.dir, "token-"+podName(pod))
		request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
			Audiences: []string{infra.Audience}, ExpirationSeconds: ptr(int64(3600)),
			BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: podName(pod), UID: r.pods[pod].UID},
		}}
		account := &corev1.ServiceAccount{ObjectMeta: named(r.pods[pod].Namespace, "default")}
		if err := r.api.SubResource("token").Create(ctx, account, request); err != nil {
			return fmt.Errorf("token: %w", err)
		}
		if err := os.WriteFile(token, []byte(request.Status.Token), 0o600); err != nil {
			return err
		}
		s := &sidecar{pod: pod, destinations: &feed.Destinations{}, changed: make(chan struct{})}
		s.client = &feed.Client{
			Address: fmt.Sprintf("localhost:%d", feedPort), CAFile: r.path("ca.crt"), TokenFile: token, Logger: slog.New(slog.DiscardHandler),
			Owner: model.WorkloadOwner(r.pods[pod].Namespace, podName(pod)), Destinations: s.destinations,
		}
		for k := range usesOf {
			s.uses = append(s.uses, (i*7+k*131)%r.Services)
		}
		slices.Sort(s.uses)
		s.uses = slices.Compact(s.uses)
		r.sidecars[i] = s
		r.running.Go(func() { s.client.Run(running, s.apply) }) // it ends with running, and fails only without its options
		ctx, cancel := context.WithTimeout(ctx, patience)
		defer cancel()
		return s.await(ctx, func(*model.Config) bool { return true })
	}); err != nil {
		return err
	}
	r.result.Mesh.Connected = time.Since(began).Seconds()
	return nil
}

// serves reports whether a configuration has an address as an endpoint.
func serves(c *model.Config, address netip.Addr) bool {
	want := netip.AddrPortFrom(address, backendPort).String()
	for i := range c.Services {
		if !c.Services[i].Meant && slices.ContainsFunc(c.Services[i].Endpoints, func(e model.Endpoint) bool { return e.Address == want }) {
			return true
		}
	}
	return false
}

// askDestinations has each sidecar ask for what its pod uses, one after the other.
func (r *run) askDestinations(ctx context.Context) error {
	var mu sync.Mutex
	err := r.each(ctx, len(r.sidecars), 1, func(ctx context.Context, i int) error {
		s := r.sidecars[i]
		for _, service := range s.uses {
			began := time.Now()
			if err := s.destinations.Find(ctx, netip.AddrPortFrom(serviceAddress(service), 80)); err != nil {
				return err
			}
			took := time.Since(began).Seconds()
			if c, _, _ := s.state(); !serves(c, podAddress(service*podsOf)) {
				return fmt.Errorf("pod %s has no endpoint of Service %s", podName(s.pod), serviceName(service))
			}
			mu.Lock()
			r.result.Mesh.Asked = append(r.result.Mesh.Asked, took)
			mu.Unlock()
		}
		return nil
	})
	if err != nil {
		return err
	}
	r.result.Mesh.Sent, err = r.sent(ctx)
	return err
}

// changeMesh changes the readiness of an endpoint of one Service after the other, each of which sidecars use.
func (r *run) changeMesh(ctx context.Context) error {
	m := r.result.Mesh
	before, err := processorTime(r.controller)
	if err != nil {
		return err
	}
	for i := range r.Changes {
		c, err := r.changeMeshOne(ctx, r.sidecars[i*7919%len(r.sidecars)].uses[0])
		if err != nil {
			return fmt.Errorf("change %d: %w", i, err)
		}
		m.Changes = append(m.Changes, c)
		if r.Limit > 0 && time.Since(r.began) > r.Limit {
			r.say("time is up after %d of %d changes", len(m.Changes), r.Changes)
			break
		}
	}
	after, err := processorTime(r.controller)
	m.CPU = (after - before) / float64(len(m.Changes))
	return err
}

func (r *run) changeMeshOne(ctx context.Context, service int) (c MeshChange, err error) {
	sleep(ctx, r.Pause)
	ctx, cancel := context.WithTimeout(ctx, changeLimit)
	defer cancel()
	slice := &discoveryv1.EndpointSlice{}
	if err := r.api.Get(ctx, client.ObjectKey{Namespace: team(service), Name: serviceName(service)}, slice); err != nil {
		return c, err
	}
	ready := !*slice.Endpoints[1].Conditions.Ready
	slice.Endpoints[1].Conditions.Ready = &ready
	applied := make([]int, len(r.sidecars))
	for i, s := range r.sidecars {
		_, applied[i], _ = s.state()
	}
	sent, err := r.sent(ctx)
	if err != nil {
		return c, err
	}
	began := time.Now()
	if err := r.api.Update(ctx, slice); err != nil {
		return c, err
	}
	c.Write = time.Since(began).Seconds()
	address := podAddress(service*podsOf + 1)
	for _, s := range r.sidecars {
		if !slices.Contains(s.uses, service) {
			continue
		}
		c.Users++
		if err := s.await(ctx, func(c *model.Config) bool { return serves(c, address) == ready }); err != nil {
			return c, fmt.Errorf("pod %s does not hear of Service %s: %w", podName(s.pod), serviceName(service), err)
		}
	}
	c.Served = time.Since(began).Seconds()
	sleep(ctx, r.Pause) // for those that should hear nothing
	for i, s := range r.sidecars {
		if _, now, _ := s.state(); now != applied[i] {
			c.Told++
		}
	}
	after, err := r.sent(ctx)
	c.Sent = Sent{after.Bytes - sent.Bytes, after.Parts - sent.Parts, after.Responses - sent.Responses}
	return c, err
}

func (r *run) meshMemory(ctx context.Context) (err error) {
	sleep(ctx, r.Rest)
	r.result.Mesh.Controller, err = memoryOf(r.controller)
	return errors.Join(err, ended(r.controller))
}
