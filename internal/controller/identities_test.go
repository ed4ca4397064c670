package controller

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/identity/workload"
)

// TestFaultsOfRequestsForIdentities tells those of the pod, which is refused, from ours, after which it asks again.
func TestFaultsOfRequestsForIdentities(t *testing.T) {
	i := &identities{}
	i.issuer = workload.Issuer{TrustDomain: "td", Authority: func() *identity.Authority { return nil }, Attest: func(_ context.Context, token string) (*workload.Pod, error) {
		switch token {
		case "good":
			return &workload.Pod{Namespace: "a", Name: "b", Account: "c"}, nil
		case "bad":
			return nil, fmt.Errorf("%w: gone", workload.ErrRefused)
		}
		return nil, errors.New("no API server")
	}}
	if _, err := i.sign(t.Context(), "bad"); !errors.Is(err, workload.ErrRefused) || errors.Is(err, feed.ErrUnavailable) {
		t.Error(err)
	}
	if _, err := i.sign(t.Context(), "unknown"); !errors.Is(err, feed.ErrUnavailable) {
		t.Error(err)
	}
	answer, err := i.sign(t.Context(), "good")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := answer([]byte("x")); !errors.Is(err, workload.ErrRefused) || errors.Is(err, feed.ErrUnavailable) {
		t.Error(err)
	}
	if s, r, f := i.signed.Load(), i.refused.Load(), i.failed.Load(); s != 0 || r != 2 || f != 1 {
		t.Errorf("%d signed, %d refused, %d failed", s, r, f)
	}
}
