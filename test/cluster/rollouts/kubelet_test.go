package rollouts

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	toolscache "k8s.io/client-go/tools/cache"

	"github.com/weirmesh/weir/internal/kube"
)

const (
	nodeName = "node"
	// startTime is how long after it was made a pod is ready, or up to a second less, as times of objects are whole seconds.
	startTime = 2 * time.Second
	// brokenImage is one of which no container becomes ready.
	brokenImage = "broken"
)

// kubelet is the scheduler and the kubelet of all pods, which run nothing.
type kubelet struct {
	pods      cache.Cache
	queue     workqueue.TypedRateLimitingInterface[types.NamespacedName]
	addresses atomic.Uint32
	cancel    context.CancelFunc
	running   sync.WaitGroup
}

// startKubelet starts it, until stop.
func startKubelet(ctx context.Context) (*kubelet, error) {
	ctx, cancel := context.WithCancel(ctx)
	pods, err := cache.New(config(), cache.Options{Scheme: kube.Scheme()})
	if err != nil {
		cancel()
		return nil, err
	}
	k := &kubelet{pods: pods, cancel: cancel, queue: workqueue.NewTypedRateLimitingQueue(workqueue.NewTypedItemExponentialFailureRateLimiter[types.NamespacedName](10*time.Millisecond, time.Second))}
	k.running.Go(func() { _ = pods.Start(ctx) })
	informer, err := pods.GetInformer(ctx, &corev1.Pod{})
	if err == nil {
		add := func(o any) {
			if p, ok := o.(*corev1.Pod); ok {
				k.queue.Add(client.ObjectKeyFromObject(p))
			}
		}
		_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: add, UpdateFunc: func(_, o any) { add(o) }})
	}
	if err != nil {
		k.stop()
		return nil, err
	}
	for range 4 {
		k.running.Go(func() {
			for {
				name, end := k.queue.Get()
				if end {
					return
				}
				if err := k.tend(ctx, name); err == nil || ctx.Err() != nil {
					k.queue.Forget(name)
				} else {
					if !apierrors.IsConflict(err) {
						fmt.Fprintln(os.Stderr, "kubelet:", err)
					}
					k.queue.AddRateLimited(name)
				}
				k.queue.Done(name)
			}
		})
	}
	return k, nil
}

func (k *kubelet) stop() {
	k.cancel()
	k.queue.ShutDown()
	k.running.Wait()
}

// tend does what a pod needs next.
func (k *kubelet) tend(ctx context.Context, name types.NamespacedName) error {
	p := &corev1.Pod{}
	if err := k.pods.Get(ctx, name, p); err != nil {
		return client.IgnoreNotFound(err)
	}
	p = p.DeepCopy()
	switch {
	case p.DeletionTimestamp != nil:
		return client.IgnoreNotFound(admin.Delete(ctx, p, client.GracePeriodSeconds(0), client.Preconditions{UID: &p.UID}))
	case p.Spec.NodeName == "":
		err := admin.SubResource("binding").Create(ctx, p, &corev1.Binding{Target: corev1.ObjectReference{Kind: "Node", Name: nodeName}})
		if apierrors.IsConflict(err) { // the cache is behind
			return nil
		}
		return client.IgnoreNotFound(err)
	case p.Status.Phase != corev1.PodRunning && time.Since(p.CreationTimestamp.Time) < startTime:
		k.queue.AddAfter(name, startTime-time.Since(p.CreationTimestamp.Time))
	case p.Status.Phase != corev1.PodRunning && p.Spec.Containers[0].Image != brokenImage:
		n := k.addresses.Add(1)
		ip := fmt.Sprintf("10.%d.%d.%d", n>>16&255, n>>8&255, n&255)
		now := metav1.Now()
		p.Status = corev1.PodStatus{Phase: corev1.PodRunning, PodIP: ip, PodIPs: []corev1.PodIP{{IP: ip}}, StartTime: &now, Conditions: []corev1.PodCondition{
			{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: now},
		}}
		return client.IgnoreNotFound(admin.Status().Update(ctx, p))
	}
	return nil
}
