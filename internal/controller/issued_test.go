package controller

import (
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/identity/workload"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/resource/rules"
)

func init() { resource.CheckRules(rules.Compile) }

// TestSidecarsLearnWhatTheirCertificatesWouldBe when names or roots change, each of its own pod.
func TestSidecarsLearnWhatTheirCertificatesWouldBe(t *testing.T) {
	f := newFleet(t)
	var roots atomic.Pointer[string]
	root := func() string {
		a, err := identity.New(time.Now())
		if err != nil {
			t.Fatal(err)
		}
		return string(a.Bundle())
	}
	none, first := "", root()
	roots.Store(&none)
	f.sidecars.roots = func() string { return *roots.Load() }
	of := func(name string) *control.Sidecars {
		set, err := resource.Load(dialect.Kinds(), []string{"-"}, strings.NewReader(`
{apiVersion: tls.smi-spec.io/v1beta1, kind: TLSConfig, metadata: {namespace: shop, name: a}, spec: {subjectNames: [`+name+`], selector: {matchLabels: {app: pay}}}}
---
{apiVersion: v1, kind: Service, metadata: {namespace: shop, name: pay}, spec: {selector: {app: pay}, ports: [{port: 80}]}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: pay-1, labels: {app: pay}}, spec: {containers: [{name: c}]}, status: {podIP: 10.0.0.1}}
---
{apiVersion: v1, kind: Pod, metadata: {namespace: shop, name: cart-1}, spec: {containers: [{name: c}]}, status: {podIP: 10.0.0.2}}
`))
		if err != nil {
			t.Fatal(err)
		}
		r, err := f.plane.translation().Translate(set)
		if err != nil {
			t.Fatal(err)
		}
		return r.Sidecars
	}
	pay, cart := f.connect("shop/pay-1"), f.connect("shop/cart-1")
	last := func(s *sidecarClient) (is *model.Issued, n int) {
		s.mu.Lock()
		defer s.mu.Unlock()
		if n = len(s.configs); n > 0 {
			is = s.configs[n-1].Issued(model.WorkloadIdentity)
		}
		return is, n
	}
	has := func(s *sidecarClient, roots string, names ...string) {
		t.Helper()
		want := workload.IssuedOf(names, []byte(roots))
		f.until("it knows "+strings.Join(names, ","), func() bool {
			is, _ := last(s)
			return is != nil && *is == (model.Issued{Names: want.Names, Roots: want.Roots})
		})
	}
	f.know(of("pay"))
	f.until("both have a configuration", func() bool { _, n := last(pay); _, m := last(cart); return n > 0 && m > 0 })
	if is, _ := last(pay); is != nil {
		t.Errorf("it is not known by what is signed, and the pod is told %+v", is)
	}
	roots.Store(&first)
	f.rerooted()
	has(pay, first, "pay")
	has(cart, first)
	_, before := last(cart)
	f.know(of("pay.shop"))
	has(pay, first, "pay.shop")
	f.until("all are made", func() bool { return f.status().Due == 0 })
	if _, n := last(cart); n != before {
		t.Error("a pod was told of another's names")
	}
	both := first + root()
	roots.Store(&both)
	f.rerooted()
	has(pay, both, "pay.shop")
	has(cart, both)
}
