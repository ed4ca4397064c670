// Package balancer gives Services of type LoadBalancer their addresses, as a cloud's controller would: it decides which, writes
// them to the Services' statuses, and has its caller make the machine own them. It carries no traffic: that is kube-proxy's part,
// whose rules take packets for the addresses of a status to the Service's endpoints. For package node.
package balancer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	listers "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
)

const (
	// retryAfter is how long a failed attempt is left alone.
	retryAfter = time.Second
	// writeTimeout bounds one request to the API server.
	writeTimeout = 10 * time.Second
	component    = "node-balancer"
)

// Options of a balancer.
type Options struct {
	Config *rest.Config
	Pool   Pool
	// Own makes the machine answer for an address, Disown ends that.
	Own, Disown func(netip.Addr) error
	Log         *slog.Logger
}

type balancer struct {
	Options
	client   kubernetes.Interface
	services listers.ServiceLister
	last     netip.Addr               // given in turn
	owned    map[netip.Addr]bool      // by the machine
	known    map[types.UID]*knowledge // by Service
}

// knowledge is what was done about a Service, which the cache may not show yet.
type knowledge struct {
	address netip.Addr // in its status
	told    string     // the last event's message
}

// Run until ctx ends.
func Run(ctx context.Context, o Options) error {
	client, err := kubernetes.NewForConfig(o.Config)
	if err != nil {
		return err
	}
	factory := informers.NewSharedInformerFactory(client, 0)
	services := factory.Core().V1().Services()
	changed := make(chan struct{}, 1)
	notify := func() {
		select {
		case changed <- struct{}{}:
		default:
		}
	}
	if _, err := services.Informer().AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { notify() }, UpdateFunc: func(any, any) { notify() }, DeleteFunc: func(any) { notify() },
	}); err != nil {
		return err
	}
	b := &balancer{Options: o, client: client, services: services.Lister(), owned: make(map[netip.Addr]bool), known: make(map[types.UID]*knowledge)}
	ctx, stop := context.WithCancel(ctx)
	factory.Start(ctx.Done())
	defer factory.Shutdown() // after stop
	defer stop()
	if !cache.WaitForCacheSync(ctx.Done(), services.Informer().HasSynced) {
		return ctx.Err()
	}
	return b.loop(ctx, changed)
}

// loop looks at all Services whenever one has changed; there are few.
func (b *balancer) loop(ctx context.Context, changed <-chan struct{}) error {
	retry := time.NewTimer(0)
	defer retry.Stop()
	for {
		select {
		case <-changed:
		case <-retry.C:
		case <-ctx.Done():
			return nil
		}
		if err := b.reconcile(ctx); err != nil && ctx.Err() == nil {
			b.Log.Error("will be tried again", "error", err)
			retry.Reset(retryAfter)
		}
	}
}

func (b *balancer) reconcile(ctx context.Context) error {
	services, err := b.services.List(labels.Everything())
	if err != nil {
		return err
	}
	var decisions []decision
	decisions, b.last = b.Pool.assign(services, b.has, b.last)
	used := make(map[netip.Addr]bool)
	var errs []error
	for _, d := range decisions {
		if d.address.IsValid() {
			used[d.address] = true
		}
		errs = append(errs, b.apply(ctx, d))
	}
	for a := range b.owned {
		if !used[a] {
			if err := b.Disown(a); err != nil {
				errs = append(errs, fmt.Errorf("give up %s: %w", a, err))
				continue
			}
			delete(b.owned, a)
		}
	}
	b.forget(services)
	return errors.Join(errs...)
}

// has is the address that a Service has.
func (b *balancer) has(s *corev1.Service) netip.Addr {
	if k := b.known[s.UID]; k != nil && k.address.IsValid() {
		return k.address
	}
	return current(s)
}

// forget the Services that are gone.
func (b *balancer) forget(services []*corev1.Service) {
	live := make(map[types.UID]bool)
	for _, s := range services {
		live[s.UID] = true
	}
	maps.DeleteFunc(b.known, func(uid types.UID, _ *knowledge) bool { return !live[uid] })
}

// apply makes a decision so.
func (b *balancer) apply(ctx context.Context, d decision) error {
	if d.address.IsValid() && !b.owned[d.address] {
		if err := b.Own(d.address); err != nil {
			return fmt.Errorf("own %s: %w", d.address, err)
		}
		b.owned[d.address] = true
	}
	if err := b.write(ctx, d); apierrors.IsConflict(err) || apierrors.IsNotFound(err) {
		return nil // the change that is on its way brings it here again
	} else if err != nil {
		return fmt.Errorf("status of Service %s: %w", key(d.service), err)
	}
	k := b.known[d.service.UID]
	if k == nil {
		k = new(knowledge)
		b.known[d.service.UID] = k
	}
	k.address = d.address
	kind := corev1.EventTypeWarning
	if d.address.IsValid() {
		kind, d.reason, d.message = corev1.EventTypeNormal, reasonAssigned, "the address is "+d.address.String()
	}
	if k.told == d.message {
		return nil
	}
	b.Log.Info("decided", "service", key(d.service), "reason", d.reason, "message", d.message)
	if err := b.event(ctx, d.service, kind, d.reason, d.message); err != nil {
		return fmt.Errorf("event of Service %s: %w", key(d.service), err)
	}
	k.told = d.message
	return nil
}

// write the Service's status, unless it says so already.
func (b *balancer) write(ctx context.Context, d decision) error {
	if current(d.service) == d.address && len(d.service.Status.LoadBalancer.Ingress) <= 1 {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	s := d.service.DeepCopy()
	s.Status.LoadBalancer = corev1.LoadBalancerStatus{}
	if d.address.IsValid() {
		mode := corev1.LoadBalancerIPModeVIP
		s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: d.address.String(), IPMode: &mode}}
	}
	_, err := b.client.CoreV1().Services(s.Namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{FieldManager: component})
	return err
}

// event about a Service. One that is gone, with its namespace, needs none.
func (b *balancer) event(ctx context.Context, s *corev1.Service, kind, reason, message string) error {
	ctx, cancel := context.WithTimeout(ctx, writeTimeout)
	defer cancel()
	now := metav1.Now()
	_, err := b.client.CoreV1().Events(s.Namespace).Create(ctx, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{GenerateName: s.Name + "-", Namespace: s.Namespace},
		InvolvedObject: corev1.ObjectReference{
			APIVersion: "v1", Kind: "Service", Namespace: s.Namespace, Name: s.Name, UID: s.UID, ResourceVersion: s.ResourceVersion,
		},
		Type: kind, Reason: reason, Message: message,
		Source: corev1.EventSource{Component: component}, ReportingController: component,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}, metav1.CreateOptions{FieldManager: component})
	if apierrors.IsNotFound(err) || apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
		return nil
	}
	return err
}
