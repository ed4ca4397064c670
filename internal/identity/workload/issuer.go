package workload

import (
	"context"
	"encoding/json"
	"encoding/pem"
	"errors"
	"fmt"
	"time"

	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/spiffe"
)

// Life is how long a pod's certificate is good.
const Life = 24 * time.Hour

// Pod is a pod as whoever attested it knows it. Nothing of it is the pod's own word.
type Pod struct {
	Namespace, Name, UID string
	// Account is its ServiceAccount.
	Account string
	// Owners are what runs it, the nearest first.
	Owners []claim.Owner
	// Labels are the pod's.
	Labels map[string]string
}

// Issuer signs pods' certificates. All fields but Names and Now are required. Its methods may be called from any goroutine.
type Issuer struct {
	// Authority signs; nil means that there is none yet.
	Authority   func() *identity.Authority
	TrustDomain string
	// Attest returns the pod in which the holder of a token runs. It is called for each request, so that a pod that is
	// gone gets no certificate. An error that wraps ErrRefused is about the token or the pod; others say nothing of them.
	Attest func(ctx context.Context, token string) (*Pod, error)
	// Names, if set, returns the DNS names that the pod's certificate has beside its ID, or that these are
	// not known yet. The caller has judged whether the pod may have them.
	Names func(*Pod) ([]string, error)
	// Now is the clock; nil is the system's.
	Now func() time.Time
}

var (
	// ErrRefused is wrapped by errors that are the requester's: asking again will not help.
	ErrRefused = errors.New("no certificate for this request")
	// ErrNotReady is returned while there is no authority.
	ErrNotReady = errors.New("no certificate authority yet")
)

// For returns what answers requests of the holder of a token. It is for now: what it answers later may be outdated.
func (i *Issuer) For(ctx context.Context, token string) (sign func(request []byte) ([]byte, error), err error) {
	pod, err := i.Attest(ctx, token)
	if err != nil {
		return nil, err
	}
	return func(request []byte) ([]byte, error) { return i.sign(pod, request) }, nil
}

// sign answers a request of a Source with a certificate for the pod (X509-SVID): its ID is
// spiffe://TRUSTDOMAIN/ns/NAMESPACE/sa/ACCOUNT, and its claims name the pod and what runs it.
func (i *Issuer) sign(pod *Pod, request []byte) ([]byte, error) {
	key, err := keyOf(request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	authority := i.Authority()
	if authority == nil {
		return nil, ErrNotReady
	}
	id, err := spiffe.Parse(spiffe.Scheme + i.TrustDomain + "/ns/" + pod.Namespace + "/sa/" + pod.Account)
	if namespace, account, ok := id.ServiceAccount(); err == nil && (!ok || namespace != pod.Namespace || account != pod.Account) {
		err = fmt.Errorf("%s/%s is no ServiceAccount's name", pod.Namespace, pod.Account)
	}
	if err != nil {
		return nil, fmt.Errorf("%w: the pod %s/%s: %w", ErrRefused, pod.Namespace, pod.Name, err)
	}
	extension, err := claim.Claims{Pod: pod.Name, UID: pod.UID, Owners: pod.Owners}.Extension()
	if err != nil {
		return nil, fmt.Errorf("%w: the pod %s/%s: %w", ErrRefused, pod.Namespace, pod.Name, err)
	}
	w := identity.Workload{ID: id.String(), Life: Life}
	w.Extensions = append(w.Extensions, extension)
	if i.Names != nil {
		if w.DNSNames, err = i.Names(pod); err != nil {
			return nil, err
		}
	}
	now := time.Now()
	if i.Now != nil {
		now = i.Now()
	}
	chain, err := authority.Workload(w, key, now)
	if err != nil {
		return nil, err
	}
	a := answer{Chain: chain}
	for rest := authority.Bundle(); ; {
		var block *pem.Block
		if block, rest = pem.Decode(rest); block == nil {
			return json.Marshal(a)
		}
		a.Roots = append(a.Roots, block.Bytes)
	}
}
