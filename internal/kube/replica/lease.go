package replica

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	v1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

// Leases are the leases of an API server.
func Leases(config *rest.Config) (v1.LeasesGetter, error) { return v1.NewForConfig(config) }

// Lease elects one of several replicas by a Lease of the API server.
type Lease struct {
	Leases v1.LeasesGetter
	// Namespace and Name are the Lease's, Identity this replica's in it.
	Namespace, Name, Identity string
	// Duration is how long the others wait for a silent leader, Renew how long the leader tries to renew before it
	// gives up, Retry the pause between attempts; zero means 15 s, 10 s and 2 s.
	Duration, Renew, Retry time.Duration
	Logger                 *slog.Logger
	// Leader, if set, is called with the leader's identity when that changes.
	Leader func(identity string)
}

// Run calls lead each time this replica is elected, until ctx ends, which is no error. The context of lead ends with ctx, or when the lease is lost:
// it must return soon then. Only after it has, the lease is given back, so that another replica need not wait.
func (l *Lease) Run(ctx context.Context, lead func(context.Context)) error {
	for ctx.Err() == nil {
		if err := l.term(ctx, lead); err != nil {
			return fmt.Errorf("lease %s/%s: %w", l.Namespace, l.Name, err)
		}
		select {
		case <-ctx.Done():
		case <-time.After(l.retry()): // a lost lease is not asked for again at once
		}
	}
	return nil
}

func (l *Lease) retry() time.Duration { return orDefault(l.Retry, 2*time.Second) }

// term stands for election once, and leads if elected.
func (l *Lease) term(ctx context.Context, lead func(context.Context)) error {
	held, release := context.WithCancel(context.WithoutCancel(ctx)) // outlives lead
	defer release()
	t := &term{release: release, ended: make(chan struct{})}
	elector, err := leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Name: l.Name,
		Lock: &resourcelock.LeaseLock{
			LeaseMeta:  metav1.ObjectMeta{Namespace: l.Namespace, Name: l.Name},
			Client:     l.Leases,
			LockConfig: resourcelock.ResourceLockConfig{Identity: l.Identity},
		},
		LeaseDuration: orDefault(l.Duration, 15*time.Second), RenewDeadline: orDefault(l.Renew, 10*time.Second), RetryPeriod: l.retry(),
		ReleaseOnCancel: true,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(holds context.Context) {
				if t.begin() {
					defer t.end()
					leading, stop := context.WithCancel(ctx)
					defer stop()
					defer context.AfterFunc(holds, stop)()
					l.Logger.Info("leading", "lease", l.Namespace+"/"+l.Name, "identity", l.Identity)
					lead(leading)
				}
			},
			OnStoppedLeading: func() {},
			OnNewLeader: func(identity string) {
				if l.Leader != nil {
					l.Leader(identity)
				}
			},
		},
	})
	if err != nil {
		return err
	}
	defer context.AfterFunc(ctx, t.withdraw)()
	elector.Run(held)
	if t.over() {
		l.Logger.Info("not leading any more", "lease", l.Namespace+"/"+l.Name, "identity", l.Identity)
	}
	return nil
}

// term is one candidature, from the election on. Whether lead runs is decided in one place, because the elector starts
// it in a goroutine that it does not wait for.
type term struct {
	release context.CancelFunc // ends the elector, which gives the lease back
	ended   chan struct{}      // closed when lead has returned

	mu             sync.Mutex
	leads, tooLate bool
}

// begin reports whether lead may be called.
func (t *term) begin() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.leads = !t.tooLate
	return t.leads
}

// end is called when lead has returned.
func (t *term) end() {
	close(t.ended)
	t.release()
}

// withdraw ends a candidature that has not succeeded; lead ends one that has.
func (t *term) withdraw() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.tooLate = true
	if !t.leads {
		t.release()
	}
}

// over waits for lead, if it was called, and reports whether it was.
func (t *term) over() bool {
	t.withdraw()
	t.mu.Lock()
	led := t.leads
	t.mu.Unlock()
	if led {
		<-t.ended
	}
	return led
}

func orDefault(d, def time.Duration) time.Duration {
	if d == 0 {
		return def
	}
	return d
}
