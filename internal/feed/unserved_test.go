package feed

import (
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	"google.golang.org/protobuf/types/known/structpb"
)

// TestServerKnowsWhatAProxyDoesNotServe reports ports that cannot be bound when the proxy applies, and ports that
// become free later, without a new configuration.
func TestServerKnowsWhatAProxyDoesNotServe(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	address, stop := w.serve(s, "")
	client := w.client("a", address)
	var unserved atomic.Pointer[[]Unserved]
	set := func(u ...Unserved) { unserved.Store(&u) }
	one, two := Unserved{gateway + "/http", "port 80: permission denied"}, Unserved{gateway + "/https", "port 443: permission denied"}
	set(one)
	client.Unserved = func() []Unserved { return *unserved.Load() }
	p := w.run(client)
	c := config(1, 1)
	publish(t, s, c)
	p.serves(c)
	is := func(s *Server, what string, want ...Unserved) {
		t.Helper()
		until(t, what, func() bool {
			running := s.Running(gateway)
			return len(running) == 1 && running[0].Version == Version(c) && running[0].Err == "" && slices.Equal(running[0].Unserved, want)
		})
	}
	is(s, "one as it applies", one)
	set(one, two)
	client.Tell()
	is(s, "two later", one, two)
	c = moved(c, 0, "10.200.0.1:8080")
	publish(t, s, c)
	p.serves(c)
	is(s, "the same with another configuration", one, two)
	// Another control plane hears of it as the proxy comes.
	stop()
	other := w.server()
	publish(t, other, c)
	w.serve(other, address)
	is(other, "another control plane", one, two)
	set()
	client.Tell()
	is(other, "none any more")
	set(two)
	client.Tell()
	is(other, "again", two)
}

func TestWhatAProxySaysItDoesNotServeIsBounded(t *testing.T) {
	list := &structpb.ListValue{}
	for i := range 1000 {
		list.Values = append(list.Values, structpb.NewStructValue(&structpb.Struct{Fields: map[string]*structpb.Value{
			"listener": structpb.NewStringValue(fmt.Sprintf("%d%s", i, strings.Repeat("x", 10_000))), "reason": structpb.NewStringValue("a\nb\x00" + strings.Repeat("y", 10_000)),
		}}))
	}
	list.Values[0] = structpb.NewStringValue("no struct")
	got := unservedOf(&core.Node{Metadata: &structpb.Struct{Fields: map[string]*structpb.Value{unservedKey: structpb.NewListValue(list)}}})
	if len(got) != maxUnserved {
		t.Errorf("%d are kept", len(got))
	}
	for _, u := range got {
		if len(u.Listener) > maxError+3 || len(u.Reason) > maxReason+3 || strings.ContainsAny(u.Reason, "\n\x00") {
			t.Fatalf("kept: %.300q", u)
		}
	}
	if unservedOf(nil) != nil || unservedOf(&core.Node{}) != nil {
		t.Error("something is made of nothing")
	}
}
