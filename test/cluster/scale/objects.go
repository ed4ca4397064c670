package scale

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
	"sigs.k8s.io/yaml"

	dialect "github.com/weirmesh/weir/internal/dialect/gateway"
)

const (
	system  = "weir-system"
	gateway = "edge"
	class   = "weir"
	// teams is how many namespaces the routes and Services are spread over, one after the other.
	teams = 20
	// routesOf is how many routes lead to one Service.
	routesOf = 5
	// creators is how many objects are created at a time.
	creators = 32

	listenPort  = 8080
	backendPort = 8000
)

func team(service int) string          { return fmt.Sprintf("team-%d", service%teams) }
func serviceName(service int) string   { return fmt.Sprintf("s%d", service) }
func routeName(route int) string       { return fmt.Sprintf("r%d", route) }
func routeHost(route int) string       { return fmt.Sprintf("r%d.example.com", route) }
func (o *Options) serviceOf(r int) int { return r / routesOf % o.Services }

// endpoint is an address of a Service; changed ones are those of fresh.
func endpoint(service, n int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 64, byte(service / 25), byte(service%25*EndpointsOf + n + 1)})
}

// fresh is an address that no Service had before.
func fresh(n int) netip.Addr { return netip.AddrFrom4([4]byte{10, 80, byte(n / 250), byte(n%250 + 1)}) }

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func ptr[T any](v T) *T { return &v }

func gatewayObject() *gatewayv1.Gateway {
	return &gatewayv1.Gateway{ObjectMeta: named(system, gateway), Spec: gatewayv1.GatewaySpec{
		GatewayClassName: class,
		Listeners: []gatewayv1.Listener{{
			Name: "http", Port: listenPort, Protocol: gatewayv1.HTTPProtocolType,
			AllowedRoutes: &gatewayv1.AllowedRoutes{Namespaces: &gatewayv1.RouteNamespaces{From: ptr(gatewayv1.NamespacesFromAll)}},
		}},
	}}
}

// route sends 90 and 10 of 100 requests for /api to two Services of its namespace, the others to one.
func (o *Options) route(i int) *gatewayv1.HTTPRoute {
	first := o.serviceOf(i)
	second := first
	if first+teams < o.Services {
		second = first + teams
	}
	to := func(service int, weight int32) gatewayv1.HTTPBackendRef {
		return gatewayv1.HTTPBackendRef{BackendRef: gatewayv1.BackendRef{Weight: ptr(weight), BackendObjectReference: gatewayv1.BackendObjectReference{
			Name: gatewayv1.ObjectName(serviceName(service)), Port: ptr(gatewayv1.PortNumber(80)),
		}}}
	}
	under := func(path string) []gatewayv1.HTTPRouteMatch {
		return []gatewayv1.HTTPRouteMatch{{Path: &gatewayv1.HTTPPathMatch{Type: ptr(gatewayv1.PathMatchPathPrefix), Value: &path}}}
	}
	return &gatewayv1.HTTPRoute{ObjectMeta: named(team(first), routeName(i)), Spec: gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{
			Name: gateway, Namespace: ptr(gatewayv1.Namespace(system)),
		}}},
		Hostnames: []gatewayv1.Hostname{gatewayv1.Hostname(routeHost(i))},
		Rules: []gatewayv1.HTTPRouteRule{
			{Matches: under("/api"), BackendRefs: []gatewayv1.HTTPBackendRef{to(first, 90), to(second, 10)}},
			{Matches: under("/"), BackendRefs: []gatewayv1.HTTPBackendRef{to(first, 1)}},
		},
	}}
}

func serviceObject(i int) *corev1.Service {
	return &corev1.Service{ObjectMeta: named(team(i), serviceName(i)), Spec: corev1.ServiceSpec{
		ClusterIP: corev1.ClusterIPNone, Ports: []corev1.ServicePort{{Name: "http", Port: 80}},
	}}
}

func sliceObject(i int) *discoveryv1.EndpointSlice {
	s := &discoveryv1.EndpointSlice{
		ObjectMeta: named(team(i), serviceName(i)), AddressType: discoveryv1.AddressTypeIPv4,
		Ports: []discoveryv1.EndpointPort{{Name: ptr("http"), Port: ptr(int32(backendPort))}},
	}
	s.Labels = map[string]string{discoveryv1.LabelServiceName: serviceName(i)}
	for n := range EndpointsOf {
		s.Endpoints = append(s.Endpoints, discoveryv1.Endpoint{
			Addresses: []string{endpoint(i, n).String()}, Conditions: discoveryv1.EndpointConditions{Ready: ptr(true)},
		})
	}
	return s
}

// create makes all objects.
func (r *run) create(ctx context.Context) error {
	if err := r.installDefinitions(ctx); err != nil {
		return err
	}
	first := []client.Object{&corev1.Namespace{ObjectMeta: named("", system)}}
	for i := range teams {
		first = append(first, &corev1.Namespace{ObjectMeta: named("", team(i))})
	}
	first = append(first,
		&gatewayv1.GatewayClass{ObjectMeta: named("", class), Spec: gatewayv1.GatewayClassSpec{ControllerName: dialect.ControllerName}},
		gatewayObject())
	for _, o := range first {
		if err := r.api.Create(ctx, o); err != nil {
			return err
		}
	}
	return r.createMany(ctx, func(yield func(client.Object) bool) {
		for i := range r.Services {
			if !yield(serviceObject(i)) || !yield(sliceObject(i)) {
				return
			}
		}
		for i := range r.Routes {
			if !yield(r.route(i)) {
				return
			}
		}
	})
}

func (r *run) createMany(ctx context.Context, objects func(func(client.Object) bool)) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	work := make(chan client.Object)
	var wait sync.WaitGroup
	for range creators {
		wait.Go(func() {
			for o := range work {
				if err := r.api.Create(ctx, o); err != nil {
					cancel(fmt.Errorf("create %T %s: %w", o, o.GetName(), err))
				}
			}
		})
	}
	objects(func(o client.Object) bool {
		select {
		case work <- o:
			return true
		case <-ctx.Done():
			return false
		}
	})
	close(work)
	wait.Wait()
	return context.Cause(ctx)
}

// installDefinitions creates those of the Gateway API and waits until they are served.
func (r *run) installDefinitions(ctx context.Context) error {
	files, err := filepath.Glob(filepath.Join(r.Source, "internal/resource/crds/*.yaml"))
	if err == nil && len(files) == 0 {
		err = fmt.Errorf("no definitions in %s", r.Source)
	}
	if err != nil {
		return err
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		crd := &apiextensionsv1.CustomResourceDefinition{}
		if err := yaml.Unmarshal(text, crd); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		if err := r.api.Create(ctx, crd); err != nil {
			return err
		}
		if err := r.await(ctx, "definition "+crd.Name, func() error { return r.served(ctx, crd) }); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) served(ctx context.Context, crd *apiextensionsv1.CustomResourceDefinition) error {
	if err := r.api.Get(ctx, client.ObjectKeyFromObject(crd), crd); err != nil {
		return err
	}
	for _, c := range crd.Status.Conditions {
		if c.Type == apiextensionsv1.Established && c.Status == apiextensionsv1.ConditionTrue {
			// What the API server tells of itself comes a little later.
			_, err := r.api.RESTMapper().RESTMapping(schema.GroupKind{Group: crd.Spec.Group, Kind: crd.Spec.Names.Kind})
			return err
		}
	}
	return errors.New("it is not established")
}
