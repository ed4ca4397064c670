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

// AuthorityName is the name of the Secret in which the replicas keep their authority.
const AuthorityName = "weir-authority"

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
	// Hosts are the names and IP addresses that this replica's certificate is for.
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
			a.Logger.Error("storing the certificate authority failed; trying again", "secret", a.Namespace+"/"+AuthorityName, "error", err)
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

// look takes the authority from the Secret, and makes or replaces it if that is due.
func (a *Authority) look(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, authorityTimeout)
	defer cancel()
	secret := &corev1.Secret{}
	key := client.ObjectKey{Namespace: a.Namespace, Name: AuthorityName}
	err := a.Client.Get(ctx, key, secret)
	if apierrors.IsNotFound(err) {
		if err = a.create(ctx); !apierrors.IsAlreadyExists(err) {
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
	next, err := kept.Rotate(time.Now())
	if err != nil {
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
			a.Logger.Info("certificate authority rotated", "secret", a.Namespace+"/"+AuthorityName)
		}
	}
	a.use(next)
	return nil
}

func (a *Authority) create(ctx context.Context) error {
	made, err := identity.New(time.Now())
	if err != nil {
		return err
	}
	data, err := made.Secret()
	if err != nil {
		return err
	}
	err = a.Client.Create(ctx, &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: a.Namespace, Name: AuthorityName,
			Labels: map[string]string{"app.kubernetes.io/name": "weir", "app.kubernetes.io/component": "controller", "app.kubernetes.io/managed-by": "weir"},
		},
		Type: corev1.SecretTypeTLS, Data: data,
	})
	if err != nil {
		return err
	}
	a.Logger.Info("certificate authority created", "secret", a.Namespace+"/"+AuthorityName)
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
