package replica

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/identity"
)

// AuthorityName is the name of the Secret in which the replicas keep their authority, IdentityName that of the one which
// signs the identities of workloads. They are apart: no workload's names are ever to be the controller's.
const AuthorityName, IdentityName = "weir-authority", "weir-identity"

const (
	// authorityLook is how often a replica reads the authority, which another may have changed. authorityRetry is the
	// pause after a failure; it doubles with each further one, up to authorityLook.
	authorityLook, authorityRetry = time.Minute, time.Second
	authorityTimeout              = 10 * time.Second
)

// Authority is the certificate authority of the replicas, which they keep in a Secret, and this replica's certificate. The replica that first needs a
// new one makes it: the API server lets only one win, and the others take that.
type Authority struct {
	Client client.Client
	// Namespace is the controller's.
	Namespace string
	// Name is the Secret's; empty is AuthorityName.
	Name string
	// Given, if set, is the name of a Secret of the user's whose authority is to sign, as cert-manager writes one
	// (identity.ParseGiven). It may be replaced at any time. While it cannot be used, what signed before does.
	Given string
	// Sample is a SPIFFE ID that Given must be able to sign.
	Sample string
	// Hosts are the names and IP addresses that this replica's certificate is for; none if it needs none.
	Hosts []string
	// Changed, if set, is called when Bundle returns something else.
	Changed func()
	Logger  *slog.Logger

	once    sync.Once
	ready   chan struct{}
	server  identity.Server
	replica identity.Server
	current atomic.Pointer[identity.Authority]
	bundle  atomic.Pointer[string]
}

func (a *Authority) init() {
	a.once.Do(func() {
		a.ready = make(chan struct{})
		if a.Name == "" {
			a.Name = AuthorityName
		}
		a.replica.Replica = true
		for _, host := range a.Hosts {
			if ip := net.ParseIP(host); ip != nil {
				a.server.Subject.IPs = append(a.server.Subject.IPs, ip)
			} else {
				a.server.Subject.DNSNames = append(a.server.Subject.DNSNames, host)
			}
		}
	})
}

// Ready is closed once there is a certificate.
func (a *Authority) Ready() <-chan struct{} {
	a.init()
	return a.ready
}

// Certificate returns the certificate to present now.
func (a *Authority) Certificate() (*tls.Certificate, error) {
	a.init()
	return a.server.Certificate()
}

// ReplicaCertificate returns the certificate by which this replica proves to others that it is one.
func (a *Authority) ReplicaCertificate() (*tls.Certificate, error) {
	a.init()
	return a.replica.Certificate()
}

// Current is the authority as it is now; nil means none yet.
func (a *Authority) Current() *identity.Authority { return a.current.Load() }

// Roots are the certificates of Bundle; nil means none yet.
func (a *Authority) Roots() *x509.CertPool {
	roots := x509.NewCertPool()
	if !roots.AppendCertsFromPEM([]byte(a.Bundle())) {
		return nil
	}
	return roots
}

// Bundle is PEM: the certificates by which the replicas can be verified. Empty means none yet.
func (a *Authority) Bundle() string {
	if b := a.bundle.Load(); b != nil {
		return *b
	}
	return ""
}

// Run keeps the authority until ctx ends, which is no error.
func (a *Authority) Run(ctx context.Context) error {
	a.init()
	retry := authorityRetry
	for {
		wait := authorityLook
		if err := a.look(ctx); err == nil {
			retry = authorityRetry
		} else if ctx.Err() == nil {
			a.Logger.Error("the certificate authority cannot be kept as it should be; what it was stays, trying again", "secret", a.secret(), "error", err)
			wait, retry = retry, min(2*retry, authorityLook)
		}
		t := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			t.Stop()
			return nil
		case <-t.C:
		}
	}
}

func (a *Authority) secret() string { return a.Namespace + "/" + a.Name }

// look takes the authority from the Secret, and makes or replaces it if that is due. What is wrong with the user's does not
// keep it from that.
func (a *Authority) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, authorityTimeout)
	defer cancel()
	now := time.Now()
	given, wrong := a.given(ctx, now)
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: a.Namespace, Name: a.Name}
	err := a.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		if wrong != nil {
			return wrong // a root of our own is not what the user wants
		}
		if err = a.create(ctx, given, now); !apierrors.IsAlreadyExists(err) {
			return err
		}
		err = a.Client.Get(ctx, key, secret) // another replica was faster
	}
	if err != nil {
		return err
	}
	kept, err := identity.Parse(secret.Data)
	if err != nil {
		return fmt.Errorf("%w; delete the Secret to get a new authority", err)
	}
	next := kept
	if wrong == nil {
		if next, err = kept.Follow(given, now); err != nil {
			return err
		}
	}
	if next, err = next.Rotate(now); err != nil {
		return err
	}
	if next != kept {
		if secret.Data, err = next.Secret(); err != nil {
			return err
		}
		// A conflict means that another replica was faster; its version is found next time.
		if err := a.Client.Update(ctx, secret); apierrors.IsConflict(err) {
			next = kept
		} else if err != nil {
			a.use(kept)
			return err
		} else {
			a.Logger.Info("certificate authority changed", "secret", a.secret(), "until", next.Ends())
		}
	}
	a.use(next)
	return wrong
}

// given reads the user's authority; nil if there is to be none.
func (a *Authority) given(ctx context.Context, now time.Time) (*identity.Given, error) {
	if a.Given == "" {
		return nil, nil
	}
	secret := &corev1.Secret{}
	err := a.Client.Get(ctx, client.ObjectKey{Namespace: a.Namespace, Name: a.Given}, secret)
	var given *identity.Given
	if err == nil {
		given, err = identity.ParseGiven(secret.Data, a.Sample, now)
	}
	if err != nil {
		return nil, fmt.Errorf("the Secret %s/%s, whose authority is to sign: %w", a.Namespace, a.Given, err)
	}
	return given, nil
}

func (a *Authority) create(ctx context.Context, given *identity.Given, now time.Time) error {
	var made *identity.Authority
	var err error
	if given != nil {
		made = given.Take()
	} else if made, err = identity.New(now); err != nil {
		return err
	}
	data, err := made.Secret()
	if err != nil {
		return err
	}
	err = a.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: a.Name,
			Labels: map[string]string{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "controller", "app.kubernetes.io/managed-by": "weir"},
		},
		Type: corev1.SecretTypeTLS, Data: data,
	})
	if err != nil {
		return err
	}
	a.Logger.Info("certificate authority created", "secret", a.secret())
	a.use(made)
	return nil
}

func (a *Authority) use(made *identity.Authority) {
	first := a.current.Swap(made) == nil
	a.server.Use(made)
	a.replica.Use(made)
	bundle := string(made.Bundle())
	before := a.bundle.Swap(&bundle)
	if first {
		close(a.ready)
	}
	if (before == nil || *before != bundle) && a.Changed != nil {
		a.Changed()
	}
}
