package replica_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
)

// reviewer is an API server that reviews tokens.
type reviewer struct {
	client.Writer
	asked  atomic.Int32
	answer func(token string) (authenticationv1.TokenReviewStatus, error)
}

func (r *reviewer) Create(_ context.Context, o client.Object, _ ...client.CreateOption) (err error) {
	r.asked.Add(1)
	review := o.(*authenticationv1.TokenReview)
	review.Status, err = r.answer(review.Spec.Token)
	return err
}

func proxyToken(change func(*authenticationv1.TokenReviewStatus)) authenticationv1.TokenReviewStatus {
	s := authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"proxies"}, User: authenticationv1.UserInfo{
		Username: "system:serviceaccount:shop:edge-weir",
		Extra:    map[string]authenticationv1.ExtraValue{"authentication.kubernetes.io/pod-name": {"edge-weir-1"}},
	}}
	if change != nil {
		change(&s)
	}
	return s
}

func newTokens(r *reviewer) *replica.Tokens {
	return &replica.Tokens{Client: r, Audience: "proxies", OwnerOf: func(namespace, serviceAccount string) model.Owner {
		if namespace == "shop" && serviceAccount == "edge-weir" {
			return "shop/edge"
		}
		return ""
	}}
}

func TestTokenOfAProxyNamesItsGatewayAndIsReviewedOnce(t *testing.T) {
	r := &reviewer{answer: func(string) (authenticationv1.TokenReviewStatus, error) { return proxyToken(nil), nil }}
	tokens := newTokens(r)
	for range 3 {
		gateway, proxy, err := tokens.Authenticate(t.Context(), "token")
		if gateway != "shop/edge" || proxy != "shop/edge-weir-1" || err != nil {
			t.Fatalf("%q, %q, %v; want the proxy of the Gateway", gateway, proxy, err)
		}
	}
	if n := r.asked.Load(); n != 1 {
		t.Errorf("the API server was asked %d times, want once", n)
	}
}

func TestTokensThatAreNotAProxysAreRefused(t *testing.T) {
	for name, change := range map[string]func(*authenticationv1.TokenReviewStatus){
		"not authentic":      func(s *authenticationv1.TokenReviewStatus) { s.Authenticated = false },
		"another audience":   func(s *authenticationv1.TokenReviewStatus) { s.Audiences = []string{"api"} },
		"no audience":        func(s *authenticationv1.TokenReviewStatus) { s.Audiences = nil },
		"a person":           func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "shop:edge-weir" },
		"another account":    func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:shop:default" },
		"another namespace":  func(s *authenticationv1.TokenReviewStatus) { s.User.Username = "system:serviceaccount:other:edge-weir" },
		"not made for a pod": func(s *authenticationv1.TokenReviewStatus) { s.User.Extra = nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := &reviewer{answer: func(string) (authenticationv1.TokenReviewStatus, error) { return proxyToken(change), nil }}
			if gateway, _, err := newTokens(r).Authenticate(t.Context(), "token"); gateway != "" || !errors.Is(err, replica.ErrToken) {
				t.Errorf("%q, %v; want the token refused", gateway, err)
			}
		})
	}
	r := &reviewer{}
	for _, token := range []string{"", strings.Repeat("x", 1<<20)} {
		if _, _, err := newTokens(r).Authenticate(t.Context(), token); !errors.Is(err, replica.ErrToken) || r.asked.Load() != 0 {
			t.Errorf("a token of %d bytes: %v after %d reviews, want it refused without one", len(token), err, r.asked.Load())
		}
	}
}

func TestTokenIsNotRefusedWhenItCannotBeReviewed(t *testing.T) {
	r := &reviewer{answer: func(string) (s authenticationv1.TokenReviewStatus, err error) { return s, errors.New("no API server") }}
	tokens := newTokens(r)
	for range 2 {
		if _, _, err := tokens.Authenticate(t.Context(), "token"); err == nil || errors.Is(err, replica.ErrToken) {
			t.Errorf("%v: want an error that says nothing about the token", err)
		}
	}
	if n := r.asked.Load(); n != 2 {
		t.Errorf("%d reviews, want 2: a failure is not remembered", n)
	}
}

// cluster is an API server with pods, which reviews tokens too.
type cluster struct {
	client.Client
	*reviewer
	listed atomic.Int32
	down   error
}

func (c *cluster) Create(ctx context.Context, o client.Object, options ...client.CreateOption) error {
	return c.reviewer.Create(ctx, o, options...)
}

func (c *cluster) List(ctx context.Context, list client.ObjectList, _ ...client.ListOption) error {
	c.listed.Add(1)
	if c.down != nil {
		return c.down
	}
	return c.Client.List(ctx, list) // it knows no field selectors
}

// TestATokenOfAnotherPodIsOfItsWorkload has tokens of pods that are no Gateway's, which count only as long as there are
// such owners, and are judged anew each time.
func TestATokenOfAnotherPodIsOfItsWorkload(t *testing.T) {
	token := func(change func(*authenticationv1.TokenReviewStatus)) *reviewer {
		return &reviewer{answer: func(string) (authenticationv1.TokenReviewStatus, error) {
			return proxyToken(func(s *authenticationv1.TokenReviewStatus) {
				s.User.Username = "system:serviceaccount:shop:cart"
				s.User.Extra["authentication.kubernetes.io/pod-name"] = authenticationv1.ExtraValue{"cart-1"}
				s.User.Extra["authentication.kubernetes.io/pod-uid"] = authenticationv1.ExtraValue{"u-1"}
				if change != nil {
					change(s)
				}
			}), nil
		}}
	}
	with := func(r *reviewer, edit func(*corev1.Pod)) (*replica.Tokens, *cluster) {
		pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cart-1", UID: "u-1"}, Spec: corev1.PodSpec{ServiceAccountName: "cart"}}
		if edit != nil {
			edit(pod)
		}
		c := &cluster{Client: fake.NewClientBuilder().WithObjects(pod).Build(), reviewer: r}
		tokens := newTokens(r)
		tokens.Pods = &replica.Pods{Client: c, Audience: "proxies"}
		return tokens, c
	}
	tokens, c := with(token(nil), nil)
	for n := range 3 {
		owner, proxy, err := tokens.Authenticate(t.Context(), "token")
		if owner != "workload/shop/cart-1" || proxy != "shop/cart-1" || err != nil {
			t.Fatalf("%q, %q, %v", owner, proxy, err)
		}
		if asked, listed := c.asked.Load(), c.listed.Load(); asked != int32(n+1) || listed != int32(n+1) {
			t.Errorf("%d reviews and %d looks at the pod after %d", asked, listed, n+1)
		}
	}
	// It became one of a Gateway's, and is remembered; when that ends, what was remembered does not count.
	gateway := true
	tokens.OwnerOf = func(string, string) model.Owner {
		if gateway {
			return "shop/edge"
		}
		return ""
	}
	if owner, _, err := tokens.Authenticate(t.Context(), "token"); owner != "shop/edge" || err != nil {
		t.Errorf("%q, %v", owner, err)
	}
	gateway = false
	c.answer = func(string) (s authenticationv1.TokenReviewStatus, err error) { return s, nil }
	if owner, _, err := tokens.Authenticate(t.Context(), "token"); !errors.Is(err, replica.ErrToken) {
		t.Errorf("a token that is good no more is of %q, %v", owner, err)
	}
	for name, x := range map[string]struct {
		token func(*authenticationv1.TokenReviewStatus)
		pod   func(*corev1.Pod)
	}{
		"another UID": {pod: func(p *corev1.Pod) { p.UID = "u-2" }},
		"no UID": {token: func(s *authenticationv1.TokenReviewStatus) {
			delete(s.User.Extra, "authentication.kubernetes.io/pod-uid")
		}},
		"another account":   {pod: func(p *corev1.Pod) { p.Spec.ServiceAccountName = "pay" }},
		"ended":             {pod: func(p *corev1.Pod) { p.Status.Phase = corev1.PodSucceeded }},
		"no pod":            {token: func(s *authenticationv1.TokenReviewStatus) { s.User.Extra = nil }},
		"not authenticated": {token: func(s *authenticationv1.TokenReviewStatus) { s.Authenticated = false }},
	} {
		tokens, _ := with(token(x.token), x.pod)
		if owner, _, err := tokens.Authenticate(t.Context(), "token"); owner != "" || !errors.Is(err, replica.ErrToken) {
			t.Errorf("%s: %q, %v", name, owner, err)
		}
	}
	tokens, _ = with(token(nil), nil)
	tokens.Pods.Namespaces = []string{"blog"}
	if owner, _, err := tokens.Authenticate(t.Context(), "token"); owner != "" || !errors.Is(err, replica.ErrToken) {
		t.Errorf("in a namespace that is not watched: %q, %v", owner, err)
	}
	tokens, c = with(token(nil), nil)
	c.down = errors.New("no API server")
	if _, _, err := tokens.Authenticate(t.Context(), "token"); err == nil || errors.Is(err, replica.ErrToken) {
		t.Errorf("%v says something about the token", err)
	}
}
