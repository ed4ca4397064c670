package aggregated

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	authorizationv1 "k8s.io/api/authorization/v1"
	"k8s.io/apimachinery/pkg/util/cache"
	"k8s.io/apiserver/pkg/authentication/user"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Bounds of reviews.
const (
	reviewMemory  = 10 * time.Second // for how long an answer is believed, as API servers do it among themselves
	reviewsKept   = 8192
	reviewsAtOnce = 32
	reviewTimeout = 5 * time.Second
	maxReason     = 300 // bytes
	// maxNamespaces is how many namespaces are asked about for one request, shownAtOnce how many at a time.
	maxNamespaces = 256
	shownAtOnce   = 8
)

// rights asks the API server what somebody may do, and remembers the answers for a while. The zero value is ready for use.
type rights struct {
	once   sync.Once
	places chan struct{}
	known  *cache.LRUExpireCache // verdicts by hashes of questions, which are bounded by what a request can have
}

type verdict struct {
	allowed bool
	reason  string
}

// privileged reports whether somebody may do everything, as API servers decide it without asking.
func privileged(who user.Info) bool {
	return slices.Contains(who.GetGroups(), user.SystemPrivilegedGroup)
}

// subject is a review's part about who asks.
func subject(who user.Info) authorizationv1.SubjectAccessReviewSpec {
	spec := authorizationv1.SubjectAccessReviewSpec{User: who.GetName(), UID: who.GetUID(), Groups: who.GetGroups()}
	for key, values := range who.GetExtra() {
		if spec.Extra == nil {
			spec.Extra = map[string]authorizationv1.ExtraValue{}
		}
		spec.Extra[key] = values
	}
	return spec
}

// review asks.
func (r *rights) review(ctx context.Context, api client.Writer, spec authorizationv1.SubjectAccessReviewSpec) (allowed bool, reason string, err error) {
	r.once.Do(func() {
		r.places, r.known = make(chan struct{}, reviewsAtOnce), cache.NewLRUExpireCache(reviewsKept)
	})
	text, err := json.Marshal(spec)
	if err != nil {
		return false, "", err
	}
	key := sha256.Sum256(text)
	if v, ok := r.known.Get(key); ok {
		return v.(verdict).allowed, v.(verdict).reason, nil
	}
	ctx, cancel := context.WithTimeout(ctx, reviewTimeout)
	defer cancel()
	select {
	case r.places <- struct{}{}:
		defer func() { <-r.places }()
	case <-ctx.Done():
		return false, "", fmt.Errorf("the API server does not say in time whether you may: too many others are asked about")
	}
	review := &authorizationv1.SubjectAccessReview{Spec: spec}
	if err := api.Create(ctx, review); err != nil {
		return false, "", fmt.Errorf("the API server does not say whether you may: %v", err) // whatever it is, it is not the asker's
	}
	v := verdict{review.Status.Allowed && !review.Status.Denied, review.Status.Reason}
	if len(v.reason) > maxReason {
		v.reason = strings.ToValidUTF8(v.reason[:maxReason], "")
	}
	r.known.Add(key, v, reviewMemory)
	return v.allowed, v.reason, nil
}

// Who is a text of whoever sent a request, nobody else's, from the context that the Handler got; "" with any other.
func Who(ctx context.Context) string {
	q, ok := ctx.Value(questionKey{}).(*question)
	if !ok {
		return ""
	}
	sum := sha256.Sum256([]byte(q.user.GetName()))
	return hex.EncodeToString(sum[:16])
}

// Shown says of some namespaces in which of them the one who sent a request may read what it asked for, and so whose
// names in an answer may be shown; "" stands for what is in no namespace, which is for those who may read it in all. It
// takes the context that the Handler got; with any other nothing may be shown. It fails if the API server does not say.
func Shown(ctx context.Context, namespaces []string) (shown func(namespace string) bool, err error) {
	q, ok := ctx.Value(questionKey{}).(*question)
	if !ok {
		return func(string) bool { return false }, nil
	}
	all, err := q.may(ctx, "") // most who ask may, and then it is the only review
	if err != nil || all {
		return func(string) bool { return all }, err
	}
	namespaces = slices.DeleteFunc(slices.Clone(namespaces), func(n string) bool { return n == "" })
	namespaces = namespaces[:min(len(namespaces), maxNamespaces)]
	allowed := make([]bool, len(namespaces))
	few, ctx := errgroup.WithContext(ctx)
	few.SetLimit(shownAtOnce)
	for i, n := range namespaces {
		few.Go(func() (err error) {
			allowed[i], err = q.may(ctx, n)
			return err
		})
	}
	if err := few.Wait(); err != nil {
		return nil, err
	}
	return func(namespace string) bool {
		i := slices.Index(namespaces, namespace)
		return i >= 0 && allowed[i]
	}, nil
}

// may reports whether the one who asks may read the same of everything in a namespace, or with "" in all.
func (q *question) may(ctx context.Context, namespace string) (bool, error) {
	if privileged(q.user) {
		return true, nil
	}
	review := subject(q.user)
	review.ResourceAttributes = q.attributes(namespace, "")
	allowed, _, err := q.api.rights.review(ctx, q.api.Client, review)
	return allowed, err
}
