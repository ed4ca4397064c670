package replica

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/identity/workload"
	"github.com/weirmesh/weir/internal/model"
	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// podNameKey is the key of a token's extra information under which the API server names the pod that it was made for.
const podNameKey = "authentication.kubernetes.io/pod-name"

// podUIDKey is that of the pod's UID.
const podUIDKey = "authentication.kubernetes.io/pod-uid"

// Bounds of Tokens.
const (
	tokenMemory   = 30 * time.Second // for how long a review's answer is believed
	tokensAtMost  = 4096             // remembered
	reviewsAtOnce = 8
	reviewTimeout = 5 * time.Second
	maxToken      = 16 << 10 // bytes
)

// ErrToken is why a token is refused, as opposed to why it could not be judged.
var ErrToken = errors.New("the token is refused")

// Tokens finds the owner of a ServiceAccount's token, by asking the API server to review it.
type Tokens struct {
	Client client.Writer
	// Audience is the audience that the token must have.
	Audience string
	// OwnerOf returns whose proxies run as that ServiceAccount; empty if nobody's do.
	OwnerOf func(namespace, serviceAccount string) model.Owner
	// Pods, if set, attests the pods of other tokens: each is a workload, the owner of what its sidecar serves.
	Pods *Pods

	once    sync.Once
	reviews chan struct{} // bounds concurrent reviews
	mu      sync.Mutex
	known   map[[sha256.Size]byte]review
}

type review struct {
	namespace, serviceAccount, pod string
	uid                            string // of the pod
	expires                        time.Time
}

// Authenticate returns the owner that the holder of the token is a proxy of, and the name of the proxy's pod, "namespace/name". The error is
// ErrToken if the token is not one of a Gateway's proxy nor, if there are Pods, of a pod that runs.
func (t *Tokens) Authenticate(ctx context.Context, token string) (owner model.Owner, proxy string, err error) {
	if token == "" || len(token) > maxToken {
		return "", "", fmt.Errorf("%w: it has %d bytes", ErrToken, len(token))
	}
	hash := sha256.Sum256([]byte(token))
	r, known := t.remembered(hash)
	if !known {
		if r, err = t.review(ctx, token); err != nil {
			return "", "", err
		}
	}
	owner = t.OwnerOf(r.namespace, r.serviceAccount)
	if owner == "" && t.Pods != nil {
		return t.workload(ctx, token, r, known)
	}
	if !known {
		t.remember(hash, r)
	}
	if owner == "" {
		return "", "", fmt.Errorf("%w: no Gateway's proxies run as ServiceAccount %s/%s", ErrToken, r.namespace, r.serviceAccount)
	}
	return owner, r.namespace + "/" + r.pod, nil
}

// workload is Authenticate for a pod of no Gateway's. What is known of it is of now: r is reviewed again unless it was just
// now.
func (t *Tokens) workload(ctx context.Context, token string, r review, old bool) (owner model.Owner, proxy string, err error) {
	if old {
		if r, err = t.review(ctx, token); err != nil {
			return "", "", err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, attestTimeout)
	defer cancel()
	switch _, err = t.Pods.running(ctx, r); {
	case errors.Is(err, workload.ErrRefused):
		return "", "", fmt.Errorf("%w: %w", ErrToken, err)
	case err != nil:
		return "", "", err
	}
	return model.WorkloadOwner(r.namespace, r.pod), r.namespace + "/" + r.pod, nil
}

func (t *Tokens) remembered(hash [sha256.Size]byte) (review, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	r, ok := t.known[hash]
	return r, ok && time.Now().Before(r.expires)
}

func (t *Tokens) remember(hash [sha256.Size]byte, r review) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.known == nil {
		t.known = map[[sha256.Size]byte]review{}
	}
	now := time.Now()
	if len(t.known) >= tokensAtMost {
		for h, old := range t.known {
			if now.After(old.expires) {
				delete(t.known, h)
			}
		}
		if len(t.known) >= tokensAtMost {
			clear(t.known) // each is asked about once more
		}
	}
	r.expires = now.Add(tokenMemory)
	t.known[hash] = r
}

func (t *Tokens) review(ctx context.Context, token string) (review, error) {
	t.once.Do(func() { t.reviews = make(chan struct{}, reviewsAtOnce) })
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case t.reviews <- struct{}{}:
		defer func() { <-t.reviews }()
	case <-ctx.Done():
		return review{}, fmt.Errorf("review of a token: %w", ctx.Err())
	}
	return reviewed(ctx, t.Client, t.Audience, token)
}

// reviewed has the API server say whose a token is. The error is ErrToken if it is not one that was made for a pod.
func reviewed(ctx context.Context, c client.Writer, audience, token string) (review, error) {
	r := &authenticationv1.TokenReview{Spec: authenticationv1.TokenReviewSpec{Token: token, Audiences: []string{audience}}}
	if err := c.Create(ctx, r); err != nil {
		return review{}, fmt.Errorf("review of a token: %w", err)
	}
	switch s := r.Status; {
	case !s.Authenticated:
		return review{}, fmt.Errorf("%w: %s", ErrToken, s.Error)
	case !slices.Contains(s.Audiences, audience):
		return review{}, fmt.Errorf("%w: it is for %s, not %s", ErrToken, strings.Join(s.Audiences, ", "), audience)
	}
	account, ok := strings.CutPrefix(r.Status.User.Username, "system:serviceaccount:")
	namespace, name, split := strings.Cut(account, ":")
	if !ok || !split {
		return review{}, fmt.Errorf("%w: %s is not a ServiceAccount", ErrToken, r.Status.User.Username)
	}
	pods := r.Status.User.Extra[podNameKey]
	if len(pods) != 1 {
		return review{}, fmt.Errorf("%w: it was not made for a pod", ErrToken)
	}
	out := review{namespace: namespace, serviceAccount: name, pod: pods[0]}
	if uids := r.Status.User.Extra[podUIDKey]; len(uids) == 1 {
		out.uid = uids[0]
	}
	return out, nil
}
