package replica_test

import (
	"context"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/peertest"
)

// remembering is a client that decodes a Secret once: in three days it is asked for many thousand times.
type remembering struct {
	client.Client
	mu   sync.Mutex
	have map[client.ObjectKey]*corev1.Secret
}

func (r *remembering) Get(ctx context.Context, key client.ObjectKey, into client.Object, o ...client.GetOption) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	secret, ok := into.(*corev1.Secret)
	if known := r.have[key]; ok && known != nil {
		known.DeepCopyInto(secret)
		return nil
	}
	err := r.Client.Get(ctx, key, into, o...)
	if ok && err == nil {
		r.have[key] = secret.DeepCopy()
	}
	return err
}

func (r *remembering) Create(ctx context.Context, o client.Object, opts ...client.CreateOption) error {
	defer r.forget(o)
	return r.Client.Create(ctx, o, opts...)
}

func (r *remembering) Update(ctx context.Context, o client.Object, opts ...client.UpdateOption) error {
	defer r.forget(o)
	return r.Client.Update(ctx, o, opts...)
}

func (r *remembering) forget(o client.Object) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.have, client.ObjectKeyFromObject(o))
}

// TestTheUsersAuthorityIsFollowed by two replicas: it signs from the beginning, and when it was replaced, after all trust
// the next; what is wrong with it takes nothing away. The feed's authority has no part in it.
func TestTheUsersAuthorityIsFollowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		root := func() map[string][]byte {
			a, err := identity.New(time.Now())
			if err != nil {
				t.Fatal(err)
			}
			data, err := a.Secret()
			if err != nil {
				t.Fatal(err)
			}
			return data
		}
		first, second := root(), root()
		mine := &corev1.Secret{Type: corev1.SecretTypeTLS, Data: map[string][]byte{}}
		mine.Namespace, mine.Name = "weir-system", "mine"
		for key, value := range first {
			mine.Data[key] = value
		}
		delete(mine.Data, "ca.crt")
		c := &remembering{Client: fake.NewClientBuilder().WithObjects(mine).Build(), have: map[client.ObjectKey]*corev1.Secret{}}
		log := &peertest.Log{}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		run := func() *replica.Authority {
			a := &replica.Authority{Client: c, Namespace: "weir-system", Name: replica.IdentityName, Given: "mine", Sample: "spiffe://td/ns/a/sa/b", Logger: slog.New(slog.NewTextHandler(log, nil))}
			go func() { _ = a.Run(ctx) }()
			return a
		}
		one, other := run(), run()
		both := func(what string, want ...map[string][]byte) {
			t.Helper()
			time.Sleep(2 * time.Minute)
			var bundle []byte
			for _, w := range want {
				bundle = append(bundle, w["ca.crt"]...)
			}
			for _, a := range []*replica.Authority{one, other} {
				if a.Bundle() != string(bundle) {
					t.Errorf("%s: the bundle is %q, want %d roots\n%s", what, a.Bundle(), len(want), log)
				}
			}
		}
		both("without ca.crt nothing signs")
		if text := log.String(); !strings.Contains(text, "weir-system/mine") || !strings.Contains(text, "ca.crt: is missing") {
			t.Errorf("the log does not say what is wrong: %s", text)
		}
		change := func(data map[string][]byte) {
			t.Helper()
			mine.Data = data
			if err := c.Update(ctx, mine); err != nil {
				t.Fatal(err)
			}
		}
		change(first)
		both("the first signs", first)
		change(second)
		both("the next is trusted", first, second)
		signer := one.Current()
		change(map[string][]byte{"tls.crt": first["tls.crt"], "tls.key": second["tls.key"], "ca.crt": first["ca.crt"]})
		both("a key of another", first, second)
		if signer.Ends() != one.Current().Ends() {
			t.Error("a Secret that cannot be used has changed who signs")
		}
		change(second)
		time.Sleep(identity.Overlap)
		both("the second signs", second, first)
		time.Sleep(identity.Linger)
		both("the first is gone", second)
		err := c.Get(ctx, client.ObjectKey{Namespace: "weir-system", Name: replica.AuthorityName}, &corev1.Secret{})
		if client.IgnoreNotFound(err) != nil || err == nil {
			t.Errorf("the feed's authority: %v", err)
		}
		cancel()
		synctest.Wait()
	})
}
