package feed

import (
	"context"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"github.com/weirmesh/weir/internal/model"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestAConfigurationIsForOneOwnerWhileItIsConnected sets those of workloads beside a Gateway's, which is published.
func TestAConfigurationIsForOneOwnerWhileItIsConnected(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Linger = 10 * time.Millisecond
	told := make(chan model.Owner, 100)
	s.OnChange = func(owner model.Owner) { told <- owner }
	gatewayOwn := config(3, 2)
	edge, address, _ := w.begin(s, gatewayOwn)
	cart, pay := model.WorkloadOwner("shop", "cart-1"), model.WorkloadOwner("shop", "pay-1")
	client := func(owner model.Owner) *proxy {
		c := w.client(owner.Name(), address)
		c.Owner, c.StateFile, c.TokenFile = owner, "", w.write(owner.Name()+".token", fmt.Sprintf("good:%s:%s\n", owner, owner.Name()))
		return w.run(c)
	}
	has := func(owner model.Owner) bool {
		s.mu.Lock()
		defer s.mu.Unlock()
		return s.feeds[owner] != nil
	}
	one, two := config(1, 1), config(2, 1)
	if connected, err := s.Set(cart, one, nil); connected || err != nil || has(cart) {
		t.Fatalf("nobody is connected: %t, %v", connected, err)
	}
	first, second := client(cart), client(pay)
	for want := []model.Owner{cart, pay}; len(want) > 0; {
		owner := <-told
		want = slices.DeleteFunc(want, func(o model.Owner) bool { return o == owner })
	}
	for range 2 { // the second time, it is what it was
		if connected, err := s.Set(cart, one, nil); !connected || err != nil {
			t.Fatal(connected, err)
		}
	}
	first.serves(one)
	if connected, err := s.Set(pay, two, nil); !connected || err != nil {
		t.Fatal(connected, err)
	}
	second.serves(two)

	// What is published is about others.
	gatewayOwn = moved(gatewayOwn, 0, "10.8.0.1:80")
	publish(t, s, gatewayOwn)
	edge.serves(gatewayOwn)
	if s.Version(cart) != Version(one) || s.Version(pay) != Version(two) || first.applied() != 1 || second.applied() != 1 {
		t.Errorf("the workloads have %q and %q, after %d and %d configurations", s.Version(cart), s.Version(pay), first.applied(), second.applied())
	}

	first.stop()
	until(t, "a workload that has gone is forgotten", func() bool { return !has(cart) })
	if connected, _ := s.Set(cart, one, nil); connected || has(cart) {
		t.Error("it is remembered again")
	}
	if !has(pay) || !has(gateway) {
		t.Error("others are forgotten with it")
	}
	if s.Publish(nil); s.Version(pay) != Version(two) {
		t.Error("what is published no more was not a workload's")
	}
}

// TestWhoComesAndSaysNothingIsForgotten has streams that end before their first request.
func TestWhoComesAndSaysNothingIsForgotten(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.init()
	for i := range 50 {
		owner := model.WorkloadOwner("shop", fmt.Sprint("pod-", i))
		ctx, end := context.WithCancel(t.Context())
		session := s.open(ctx, owner, "shop/x", nil, end)
		if connected, err := s.Set(owner, config(1, 1), nil); !connected || err != nil {
			t.Fatal(connected, err)
		}
		s.close(session)
		end()
	}
	if len(s.feeds) != 0 {
		t.Errorf("%d owners are remembered", len(s.feeds))
	}
}

// TestOwnersComeAndGoWhileTheirConfigurationsAreMade does all at once, for the race detector, and holds that nothing is left.
func TestOwnersComeAndGoWhileTheirConfigurationsAreMade(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.init()
	one, two := config(5, 2), config(6, 2)
	var all sync.WaitGroup
	for i := range 4 {
		owner := model.WorkloadOwner("shop", fmt.Sprint("pod-", i))
		all.Go(func() {
			for range 100 {
				ctx, end := context.WithCancel(context.Background())
				s.close(s.open(ctx, owner, "shop/x", nil, end))
				end()
			}
		})
		all.Go(func() {
			for n := range 100 {
				c := one
				if n%2 == 0 {
					c = two
				}
				if _, err := s.Set(owner, c, nil); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 20 {
		s.Publish(map[model.Owner]*model.Config{gateway: one})
	}
	all.Wait()
	if len(s.feeds) != 1 || s.feeds[gateway] == nil {
		t.Errorf("left: %d owners", len(s.feeds))
	}
}

// TestTheLogNamesOwnersByTheirKind reads what is said of a workload's proxy.
func TestTheLogNamesOwnersByTheirKind(t *testing.T) {
	for owner, want := range map[model.Owner]string{"shop/edge": "gateway=shop/edge", model.WorkloadOwner("shop", "cart-1"): "workload=shop/cart-1"} {
		if got := whose(owner).String(); !strings.Contains(got, want) {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// TestWhatOwnersHaveInCommonIsEncodedOnce has two workloads with a common part, of which one has a part of its own in place.
func TestWhatOwnersHaveInCommonIsEncodedOnce(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	address, _ := w.serve(s, "")
	cart, pay := model.WorkloadOwner("shop", "cart-1"), model.WorkloadOwner("shop", "pay-1")
	own := func(port int32) *model.Config {
		return &model.Config{Listeners: []model.Listener{{Name: "shop/own", Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "own"}, Port: port, Protocol: model.HTTP}}}
	}
	shared := config(20, 10)
	both := func(own, shared *model.Config) *model.Config {
		c := model.Merge(*own, *shared)
		return &c
	}
	common, err := NewCommon(shared, nil)
	if err != nil {
		t.Fatal(err)
	}
	proxies := map[model.Owner]*proxy{}
	for _, owner := range []model.Owner{cart, pay} {
		c := w.client(owner.Name(), address)
		c.Owner, c.StateFile, c.TokenFile = owner, "", w.write(owner.Name()+".token", fmt.Sprintf("good:%s:%s\n", owner, owner.Name()))
		proxies[owner] = w.run(c)
	}
	instead := own(8081)
	instead.Services = []model.Service{{Name: shared.Services[3].Name, Protocol: model.H2C}}
	set := func(own map[model.Owner]*model.Config, common *Common) {
		t.Helper()
		for owner, c := range own {
			until(t, "the workload is connected", func() bool {
				connected, err := s.Set(owner, c, common)
				if err != nil {
					t.Fatal(err)
				}
				return connected
			})
		}
	}
	set(map[model.Owner]*model.Config{cart: own(8080), pay: instead}, common)
	proxies[cart].serves(both(own(8080), shared))
	proxies[pay].serves(both(instead, shared))
	at := func(owner model.Owner) map[string]*part {
		s.mu.Lock()
		defer s.mu.Unlock()
		out := map[string]*part{}
		for _, p := range s.feeds[owner].current.Load().parts {
			out[p.name] = p
		}
		return out
	}
	same := 0
	for name, p := range at(cart) {
		if at(pay)[name] == p {
			same++
		}
	}
	if want := len(common.parts.parts) - 1; same != want {
		t.Errorf("%d parts are shared, want %d", same, want)
	}
	// A change of what is common is one part for each.
	before := s.Stats()
	shared = moved(shared, 0, "10.9.9.9:80")
	if common, err = NewCommon(shared, common); err != nil {
		t.Fatal(err)
	}
	set(map[model.Owner]*model.Config{cart: own(8080), pay: instead}, common)
	proxies[cart].serves(both(own(8080), shared))
	proxies[pay].serves(both(instead, shared))
	if n := s.Stats().Parts - before.Parts; n != 2 {
		t.Errorf("%d parts are sent to two", n)
	}
}

// TestPublishLeavesAloneWhoIsSetMeanwhile for an owner that it saw before.
func TestPublishLeavesAloneWhoIsSetMeanwhile(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.init()
	owner := model.WorkloadOwner("shop", "cart-1")
	ctx, end := context.WithCancel(t.Context())
	defer end()
	session := s.open(ctx, owner, "shop/cart-1", nil, end)
	defer s.close(session)
	c := config(1, 1)
	if connected, err := s.Set(owner, c, nil); !connected || err != nil {
		t.Fatal(connected, err)
	}
	if err := s.publish(owner, nil); err != nil || s.Version(owner) != Version(c) {
		t.Errorf("%v, version %q", err, s.Version(owner))
	}
}

// TestServerKnowsTheProxiesOfWorkloads: which are connected, what they serve, when their identities end, and whether one
// serves something old for longer than it may.
func TestServerKnowsTheProxiesOfWorkloads(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	_, address, _ := w.begin(s, config(1, 1))
	owner := model.WorkloadOwner("shop", "cart-1")
	c := w.client(owner.Name(), address)
	c.Owner, c.StateFile, c.TokenFile = owner, "", w.write("cart.token", fmt.Sprintf("good:%s:shop/cart-1\n", owner))
	var ends atomic.Int64
	c.Ends = func() time.Time {
		if at := ends.Load(); at > 0 {
			return time.Unix(at, 12345)
		}
		return time.Time{}
	}
	p := w.run(c)
	until(t, "it is connected", func() bool { return len(s.Running(owner)) == 1 })
	if got := s.Alone(); len(got) != 0 {
		t.Errorf("before it was given anything: %+v", got)
	}
	one := config(1, 1)
	if _, err := s.Set(owner, one, nil); err != nil {
		t.Fatal(err)
	}
	p.serves(one)
	is := func(what string, want Alone) {
		t.Helper()
		until(t, what, func() bool {
			got := s.Alone()
			return len(got) == 1 && got[0].Owner == owner && got[0].Name == "shop/cart-1" && got[0].Version == want.Version && got[0].Ends.Equal(want.Ends) && got[0].Behind == want.Behind
		})
	}
	is("what it serves", Alone{Proxy: Proxy{Version: Version(one)}})
	for _, at := range []int64{1_800_000_000, 1_900_000_000, 0} {
		ends.Store(at)
		c.Tell()
		want := time.Time{}
		if at > 0 {
			want = time.Unix(at, 0)
		}
		is("when its identity ends", Alone{Proxy: Proxy{Version: Version(one), Ends: want}})
	}
	if w.late(s) != 0 {
		t.Error("it is behind, though it serves what it was given")
	}
	// It applies nothing.
	p.mu.Lock()
	two := config(1, 2)
	if _, err := s.Set(owner, two, nil); err != nil {
		t.Fatal(err)
	}
	is("soon after a change", Alone{Proxy: Proxy{Version: Version(one)}})
	until(t, "it is behind", func() bool { return w.late(s) == 1 })
	is("long after a change", Alone{Proxy: Proxy{Version: Version(one)}, Behind: true})
	p.mu.Unlock()
	is("it serves the change", Alone{Proxy: Proxy{Version: Version(two)}})
	p.stop()
	until(t, "who has gone is not there", func() bool { return len(s.Alone()) == 0 })
}

// late has more time than Patience pass for those that do not serve what they were sent, and counts the proxies that are behind.
func (w *world) late(s *Server) (n int) {
	s.mu.Lock()
	var all []*session
	for _, f := range s.feeds {
		all = slices.AppendSeq(all, maps.Values(f.sessions))
	}
	s.mu.Unlock()
	for _, x := range all {
		x.mu.Lock()
		if !x.due.IsZero() {
			x.due = x.due.Add(-Patience)
		}
		x.mu.Unlock()
	}
	for _, a := range s.Alone() {
		if a.Behind {
			n++
		}
	}
	return n
}

// TestTheEndOfAnIdentityIsBounded, as a proxy may say anything.
func TestTheEndOfAnIdentityIsBounded(t *testing.T) {
	for _, v := range []*structpb.Value{
		structpb.NewStringValue("1800000000"), structpb.NewNumberValue(-1), structpb.NewNumberValue(0), structpb.NewNumberValue(1e300), structpb.NewNumberValue(math.NaN()), structpb.NewNumberValue(math.Inf(1)),
	} {
		if got := stateOf(&core.Node{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{endsKey: v}}}); !got.ends.IsZero() {
			t.Errorf("%v is %v", v, got.ends)
		}
	}
}
