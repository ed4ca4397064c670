package feed

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/test/size"
)

func TestLargeConfigurationIsOneStep(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	large := config(size.Of(2_500, 10_000), size.Of(500, 2_000))
	p, _, _ := w.begin(s, large)
	st := s.Stats()
	if st.Responses < 2 || st.Bytes < chunk {
		t.Errorf("%d bytes in %d responses: not large", st.Bytes, st.Responses)
	}
	t.Logf("%d bytes in %d responses", st.Bytes, st.Responses)
	small := config(1, 1)
	publish(t, s, small) // removes most
	publish(t, s, large)
	publish(t, s, small)
	knows(t, s, "a", small)
	p.stop()
	for i, c := range p.configs {
		if v := Version(c); v != Version(large) && v != Version(small) {
			t.Errorf("applied %d: a mixture", i)
		}
	}
}

func TestUnpublishedGatewayWaitsAndMissingOneIsEmptied(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	address, _ := w.serve(s, "")
	if err := s.Publish(map[model.Owner]*model.Config{"default/other": config(1, 1)}); len(err) != 0 {
		t.Fatal(err)
	}
	p := w.run(w.client("a", address))
	until(t, "the proxy is known", func() bool { return len(s.Running(gateway)) == 1 })
	if r := s.Running(gateway)[0]; r.Version != "" || s.Stats().Responses != 0 {
		t.Errorf("running %+v, %d responses", r, s.Stats().Responses)
	}
	c := config(2, 2)
	publish(t, s, c)
	knows(t, s, "a", c)
	if err := s.Publish(nil); len(err) != 0 {
		t.Fatal(err)
	}
	knows(t, s, "a", &model.Config{})
	if n := len(p.last().Listeners); n != 0 {
		t.Errorf("%d listeners", n)
	}
	publish(t, s, c)
	knows(t, s, "a", c)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.feeds["default/other"] != nil {
		t.Error("a Gateway that is published no more and has no proxies is kept for ever")
	}
}

func TestProxyIsForgottenAfterAWhile(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	s.Linger = 50 * time.Millisecond
	var mu sync.Mutex
	changes := 0
	s.OnChange = func(g model.Owner) {
		mu.Lock()
		defer mu.Unlock()
		if changes++; g != gateway {
			t.Errorf("change of %q", g)
		}
	}
	count := func() int { mu.Lock(); defer mu.Unlock(); return changes }
	c := config(2, 2)
	p, _, _ := w.begin(s, c)
	until(t, "its coming is told", func() bool { return count() >= 1 })
	before := count()
	p.stop()
	until(t, "it is forgotten", func() bool { return len(s.Running(gateway)) == 0 })
	until(t, "its going is told", func() bool { return count() > before })
	if n := s.Stats().Proxies; n != 0 {
		t.Errorf("%d proxies", n)
	}
}

// raw opens a stream by hand, as a proxy of that name.
func (w *world) raw(name, address string) (discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesClient, func()) {
	w.t.Helper()
	conn, err := w.client(name, address).dial()
	if err != nil {
		w.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patient)
	stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
	if err != nil {
		w.t.Fatal(err)
	}
	return stream, func() { cancel(); conn.Close() }
}

func TestStuckProxyHoldsUpNobody(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	address, stop := w.serve(s, "")
	large := config(4_000, 400)
	publish(t, s, large)
	stream, end := w.raw("stuck", address)
	defer end()
	if err := stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: []string{"*"}}); err != nil {
		t.Fatal(err)
	}
	until(t, "the first response is under way", func() bool { return s.Stats().Responses == 1 })
	p := w.run(w.client("well", address))
	for i := range size.Of(5, 20) { // the stuck one neither reads nor acknowledges
		large = moved(large, i, "10.250.0.1:1")
		publish(t, s, large)
	}
	p.serves(large)
	knows(t, s, "well", large)
	stop() // ends, too
}

func TestMissedStepsBecomeOne(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	address, _ := w.serve(s, "")
	c := config(10, 10)
	publish(t, s, c)
	stream, end := w.raw("slow", address)
	defer end()
	send := func(r *discovery.DeltaDiscoveryRequest) {
		t.Helper()
		r.TypeUrl = typeURL
		if err := stream.Send(r); err != nil {
			t.Fatal(err)
		}
	}
	receive := func() *discovery.DeltaDiscoveryResponse {
		t.Helper()
		d, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		return d
	}
	send(&discovery.DeltaDiscoveryRequest{})
	first := receive()
	if len(first.Resources) != 21 || first.SystemVersionInfo != Version(c) {
		t.Fatalf("first: %d resources, version %q", len(first.Resources), first.SystemVersionInfo)
	}
	a := moved(c, 1, "10.1.1.1:1")
	publish(t, s, a)
	b := moved(a, 2, "10.1.1.1:1")
	b.Routes = slices.Clone(b.Routes[1:])
	publish(t, s, b)
	send(&discovery.DeltaDiscoveryRequest{ResponseNonce: first.Nonce})
	second := receive()
	var names []string
	for _, r := range second.Resources {
		names = append(names, r.Name)
	}
	slices.Sort(names)
	if want := []string{"service/default/service-00001:80", "service/default/service-00002:80"}; !slices.Equal(names, want) {
		t.Errorf("second: %q", names)
	}
	if want := []string{"route/HTTPRoute/default/route-00000"}; !slices.Equal(second.RemovedResources, want) {
		t.Errorf("removed: %q", second.RemovedResources)
	}
	if r := knows(t, s, "slow", c); r.Err != "" {
		t.Errorf("running: %+v", r)
	}
}

func TestBreachOfProtocolEndsTheStream(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	address, _ := w.serve(s, "")
	publish(t, s, config(2, 2))
	for name, requests := range map[string][]*discovery.DeltaDiscoveryRequest{
		"other type":     {{TypeUrl: "type.googleapis.com/envoy.config.cluster.v3.Cluster"}},
		"no type":        {{}},
		"one part":       {{TypeUrl: typeURL, ResourceNamesSubscribe: []string{"certificate/other/secret"}}},
		"unsubscription": {{TypeUrl: typeURL, ResourceNamesUnsubscribe: []string{"*"}}},
		"second hello":   {{TypeUrl: typeURL}, {TypeUrl: typeURL}},
	} {
		stream, end := w.raw("raw", address)
		for _, r := range requests {
			if err := stream.Send(r); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		for err == nil {
			_, err = stream.Recv()
		}
		if status.Code(err) != codes.InvalidArgument {
			t.Errorf("%s: %v", name, err)
		}
		end()
	}
}

func TestNewStreamOfAProxyEndsItsOldOne(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	address, _ := w.serve(s, "")
	publish(t, s, config(2, 2))
	old, end := w.raw("a", address)
	defer end()
	if err := old.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL}); err != nil {
		t.Fatal(err)
	}
	if _, err := old.Recv(); err != nil {
		t.Fatal(err)
	}
	w.run(w.client("a", address))
	if _, err := old.Recv(); err == nil {
		t.Error("the old stream goes on")
	}
	knows(t, s, "a", config(2, 2))
}

func TestReceiverStartsAnewWhenVersionsDiffer(t *testing.T) {
	r := &receiver{client: &Client{}, apply: func(*model.Config) error { return nil }}
	s, err := newSnapshot(config(2, 2), nil)
	if err != nil {
		t.Fatal(err)
	}
	d := &discovery.DeltaDiscoveryResponse{SystemVersionInfo: s.version}
	for _, p := range s.parts[1:] {
		d.Resources = append(d.Resources, p.resource)
	}
	if _, _, err := r.response(d); err == nil || len(r.has.parts) != 0 {
		t.Errorf("error %v, %d parts", err, len(r.has.parts))
	}
	d.Resources = append(d.Resources, s.parts[0].resource)
	if complete, refusal, err := r.response(d); !complete || refusal != nil || err != nil {
		t.Errorf("complete %t, refusal %v, error %v", complete, refusal, err)
	}
}
