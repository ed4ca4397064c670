package balancer

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/weirmesh/weir/test/cluster/apiserver"
	"github.com/weirmesh/weir/test/cluster/components"
)

// machine remembers the addresses that it was made to own.
type machine struct {
	mu    sync.Mutex
	owned map[netip.Addr]bool
}

func (m *machine) set(a netip.Addr, owned bool) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.owned[a] == owned {
		return fmt.Errorf("%s: owned %t already", a, owned)
	}
	m.owned[a] = owned
	return nil
}

func (m *machine) owns(a string) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.owned[netip.MustParseAddr(a)]
}

func TestAddressesComeAndGoWithTheServices(t *testing.T) {
	if testing.Short() {
		t.Skip("the tests on real pods have addresses by it")
	}
	defer goleak.VerifyNone(t)
	server, err := apiserver.Start(t.Context(), apiserver.Options{Cache: components.Cache{Log: os.Stderr}})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Stop()
	config, err := clientcmd.BuildConfigFromFlags("", server.Kubeconfig)
	if err != nil {
		t.Fatal(err)
	}
	client := kubernetes.NewForConfigOrDie(config)
	ctx, stop := context.WithCancel(t.Context())
	m := &machine{owned: make(map[netip.Addr]bool)}
	ended := make(chan error, 1)
	go func() {
		ended <- Run(ctx, Options{
			Config: config, Pool: pool, Log: slog.New(slog.DiscardHandler),
			Own:    func(a netip.Addr) error { return m.set(a, true) },
			Disown: func(a netip.Addr) error { return m.set(a, false) },
		})
	}()
	defer func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()

	services := client.CoreV1().Services("default")
	create := func(name, asks string) {
		t.Helper()
		_, err := services.Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: corev1.ServiceSpec{
				Type: corev1.ServiceTypeLoadBalancer, LoadBalancerIP: asks, Ports: []corev1.ServicePort{{Port: 80}},
			},
		}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
	}
	has := func(name, address string) func() error {
		return func() error {
			s, err := services.Get(t.Context(), name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if ingress := s.Status.LoadBalancer.Ingress; len(ingress) != 1 || ingress[0].IP != address || *ingress[0].IPMode != corev1.LoadBalancerIPModeVIP || !m.owns(address) {
				return fmt.Errorf("Service %s has %v, want %s; it is the machine's: %t", name, ingress, address, m.owns(address))
			}
			return nil
		}
	}
	told := func(name, reason string) func() error {
		return func() error {
			events, err := client.CoreV1().Events("default").List(t.Context(), metav1.ListOptions{FieldSelector: "involvedObject.name=" + name + ",reason=" + reason})
			if err == nil && len(events.Items) != 1 {
				err = fmt.Errorf("%d events %s about Service %s", len(events.Items), reason, name)
			}
			return err
		}
	}
	create("a", "192.0.2.5")
	eventually(t, has("a", "192.0.2.5"))
	eventually(t, told("a", reasonAssigned))
	create("b", "192.0.2.5")
	eventually(t, told("b", reasonTaken))
	create("c", "192.0.2.200")
	eventually(t, told("c", reasonNotInPool))
	create("d", "")
	eventually(t, has("d", "192.0.2.1"))
	if err := services.Delete(t.Context(), "a", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, has("b", "192.0.2.5"))
	if err := services.Delete(t.Context(), "d", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		if m.owns("192.0.2.1") {
			return fmt.Errorf("the machine still owns the address of a Service that is gone")
		}
		return nil
	})
}

func eventually(t *testing.T, check func() error) {
	t.Helper()
	var err error
	for range 600 {
		if err = check(); err == nil {
			return
		}
		time.Sleep(50 * time.Millisecond)
	}
	t.Fatal(err)
}
