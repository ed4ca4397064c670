package kube

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/resource"
)

// watched is a source that runs until the test ends.
type watched struct {
	*kube.Source
	t *testing.T

	mu   sync.Mutex
	last *resource.Set
	sets []*resource.Set
	told func(*resource.Set) // of each set, if it is not nil
}

// watch runs a source with a client's permissions; before is done with it first.
func watch(t *testing.T, c *kube.Client, before ...func(*kube.Source)) *watched {
	t.Helper()
	return watchScope(t, c, kube.Scope{}, before...)
}

// watchScope runs a source of some namespaces.
func watchScope(t *testing.T, c *kube.Client, scope kube.Scope, before ...func(*kube.Source)) *watched {
	t.Helper()
	return watchKinds(t, c, kinds, scope, before...)
}

// watchKinds runs a source of some kinds.
func watchKinds(t *testing.T, c *kube.Client, of resource.Kinds, scope kube.Scope, before ...func(*kube.Source)) *watched {
	t.Helper()
	s := &watched{Source: kube.NewSource(c, kube.SourceOptions{Kinds: of, Controller: controller, Scope: scope, Look: 200 * time.Millisecond, Logger: logger(t)}), t: t}
	for _, f := range before {
		f(s.Source)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- s.Run(ctx, func(set *resource.Set) {
			s.mu.Lock()
			defer s.mu.Unlock()
			s.last = set
			s.sets = append(s.sets, set)
			if s.told != nil {
				s.told(set)
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("the source ended: %v", err)
		}
	})
	s.until("a first set", func(*resource.Set) bool { return true })
	return s
}

// until waits for a set of which something holds.
func (s *watched) until(what string, holds func(*resource.Set) bool) *resource.Set {
	s.t.Helper()
	var found *resource.Set
	err := within(s.t.Context(), func() error {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.last == nil || !holds(s.last) {
			return fmt.Errorf("no set with %s in time", what)
		}
		found = s.last
		return nil
	})
	if err != nil {
		if s.last != nil {
			s.t.Logf("findings of the last: %v", s.last.Findings)
		}
		s.t.Fatal(err)
	}
	return found
}

func (s *watched) all() []*resource.Set {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sets
}

// namespace makes one for the test.
func namespace(t *testing.T) string {
	t.Helper()
	ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"}}
	create(t, ns)
	return ns.Name
}

// create creates an object and deletes it when the test ends.
func create(t *testing.T, all ...client.Object) {
	t.Helper()
	for _, o := range all {
		if err := objects.Create(t.Context(), o); err != nil {
			t.Fatalf("%T %s: %v", o, o.GetName(), err)
		}
		t.Cleanup(func() {
			if err := client.IgnoreNotFound(objects.Delete(context.Background(), o)); err != nil {
				t.Errorf("%T %s: %v", o, o.GetName(), err)
			}
		})
	}
}

func named(namespace, name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: namespace, Name: name}
}

func ptr[T any](v T) *T { return &v }

// class makes a GatewayClass of ours for the test.
func class(t *testing.T) *gatewayv1.GatewayClass {
	t.Helper()
	c := &gatewayv1.GatewayClass{ObjectMeta: metav1.ObjectMeta{GenerateName: "class-"}, Spec: gatewayv1.GatewayClassSpec{ControllerName: controller}}
	create(t, c)
	return c
}

func gatewayOf(c *gatewayv1.GatewayClass, namespace, name string, certificates ...string) *gatewayv1.Gateway {
	l := gatewayv1.Listener{Name: "web", Port: 80, Protocol: gatewayv1.HTTPProtocolType}
	if len(certificates) > 0 {
		l.Port, l.Protocol, l.TLS = 443, gatewayv1.HTTPSProtocolType, &gatewayv1.ListenerTLSConfig{}
		for _, name := range certificates {
			l.TLS.CertificateRefs = append(l.TLS.CertificateRefs, gatewayv1.SecretObjectReference{Name: gatewayv1.ObjectName(name)})
		}
	}
	return &gatewayv1.Gateway{ObjectMeta: named(namespace, name), Spec: gatewayv1.GatewaySpec{
		GatewayClassName: gatewayv1.ObjectName(c.Name), Listeners: []gatewayv1.Listener{l},
	}}
}

func routeTo(namespace, name, gateway string) *gatewayv1.HTTPRoute {
	return &gatewayv1.HTTPRoute{ObjectMeta: named(namespace, name), Spec: gatewayv1.HTTPRouteSpec{
		CommonRouteSpec: gatewayv1.CommonRouteSpec{ParentRefs: []gatewayv1.ParentReference{{Name: gatewayv1.ObjectName(gateway)}}},
	}}
}

// logger tells of what is logged if the test fails.
func logger(t *testing.T) *slog.Logger {
	var buffer lines
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(buffer.String())
		}
	})
	return slog.New(slog.NewTextHandler(&buffer, nil))
}

type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}
