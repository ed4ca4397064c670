package replica_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

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
