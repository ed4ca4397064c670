package replica_test

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	typed "k8s.io/client-go/kubernetes/typed/coordination/v1"

	"github.com/weirmesh/weir/internal/kube/replica"
)

// leases is an API server that has one Lease.
type leases struct {
	typed.LeaseInterface
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
}

func (l *leases) Leases(string) typed.LeaseInterface { return l }

func (l *leases) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease == nil {
		return nil, apierrors.NewNotFound(coordinationv1.Resource("leases"), "weir")
	}
	return l.lease.DeepCopy(), nil
}

func (l *leases) Create(_ context.Context, lease *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.lease != nil {
		return nil, apierrors.NewAlreadyExists(coordinationv1.Resource("leases"), "weir")
	}
	return l.put(lease), nil
}

func (l *leases) Update(_ context.Context, lease *coordinationv1.Lease, _ metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if lease.ResourceVersion != l.lease.ResourceVersion {
		return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), "weir", nil)
	}
	return l.put(lease), nil
}

func (l *leases) put(lease *coordinationv1.Lease) *coordinationv1.Lease {
	l.version++
	l.lease = lease.DeepCopy()
	l.lease.ResourceVersion = strconv.Itoa(l.version)
	return l.lease.DeepCopy()
}

// candidate is a replica that stands for election until it is stopped.
type candidate struct {
	led   chan struct{} // received from when it leads
	leads atomic.Int32
	stop  func()
}

func stand(t *testing.T, leases *leases, name string) *candidate {
	t.Helper()
	c := &candidate{led: make(chan struct{}, 16)}
	l := &replica.Lease{
		Leases: leases, Namespace: "weir-system", Name: "weir", Identity: name, Logger: discard,
		Duration: time.Minute, Renew: 30 * time.Second, Retry: 10 * time.Millisecond,
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- l.Run(ctx, func(ctx context.Context) {
			c.leads.Add(1)
			c.led <- struct{}{}
			<-ctx.Done()
			c.leads.Add(-1)
		})
	}()
	stopped := false
	c.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := wait(t, ended, "the end of "+name); err != nil {
			t.Error(err)
		}
		if c.leads.Load() != 0 {
			t.Errorf("%s leads after its end", name)
		}
	}
	t.Cleanup(c.stop)
	return c
}

func TestLeaseGoesToTheNextReplicaAtOnceWhenTheLeaderEnds(t *testing.T) {
	leases := &leases{}
	first := stand(t, leases, "first")
	wait(t, first.led, "the first election")
	second := stand(t, leases, "second")
	if second.leads.Load() != 0 {
		t.Error("two lead")
	}
	first.stop() // the lease lasts a minute, which nobody waits for
	wait(t, second.led, "the second election")
	second.stop()
	lease, err := leases.Get(t.Context(), "weir", metav1.GetOptions{})
	if err != nil || lease.Spec.HolderIdentity != nil && *lease.Spec.HolderIdentity != "" {
		t.Errorf("%v, held by %v: want the lease given back", err, lease.Spec.HolderIdentity)
	}
}

func TestReplicaThatEndsBeforeItIsElectedDoesNotLead(t *testing.T) {
	leases := &leases{}
	first := stand(t, leases, "first")
	wait(t, first.led, "the first election")
	for range 20 {
		stand(t, leases, "second").stop()
	}
}

func TestReplicaThatEndsAsItIsElectedGivesTheLeaseBack(t *testing.T) {
	for range 50 {
		leases := &leases{}
		stand(t, leases, "first").stop()
		second := stand(t, leases, "second")
		wait(t, second.led, "the election")
		second.stop()
	}
}
