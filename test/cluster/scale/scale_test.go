package scale

import (
	"os"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/cluster/components"
	"github.com/weirmesh/weir/test/weirtest"
)

func TestMain(m *testing.M) {
	weirtest.StandIn()
	Main() // this program starts itself again to measure
	os.Exit(m.Run())
}

// All of it at a small size, and what does not depend on time: everything is served and has its status, and what is sent
// for a change is the change.
func TestAChangeSendsOnePartHoweverMuchThereIs(t *testing.T) {
	if testing.Short() {
		t.Skip("sidecars, in the short form, have a controller and an API server, too")
	}
	const source = "../../.."
	o := Options{
		Routes: 500, Services: 100, Changes: 5, Pause: 100 * time.Millisecond, Weir: weirtest.Path(t), Source: source,
		Cache: components.Cache{Log: os.Stderr},
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	if r.Served != o.Routes {
		t.Errorf("%d of %d routes are served", r.Served, o.Routes)
	}
	// A listener, and each route and Service.
	if want := float64(1 + o.Routes + o.Services); r.FirstSend.Parts != want || r.FirstSend.Bytes < 100*want {
		t.Errorf("the proxy was first sent %+v, want %.0f parts", r.FirstSend, want)
	}
	for _, c := range []*Changes{&r.RouteChanges, &r.EndpointChanges} {
		if len(c.All) != o.Changes {
			t.Errorf("%d changes of a %s, want %d", len(c.All), c.What, o.Changes)
		}
		for i, x := range c.All {
			if x.Sent.Parts != 1 || x.Sent.Responses != 1 || x.Sent.Bytes <= 0 || x.Sent.Bytes > 4<<10 {
				t.Errorf("change %d of a %s sent %+v, want one part of a few hundred bytes", i, c.What, x.Sent)
			}
		}
	}
}

// The mesh at a small size: sidecars get what they ask for, and of changes those alone are told that use what changed.
func TestAChangeIsToldToTheSidecarsThatUseIt(t *testing.T) {
	if testing.Short() {
		t.Skip("internal/feed shows it")
	}
	o := Options{
		Services: 60, Sidecars: 20, Changes: 5, Pause: 200 * time.Millisecond, Weir: weirtest.Path(t), Source: "../../..",
		Cache: components.Cache{Log: os.Stderr},
	}
	r, err := Run(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	m := r.Mesh
	if len(m.Asked) != o.Sidecars*usesOf || len(m.Changes) != o.Changes || m.Controller.Peak <= 0 {
		t.Fatalf("measured %+v", m)
	}
	for i, c := range m.Changes {
		if c.Users == 0 || c.Told != c.Users || c.Sent.Responses != float64(c.Users) || c.Sent.Bytes <= 0 || c.Sent.Bytes > float64(c.Users*4<<10) {
			t.Errorf("change %d: %+v, want that the users alone are told, with a few hundred bytes each", i, c)
		}
	}
}
