package operate

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/weirmesh/weir/internal/kube"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestWhoFollowsIsWokenByEachChange has an API server tell of changes one by one.
func TestWhoFollowsIsWokenByEachChange(t *testing.T) {
	changes := make(chan struct{})
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		switch {
		case r.URL.Path == "/api":
			fmt.Fprint(w, `{"kind":"APIVersions","versions":["v1"]}`)
		case r.URL.Path == "/apis":
			fmt.Fprint(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[{"name":"rollouts.kruise.io","versions":[{"groupVersion":"rollouts.kruise.io/v1beta1","version":"v1beta1"}]}]}`)
		case r.URL.Path == "/apis/rollouts.kruise.io/v1beta1":
			fmt.Fprint(w, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"rollouts.kruise.io/v1beta1","resources":[{"name":"rollouts","kind":"Rollout","namespaced":true}]}`)
		case strings.HasSuffix(r.URL.Path, "/namespaces/shop/rollouts") && r.URL.Query().Get("watch") != "":
			if got := r.URL.Query().Get("fieldSelector"); got != "metadata.name=web" {
				t.Errorf("it watches %q", got)
			}
			_ = http.NewResponseController(w).Flush()
			for {
				select {
				case <-r.Context().Done():
					return
				case <-changes:
					fmt.Fprintln(w, `{"type":"MODIFIED","object":{"apiVersion":"rollouts.kruise.io/v1beta1","kind":"Rollout","metadata":{"name":"web"}}}`)
					_ = http.NewResponseController(w).Flush()
				}
			}
		default:
			http.NotFound(w, r)
		}
	}))
	defer s.Close()
	client, err := kube.NewClient(&rest.Config{Host: s.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	c, err := New(client)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wake, stop := c.Follow(ctx, "shop", "web")
	for range 3 {
		for _, what := range []func() bool{
			func() bool {
				select {
				case changes <- struct{}{}:
					return true
				case <-ctx.Done():
					return false
				}
			},
			func() bool {
				select {
				case <-wake:
					return true
				case <-ctx.Done():
					return false
				}
			},
		} {
			if !what() {
				t.Fatal("nobody is woken")
			}
		}
	}
	stop()
}
