package feed

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirmesh/weir/internal/model"
)

func destinationAt(i int) netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 96, byte(i >> 8), byte(i)}), 80)
}

// mesh is what is at the destinations of the numbers below count, each with an endpoint that version names.
func mesh(count, version int) func(string, netip.AddrPort) *model.Config {
	return func(_ string, to netip.AddrPort) *model.Config {
		if !to.Addr().Is4() {
			return nil
		}
		a := to.Addr().As4()
		i := int(a[2])<<8 | int(a[3])
		if to != destinationAt(i) || i >= count {
			return nil
		}
		return &model.Config{
			Listeners: []model.Listener{{Name: "outbound/" + to.String(), Ref: model.Ref{Kind: "Service", Namespace: "n", Name: fmt.Sprint("s", i)}, Redirect: model.RedirectOutbound, Address: to.Addr().String(), Port: 80, Protocol: model.HTTP}},
			Services:  []model.Service{{Name: fmt.Sprintf("n/s%d:80", i), Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: fmt.Sprintf("10.1.0.%d:80", version)}}}},
		}
	}
}

// agreed has no connection that is in the way of Forget.
func agreed(netip.AddrPort) bool { return true }

// base is what a proxy has without questions.
func base(t testing.TB) (*model.Config, *Common) {
	t.Helper()
	c := &model.Config{Listeners: []model.Listener{{Name: "own", Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "own"}, Redirect: model.RedirectInbound, Port: 8080, Protocol: model.HTTP}}}
	common, err := NewCommon(&model.Config{Services: []model.Service{{Name: "cluster/anywhere:0", Protocol: model.HTTP, Meant: true}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	common.Partial = true
	return c, common
}

func (w *world) asking(name, address string) (*proxy, *Destinations) {
	w.t.Helper()
	c := w.sidecar(name, address)
	c.Destinations = &Destinations{}
	return w.run(c), c.Destinations
}

func (w *world) sidecar(name, address string) *Client {
	c := w.client(name, address)
	c.Owner, c.StateFile = model.WorkloadOwner("shop", name), ""
	c.TokenFile = w.write(name+".token", fmt.Sprintf("good:%s:%s\n", c.Owner, name))
	return c
}

func (w *world) feed(s *Server, name string, own *model.Config, common *Common) {
	w.t.Helper()
	until(w.t, "the workload is connected", func() bool {
		connected, err := s.Set(model.WorkloadOwner("shop", name), own, common)
		if err != nil {
			w.t.Fatal(err)
		}
		return connected && s.Asks(model.WorkloadOwner("shop", name)) == (common != nil && common.Partial)
	})
}

// endpoint is the first endpoint of a destination's service in what a proxy serves, "" if it has none.
func (p *proxy) endpoint(i int) string {
	c := p.last()
	if c == nil {
		return ""
	}
	for _, s := range c.Services {
		if s.Name == fmt.Sprintf("n/s%d:80", i) {
			return s.Endpoints[0].Address
		}
	}
	return ""
}

// TestDestinationsOutlastARestartWithoutAControlPlane has a proxy end and begin again, from its state file alone, and then with a
// control plane that has another endpoint by then.
func TestDestinationsOutlastARestartWithoutAControlPlane(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Destinations = true
	address, stop := w.serve(s, "")
	s.Direct(mesh(2000, 1))
	own, common := base(t)
	begin := func() (*proxy, *Destinations) {
		c := w.sidecar("cart-1", address)
		c.Destinations, c.StateFile = &Destinations{}, filepath.Join(w.dir, "state")
		return w.run(c), c.Destinations
	}
	first, asks := begin()
	w.feed(s, "cart-1", own, common)
	for _, i := range []int{7, 9, 3000} { // nothing is at the last one
		if err := asks.Find(t.Context(), destinationAt(i)); err != nil {
			t.Fatal(err)
		}
	}
	first.stop()
	stop()

	again, asks := begin()
	until(t, "the state is served", func() bool { return again.endpoint(7) == "10.1.0.1:80" && again.endpoint(9) == "10.1.0.1:80" })
	if n := asks.Kept(); n != 2 {
		t.Errorf("%d destinations are known", n)
	}
	if err := asks.Find(t.Context(), destinationAt(7)); err != nil {
		t.Errorf("a destination of before: %v", err)
	}
	short, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if err := asks.Find(short, destinationAt(3000)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("another one: %v, want it to wait for a control plane", err)
	}

	s = w.server()
	s.Destinations = true
	s.Direct(mesh(2000, 2))
	_, stop = w.serve(s, address)
	defer stop()
	w.feed(s, "cart-1", own, common)
	until(t, "the change is served", func() bool { return again.endpoint(7) == "10.1.0.2:80" && again.endpoint(9) == "10.1.0.2:80" })
}

// TestDestinationsAreSentToThoseThatAskForThem has proxies that ask for what is known and what is not, a change, and the end
// of a use.
func TestDestinationsAreSentToThoseThatAskForThem(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Destinations = true
	address, stop := w.serve(s, "")
	var made atomic.Int64
	s.Direct(func(_ string, to netip.AddrPort) *model.Config { made.Add(1); return mesh(2000, 1)("", to) })
	own, common := base(t)
	cart, asks := w.asking("cart-1", address)
	pay, others := w.asking("pay-1", address)
	w.feed(s, "cart-1", own, common)
	w.feed(s, "pay-1", own, common)
	find := func(d *Destinations, i int) {
		t.Helper()
		if err := d.Find(t.Context(), destinationAt(i)); err != nil {
			t.Fatalf("%d: %v", i, err)
		}
	}
	var all sync.WaitGroup
	for range 20 { // they share a question
		all.Go(func() { find(asks, 7) })
	}
	all.Wait()
	if made.Load() != 1 || cart.endpoint(7) != "10.1.0.1:80" || len(cart.last().Listeners) != 2 {
		t.Fatalf("made %d times, at %q, %d listeners", made.Load(), cart.endpoint(7), len(cart.last().Listeners))
	}
	find(others, 8)
	find(asks, 3000) // nothing there
	find(asks, 3000)
	if asks.Kept() != 1 || cart.endpoint(3000) != "" || made.Load() != 3 {
		t.Errorf("%d are kept, made %d", asks.Kept(), made.Load())
	}

	// A change of one of 2,000 costs those that use it.
	before := s.Stats()
	applied := pay.applied()
	s.Direct(func(_ string, to netip.AddrPort) *model.Config {
		if to == destinationAt(7) {
			return mesh(2000, 2)("", to)
		}
		return mesh(2000, 1)("", to)
	})
	until(t, "the change is served", func() bool { return cart.endpoint(7) == "10.1.0.2:80" })
	after := s.Stats()
	if after.Responses-before.Responses != 1 || after.Parts-before.Parts != 1 || pay.applied() != applied {
		t.Errorf("%d responses with %d parts, and another proxy got %d", after.Responses-before.Responses, after.Parts-before.Parts, pay.applied()-applied)
	}

	// Another control plane takes over: nothing is missing meanwhile, and nothing is sent again.
	stop()
	find(asks, 7)
	find(asks, 3000)
	applied = cart.applied()
	again := w.server()
	again.Destinations = true
	w.serve(again, address)
	again.Direct(mesh(2000, 2))
	w.feed(again, "cart-1", own, common)
	find(asks, 9)
	if cart.endpoint(7) != "10.1.0.2:80" || cart.endpoint(9) != "10.1.0.2:80" || cart.applied() != applied+1 {
		t.Errorf("serves %q and %q after %d more configurations", cart.endpoint(7), cart.endpoint(9), cart.applied()-applied)
	}

	// What is unused is given back.
	asks.mu.Lock()
	for to := range asks.kept {
		asks.kept[to] = time.Now().Add(-unusedTime)
	}
	asks.mu.Unlock()
	asks.Forget(map[netip.AddrPort]bool{destinationAt(9): true}, agreed)
	until(t, "what is not used has gone", func() bool { return cart.endpoint(7) == "" })
	if cart.endpoint(9) == "" || asks.Kept() != 1 {
		t.Error("what is used has gone, too")
	}
	until(t, "the control plane has forgotten it", func() bool {
		again.directory.mu.Lock()
		defer again.directory.mu.Unlock()
		return again.directory.used[destinationAt(7)] == nil && again.directory.used[destinationAt(9)] != nil
	})
	cart.stop()
	until(t, "nothing is left of a proxy that has gone", func() bool {
		again.directory.mu.Lock()
		defer again.directory.mu.Unlock()
		return again.directory.used[destinationAt(9)] == nil
	})
}

// TestAControlPlaneThatHasReadNothingAnswersNothing has one take over that cannot say yet what is where: what is in use stays,
// and questions wait.
func TestAControlPlaneThatHasReadNothingAnswersNothing(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Destinations = true
	address, stop := w.serve(s, "")
	s.Direct(mesh(20, 1))
	own, common := base(t)
	cart, asks := w.asking("cart-1", address)
	w.feed(s, "cart-1", own, common)
	for i := range 10 {
		if err := asks.Find(t.Context(), destinationAt(i)); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	applied := cart.applied()
	again := w.server()
	again.Destinations = true
	w.serve(again, address)
	w.feed(again, "cart-1", own, common)
	found := make(chan error, 1)
	go func() { found <- asks.Find(t.Context(), destinationAt(10)) }()
	until(t, "all questions are with the control plane", func() bool {
		again.mu.Lock()
		defer again.mu.Unlock()
		for _, f := range again.feeds {
			for _, session := range f.sessions {
				session.mu.Lock()
				n := len(session.sub.waiting)
				session.mu.Unlock()
				if n == 10 || n == 11 { // the new one is asked with the first request, or after the first response
					return true
				}
			}
		}
		return false
	})
	if again.Stats().Responses != 0 || asks.Kept() != 10 {
		t.Errorf("%d responses, %d are kept", again.Stats().Responses, asks.Kept())
	}
	again.Direct(mesh(20, 1))
	if err := <-found; err != nil {
		t.Fatal(err)
	}
	if asks.Kept() != 11 || cart.applied() != applied+1 {
		t.Errorf("%d are kept after %d more configurations", asks.Kept(), cart.applied()-applied)
	}
	cart.mu.Lock()
	defer cart.mu.Unlock()
	for i, c := range cart.configs[applied-1:] {
		if len(c.Services) != 11+i {
			t.Errorf("%d services after %d more configurations", len(c.Services), i)
		}
	}
}

// TestProxiesThatDoNotAskGetEverything has releases of different ages on both sides.
func TestProxiesThatDoNotAskGetEverything(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Destinations = true
	address, _ := w.serve(s, "")
	s.Direct(mesh(10, 1))
	own, common := base(t)
	everything, err := NewCommon(mesh(10, 1)("", destinationAt(1)), nil)
	if err != nil {
		t.Fatal(err)
	}
	old := w.run(w.sidecar("old-1", address))
	until(t, "it is connected", func() bool {
		connected, err := s.Set(model.WorkloadOwner("shop", "old-1"), own, common)
		return connected && err == nil
	})
	until(t, "the control plane has heard of it", func() bool { return len(s.Running(model.WorkloadOwner("shop", "old-1"))) == 1 })
	if s.Stats().Responses != 0 {
		t.Error("a proxy that does not ask got a part of it")
	}
	w.feed(s, "old-1", own, everything)
	until(t, "it has everything", func() bool { return old.endpoint(1) != "" })

	older := w.server() // of before there were questions
	address, stop := w.serve(older, "")
	young, asks := w.asking("young-1", address)
	found := make(chan error, 1)
	go func() { found <- asks.Find(t.Context(), destinationAt(1)) }()
	w.feed(older, "young-1", own, everything)
	if err := <-found; err != nil || young.endpoint(1) == "" || asks.Find(t.Context(), destinationAt(2)) != nil {
		t.Errorf("%v, serves %q", err, young.endpoint(1))
	}

	// The control plane becomes a younger one: what is in use stays.
	asks.mu.Lock()
	asks.Used = func() map[netip.AddrPort]bool { return map[netip.AddrPort]bool{destinationAt(1): true} }
	asks.mu.Unlock()
	stop()
	younger := w.server()
	younger.Destinations = true
	younger.Direct(mesh(10, 1))
	w.serve(younger, address)
	w.feed(younger, "young-1", own, common)
	until(t, "questions are answered", func() bool { return asks.Find(t.Context(), destinationAt(2)) == nil && asks.Kept() == 2 })
	young.mu.Lock()
	defer young.mu.Unlock()
	for i, c := range young.configs {
		if !slices.ContainsFunc(c.Services, func(s model.Service) bool { return s.Name == "n/s1:80" }) {
			t.Errorf("what is in use is not in configuration %d of %d", i, len(young.configs))
		}
	}
}

// TestQuestionsEndWithoutAControlPlane waits as long as it may, and not for more than may be under way.
func TestQuestionsEndWithoutAControlPlane(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := &Destinations{}
		start := time.Now()
		var all sync.WaitGroup
		for i := range maxQuestions {
			all.Go(func() {
				if err := d.Find(t.Context(), destinationAt(i)); !errors.Is(err, ErrUnanswered) || time.Since(start) != answerTime {
					t.Errorf("after %s: %v", time.Since(start), err)
				}
			})
		}
		synctest.Wait()
		if err := d.Find(t.Context(), destinationAt(1000)); !errors.Is(err, ErrUnanswered) || time.Since(start) != 0 {
			t.Errorf("one more, after %s: %v", time.Since(start), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := d.Find(ctx, destinationAt(1)); !errors.Is(err, context.Canceled) {
			t.Errorf("who leaves: %v", err)
		}
		all.Wait()
		if len(d.questions) != 0 {
			t.Errorf("%d questions are left", len(d.questions))
		}
		// What is not known is remembered, for a while and up to a number.
		d.connected = true
		for i := range 2 * maxUnknown {
			d.applied([]question{{destinationAt(i), false}})
		}
		if len(d.unknown) != maxUnknown {
			t.Errorf("%d are remembered", len(d.unknown))
		}
		time.Sleep(unknownTime)
		d.Forget(nil, agreed)
		if len(d.unknown) != 0 {
			t.Errorf("%d are remembered for ever", len(d.unknown))
		}
	})
}

// TestADestinationThatIsTooLargeStaysAsItWas has one grow until it cannot be sent, and another control plane take over that never
// could send it: who has it goes on with what it has, others do not get it, and all have the newest once it can be sent.
func TestADestinationThatIsTooLargeStaysAsItWas(t *testing.T) {
	w := newWorld(t)
	large := func(version int) func(string, netip.AddrPort) *model.Config {
		return func(_ string, to netip.AddrPort) *model.Config {
			c := mesh(20, version)("", to)
			if to == destinationAt(7) {
				c.Services[0].Endpoints[0].Address = strings.Repeat("1", maxPart)
			}
			return c
		}
	}
	s := w.server()
	s.Destinations = true
	address, stop := w.serve(s, "")
	s.Direct(mesh(20, 1))
	own, common := base(t)
	cart, asks := w.asking("cart-1", address)
	w.feed(s, "cart-1", own, common)
	for _, i := range []int{7, 8} {
		if err := asks.Find(t.Context(), destinationAt(i)); err != nil {
			t.Fatal(err)
		}
	}
	have := func(what, seven, eight string) {
		t.Helper()
		until(t, what+": "+eight+" is served", func() bool { return cart.endpoint(8) == eight+":80" })
		if got := cart.endpoint(7); got != seven+":80" || asks.Kept() != 2 || len(cart.last().Listeners) != 3 {
			t.Errorf("%s: serves %q, want %q; %d are kept; %d listeners", what, got, seven, asks.Kept(), len(cart.last().Listeners))
		}
	}
	told := func(s *Server, is bool) {
		t.Helper()
		until(t, fmt.Sprint("the control plane says so: ", is), func() bool {
			all, alone := s.Unsent(), s.Alone()
			return (len(all) == 1 && all[0].Destination == destinationAt(7) && strings.Contains(all[0].Reason, "service/n/s7:80")) == is && len(alone) > 0 && alone[0].Name == "cart-1" && alone[0].Unsent == is
		})
	}
	have("before", "10.1.0.1", "10.1.0.1")
	told(s, false)
	s.Direct(large(2))
	have("it has grown", "10.1.0.1", "10.1.0.2")
	told(s, true)

	stop()
	again := w.server()
	again.Destinations = true
	w.serve(again, address)
	again.Direct(large(3))
	w.feed(again, "cart-1", own, common)
	have("another control plane", "10.1.0.1", "10.1.0.3")
	told(again, true)
	again.Direct(large(4))
	have("and a change there", "10.1.0.1", "10.1.0.4")

	pay, others := w.asking("pay-1", address)
	w.feed(again, "pay-1", own, common)
	soon, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if err := others.Find(soon, destinationAt(7)); err == nil || pay.endpoint(7) != "" || others.Kept() != 0 {
		t.Errorf("a proxy that never had it: %v, serves %q", err, pay.endpoint(7))
	}
	if all := again.Alone(); len(all) != 2 || all[1].Unsent {
		t.Errorf("of it is said: %+v", all)
	}

	again.Direct(mesh(20, 5))
	have("it fits again", "10.1.0.5", "10.1.0.5")
	told(again, false)
	if err := others.Find(t.Context(), destinationAt(7)); err != nil || pay.endpoint(7) != "10.1.0.5:80" {
		t.Errorf("a proxy that never had it: %v, serves %q", err, pay.endpoint(7))
	}
	again.Direct(large(6))
	have("and no more", "10.1.0.5", "10.1.0.6")
	again.Direct(mesh(7, 7)) // 7 and 8 are gone
	until(t, "what is known no more has gone", func() bool { return cart.endpoint(7) == "" && cart.endpoint(8) == "" })
	told(again, false)
}

// TestAStreamAsksForABoundedNumber has a peer of its own, which asks for more.
func TestAStreamAsksForABoundedNumber(t *testing.T) {
	s := &Server{Destinations: true}
	s.init()
	s.Direct(mesh(5000, 1))
	session := s.open(t.Context(), model.WorkloadOwner("shop", "cart-1"), "shop/cart-1", nil, func() {})
	defer s.close(session)
	request := func(subscribe, unsubscribe []string) error {
		return session.request(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: subscribe, ResourceNamesUnsubscribe: unsubscribe})
	}
	r := (&receiver{client: &Client{Owner: session.owner, Destinations: &Destinations{}}}).hello()
	if err := session.request(r); err != nil {
		t.Fatal(err)
	}
	var err error
	n := 0
	for ; err == nil; n++ {
		err = request([]string{destinationName(destinationAt(n))}, nil)
		session.mu.Lock()
		session.sub.asked = nil // sent
		session.mu.Unlock()
	}
	if status.Code(err) != codes.ResourceExhausted || n != maxDestinations+1 {
		t.Errorf("after %d: %v", n, err)
	}
	for err = nil; err == nil && n < 10*askBurst; n++ {
		if err = request(nil, []string{destinationName(destinationAt(0))}); err == nil {
			err = request([]string{destinationName(destinationAt(0))}, nil)
		}
		session.mu.Lock()
		session.sub.asked = nil
		session.mu.Unlock()
	}
	if status.Code(err) != codes.ResourceExhausted || !strings.Contains(err.Error(), "a second") {
		t.Errorf("after %d: %v", n, err)
	}
	if err := request([]string{"service/n/s:80"}, nil); status.Code(err) != codes.InvalidArgument {
		t.Errorf("another name: %v", err)
	}
}

func FuzzDestinationNames(f *testing.F) {
	for _, name := range []string{"to/10.96.0.10:80", "to/[fd00::1]:443", "to/[::ffff:10.0.0.1]:80", "to/[fe80::1%eth0]:1", "to/10.0.0.1:0", "to/10.0.0.1:080", "*", "to/"} {
		f.Add(name)
	}
	s := &Server{Destinations: true}
	s.init()
	s.Direct(mesh(300, 1))
	f.Fuzz(func(t *testing.T, name string) {
		session := s.open(t.Context(), "workload/shop/cart-1", "shop/cart-1", nil, func() {})
		defer s.close(session)
		r := (&receiver{client: &Client{Owner: session.owner, Destinations: &Destinations{}}}).hello()
		if err := session.request(r); err != nil {
			t.Fatal(err)
		}
		to, wrong := parseDestination(name)
		if wrong == nil && destinationName(to) != name {
			t.Fatalf("%q is read as %s", name, to)
		}
		for _, r := range []*discovery.DeltaDiscoveryRequest{
			{TypeUrl: typeURL, ResourceNamesSubscribe: []string{name}}, {TypeUrl: typeURL, ResourceNamesUnsubscribe: []string{name}},
		} {
			if err := session.request(r); (err == nil) != (wrong == nil) {
				t.Fatalf("%q: %v, read: %v", name, err, wrong)
			}
		}
		if len(session.sub.uses) != 0 || len(session.sub.asked) > 1 || slices.Contains(r.ResourceNamesSubscribe, name) && name != "*" {
			t.Fatalf("%q is left", name)
		}
	})
}

// BenchmarkFirstConnection is the time until what a connection needs is applied, of a service: a question and its answer.
func BenchmarkFirstConnection(b *testing.B) {
	w := newWorld(b)
	s := w.server()
	s.Destinations, s.Logger = true, nil
	address, _ := w.serve(s, "")
	s.Direct(mesh(1<<16, 1))
	own, common := base(b)
	_, asks := w.asking("cart-1", address)
	w.feed(s, "cart-1", own, common)
	i := 0
	for b.Loop() {
		if err := asks.Find(b.Context(), destinationAt(i)); err != nil {
			b.Fatal(err)
		}
		if i++; i%100 == 0 {
			b.StopTimer()
			asks.mu.Lock()
			for to := range asks.kept {
				asks.kept[to] = time.Time{}
			}
			asks.mu.Unlock()
			asks.Forget(nil, agreed)
			time.Sleep(time.Second) // the rate of questions
			b.StartTimer()
		}
	}
}
