package feed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// signer answers requests of the token "pod" by turning them around.
func signer(_ context.Context, token string) (func([]byte) ([]byte, error), error) {
	switch token {
	case "pod":
		return func(request []byte) ([]byte, error) {
			if len(request) == 0 {
				return nil, errors.New("nothing to sign")
			}
			if string(request) == "soon" {
				return nil, fmt.Errorf("%w: no authority", ErrUnavailable)
			}
			return append([]byte("signed "), request...), nil
		}, nil
	case "later":
		return nil, fmt.Errorf("%w: no API server", ErrUnavailable)
	}
	return nil, fmt.Errorf("token %s is not a pod's", token)
}

func TestIdentitiesAreSignedForPods(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Sign = signer
	address, stop := w.serve(s, "127.0.0.1:0")
	defer stop()
	c := &Client{Address: address, ServerName: "controller", CAFile: w.dir + "/ca.crt"}
	request := []byte{0, 1, 0xff, ',', '\n'}
	for token, want := range map[string]codes.Code{"pod": codes.OK, "later": codes.Unavailable, "none": codes.Unauthenticated, "good:" + gateway + ":p": codes.Unauthenticated} {
		c.TokenFile = w.write("token", token)
		got, err := c.Sign(t.Context(), request)
		if status.Code(err) != want || (err == nil) != bytes.Equal(got, append([]byte("signed "), request...)) {
			t.Errorf("%s: %q, %v", token, got, err)
		}
		if err != nil && (strings.Contains(err.Error(), "API server") || strings.Contains(err.Error(), "pod's")) {
			t.Errorf("%s: the pod is told more than it has to know: %v", token, err)
		}
	}
	c.TokenFile = w.write("token", "pod")
	if _, err := c.Sign(t.Context(), nil); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "nothing to sign") {
		t.Errorf("a request that is not valid: %v", err)
	}
	if _, err := c.Sign(t.Context(), []byte("soon")); status.Code(err) != codes.Unavailable || strings.Contains(err.Error(), "no authority") {
		t.Errorf("a request that cannot be answered yet: %v", err)
	}
	if _, err := c.Sign(t.Context(), make([]byte, 64<<10)); err == nil {
		t.Error("a request that is larger than a header is signed")
	}
	if n := s.Stats().Unauthenticated; n != 3 {
		t.Errorf("%d streams were refused", n)
	}
}

func TestAControlPlaneThatSignsNothingSaysSo(t *testing.T) {
	w := newWorld(t)
	address, stop := w.serve(w.server(), "127.0.0.1:0")
	defer stop()
	c := &Client{Address: address, ServerName: "controller", CAFile: w.dir + "/ca.crt", TokenFile: w.write("token", "pod")}
	if _, err := c.Sign(t.Context(), []byte("x")); status.Code(err) != codes.Unimplemented {
		t.Error(err)
	}
}
