package kube

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
)

// fed is a client of a controller's feed, what it got, and what it logged.
type fed struct {
	t      *testing.T
	log    lines
	mu     sync.Mutex
	config *model.Config
}

// feeds runs a client with the token of a pod, which says that it is for an owner.
func feeds(t *testing.T, at, ca string, owner model.Owner, token string) *fed {
	t.Helper()
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(token), 0o600); err != nil {
		t.Fatal(err)
	}
	f := &fed{t: t}
	c := &feed.Client{Address: at, ServerName: "weir-controller." + own + ".svc", CAFile: ca, TokenFile: file, Owner: owner, Logger: slog.New(slog.NewTextHandler(&f.log, nil))}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() {
		done <- c.Run(ctx, func(c *model.Config) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			f.config = c
			return nil
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return f
}

// gets waits for a configuration of which something holds.
func (f *fed) gets(what string, holds func(*model.Config) bool) *model.Config {
	f.t.Helper()
	var got *model.Config
	err := within(f.t.Context(), func() error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if got = f.config; got == nil || !holds(got) {
			return fmt.Errorf("no configuration with %s: %+v", what, got)
		}
		return nil
	})
	if err != nil {
		f.t.Fatalf("%v\n%s", err, f.log.String())
	}
	return got
}

// refused waits until the log has why there is nothing for the client.
func (f *fed) refused(why string) {
	f.t.Helper()
	err := within(f.t.Context(), func() error {
		if !strings.Contains(f.log.String(), why) {
			return fmt.Errorf("the log lacks %q: %s", why, f.log.String())
		}
		return nil
	})
	f.mu.Lock()
	defer f.mu.Unlock()
	if err != nil || f.config != nil {
		f.t.Errorf("%v; it has %+v", err, f.config)
	}
}

// tokenOf is a token for the feed that is bound to a pod.
func tokenOf(t *testing.T, account *corev1.ServiceAccount, pod *corev1.Pod) string {
	t.Helper()
	r := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{infra.Audience}, BoundObjectRef: &authenticationv1.BoundObjectReference{APIVersion: "v1", Kind: "Pod", Name: pod.Name, UID: pod.UID},
	}}
	if err := admin.SubResource("token").Create(t.Context(), account, r); err != nil {
		t.Fatal(err)
	}
	return r.Status.Token
}

// TestAPodsTokenGetsThatPodsConfiguration has two pods of one ServiceAccount and a Gateway's proxy ask a controller of a real
// API server.
func TestAPodsTokenGetsThatPodsConfiguration(t *testing.T) {
	t.Cleanup(func() {
		_ = admin.Delete(context.Background(), &corev1.Secret{ObjectMeta: named(own, replica.IdentityName)})
	})
	if err := admin.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: own}}); err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	at := port(t)
	startController(t, "sidecars", "--feed-address="+at, "--mesh")
	ns := namespace(t)
	account := &corev1.ServiceAccount{ObjectMeta: named(ns, "shop")}
	create(t, account)
	pod := func(name, account, address string, port int32) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: named(ns, name), Spec: corev1.PodSpec{ServiceAccountName: account, Containers: []corev1.Container{{Name: "c", Image: "weir:dev", Ports: []corev1.ContainerPort{{ContainerPort: port}}}}}}
		create(t, p)
		p.Status.Phase, p.Status.PodIP, p.Status.PodIPs = corev1.PodRunning, address, []corev1.PodIP{{IP: address}}
		if err := admin.Status().Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		return p
	}
	cart, pay := pod("cart-1", "shop", "10.64.0.7", 8080), pod("pay-1", "shop", "10.64.0.8", 9090)
	ca := filepath.Join(t.TempDir(), "ca.crt")
	err := within(t.Context(), func() error {
		s := ownSecret(t, replica.AuthorityName)
		if s == nil {
			return errors.New("there is no authority yet")
		}
		return os.WriteFile(ca, s.Data["ca.crt"], 0o600)
	})
	if err != nil {
		t.Fatal(err)
	}
	// inbound are the ports of a pod in a configuration, which has nothing of others: neither listeners nor workloads. What
	// pods call is the same for all.
	inbound := func(c *model.Config, name string) (ports []int32) {
		owner := model.WorkloadOwner(ns, name)
		for _, l := range c.Listeners {
			if l.Redirect == model.RedirectOutbound && l.Owner == "" && l.Workload == "" {
				continue
			}
			if l.Owner != owner {
				t.Errorf("%s has the listener %s of %s", name, l.Name, l.Owner)
			}
			if l.Workload != "" && l.WorkloadPort != 0 {
				ports = append(ports, l.WorkloadPort)
			}
		}
		for i := range c.Workloads {
			if c.Workloads[i].Name() != ns+"/Pod/"+name {
				t.Errorf("%s has the workload %s", name, c.Workloads[i].Name())
			}
		}
		if len(c.Certificates) != 0 {
			t.Errorf("%s has %d keys", name, len(c.Certificates))
		}
		return ports
	}
	for p, port := range map[*corev1.Pod]int32{cart: 8080, pay: 9090} {
		c := feeds(t, at, ca, model.WorkloadOwner(ns, p.Name), tokenOf(t, account, p))
		c.gets("the pod's port", func(c *model.Config) bool { return slices.Equal(inbound(c, p.Name), []int32{port}) })
	}
	// Who says that it is another pod gets nothing, be it one of the same ServiceAccount, or a Gateway's proxy.
	feeds(t, at, ca, model.WorkloadOwner(ns, "pay-1"), tokenOf(t, account, cart)).refused("the token belongs to a proxy of Workload " + ns + "/cart-1")
	of := class(t)
	create(t, gatewayOf(of, ns, "edge"))
	feeds(t, at, ca, model.GatewayOwner(ns, "edge"), tokenOf(t, account, cart)).refused("the token belongs to a proxy of Workload " + ns + "/cart-1")

	// A token of the ServiceAccount that was made for the Gateway's proxies is theirs.
	made := &corev1.ServiceAccount{ObjectMeta: named(ns, infra.Name("edge", of.Name))}
	err = within(t.Context(), func() error { return admin.Get(t.Context(), client.ObjectKeyFromObject(made), made) })
	if err != nil {
		t.Fatal(err)
	}
	proxy := pod("edge-1", made.Name, "10.64.0.9", 80)
	feeds(t, at, ca, model.GatewayOwner(ns, "edge"), tokenOf(t, made, proxy)).gets("the Gateway's listener", func(c *model.Config) bool {
		return slices.Equal(c.Owners(), []model.Owner{model.GatewayOwner(ns, "edge")})
	})
	feeds(t, at, ca, model.WorkloadOwner(ns, "edge-1"), tokenOf(t, made, proxy)).refused("the token belongs to a proxy of Gateway " + ns + "/edge")

	// With its pod a token ends at once: the API server is asked anew.
	token := tokenOf(t, account, pay)
	if err := admin.Delete(t.Context(), pay, client.GracePeriodSeconds(0)); err != nil {
		t.Fatal(err)
	}
	feeds(t, at, ca, model.WorkloadOwner(ns, "pay-1"), token).refused("Unauthenticated")
}
