package model_test

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/model"
)

// splitSample splits default/v1:80 of the sample over itself and a service that nothing else refers to.
func splitSample() model.Config {
	c := sample()
	c.Services = append(c.Services,
		model.Service{Name: "default/v2:80", Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: "10.0.0.2:80"}}},
		model.Service{Name: "default/unused:80", Protocol: model.HTTP})
	ref := func(name string) model.Ref { return model.Ref{Kind: "TrafficSplit", Namespace: "default", Name: name} }
	c.Splits = []model.Split{
		{Ref: ref("z-first"), Root: "default/v1:80",
			Matches: []model.SplitMatch{{Methods: []string{"GET"}, Path: "/a", Headers: []model.ValueMatch{{Type: model.Regex, Name: "x", Value: ".*"}}}},
			Leaves:  []model.Leaf{{Service: "default/v2:80", Weight: 1}, {Weight: 3, Fault: &model.Fault{Status: 500, Reason: "BackendNotFound"}}}},
		{Ref: ref("a-second"), Root: "default/v1:80", Leaves: []model.Leaf{{Service: "default/v1:80", Weight: 1}}},
		{Ref: ref("idle"), Root: "default/unused:80", Leaves: []model.Leaf{{Service: "default/unused:80", Weight: 1}}},
	}
	return c
}

func names(services []model.Service) (out []string) {
	for _, s := range services {
		out = append(out, s.Name)
	}
	return out
}

func TestSplitsOfARootKeepTheirOrder(t *testing.T) {
	want := ""
	for range 20 {
		c := splitSample()
		other := model.Config{}
		other.Services, c.Services = c.Services, nil
		if rand.IntN(2) == 0 { // the splits of other roots may come anywhere
			c.Splits = []model.Split{c.Splits[2], c.Splits[0], c.Splits[1]}
		}
		got := model.Merge(c, other)
		if want == "" {
			want = text(t, got)
		}
		if text(t, got) != want {
			t.Fatalf("got\n%s\nwant\n%s", text(t, got), want)
		}
		if len(got.Splits) != 2 || got.Splits[0].Ref.Name != "z-first" || got.Splits[1].Ref.Name != "a-second" {
			t.Fatalf("splits %v", got.Splits)
		}
		if err := got.Validate(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPruneKeepsTheLeavesOfUsedRootsAlone(t *testing.T) {
	c := splitSample()
	c.Prune()
	if got, want := names(c.Services), []string{"default/next:80", "default/v1:80", "default/v2:80"}; !slices.Equal(got, want) {
		t.Errorf("services %q, want %q", got, want)
	}
	if len(c.Splits) != 2 {
		t.Errorf("splits %v", c.Splits)
	}
}

// TestWhoIsPresentedWhat holds that a split's leaves are presented what its root is, of each route that leads there, and that only routes that lead to
// a service over TLS have a certificate.
func TestWhoIsPresentedWhat(t *testing.T) {
	base := splitSample()
	base.Services[1].TLS = nil
	base.Services[2].TLS = &model.ServiceTLS{Hostname: "v2"} // a leaf, which nothing else leads to
	with := func(certificate, service string) model.Route {
		r := base.Routes[0]
		r.ClientCertificate, r.Rules = certificate, []model.Rule{{
			Ref: r.Ref, Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: "/"}}}, Backends: []model.Backend{{Ref: r.Ref, Service: service, Weight: 1}},
		}}
		return r
	}
	base.Routes = []model.Route{with("default/c", "default/v1:80"), with("default/b", "default/v1:80"), with("default/c", "default/next:80"), with("", "default/v1:80")}
	got := model.Merge(base)
	if err := got.Validate(); err != nil {
		t.Fatal(err)
	}
	var certificates []string
	for _, r := range got.Routes {
		certificates = append(certificates, r.ClientCertificate+" to "+r.Rules[0].Backends[0].Service)
	}
	slices.Sort(certificates)
	if want := []string{" to default/next:80", " to default/v1:80", "default/b to default/v1:80", "default/c to default/v1:80"}; !slices.Equal(certificates, want) {
		t.Errorf("routes present %q, want %q", certificates, want)
	}
	presented := got.Presented()
	for _, all := range presented {
		slices.Sort(all)
	}
	for name, want := range map[string][]string{
		"default/v1:80": {"", "default/b", "default/c"}, "default/v2:80": {"", "default/b", "default/c"}, "default/next:80": {""}, "default/unused:80": nil,
	} {
		if !slices.Equal(presented[name], want) {
			t.Errorf("%s is presented %q, want %q", name, presented[name], want)
		}
	}
	if base.Routes[2].ClientCertificate != "default/c" {
		t.Error("the input was changed")
	}
}

func TestValidateNamesWhatIsWrongWithASplit(t *testing.T) {
	for name, x := range map[string]struct {
		breakIt func(*model.Split)
		want    string
	}{
		"root":         {func(s *model.Split) { s.Root = "none" }, `root: service "none" does not exist`},
		"twice":        {func(s *model.Split) { s.Ref.Name = "a-second" }, "occurs twice"},
		"method":       {func(s *model.Split) { s.Matches[0].Methods[0] = "" }, "matches[0].methods[0]: is empty"},
		"path":         {func(s *model.Split) { s.Matches[0].Path = "(" }, "matches[0].path: "},
		"header":       {func(s *model.Split) { s.Matches[0].Headers[0].Value = "[" }, "matches[0].headers[0].value: "},
		"no leaves":    {func(s *model.Split) { s.Leaves = nil }, "leaves: is empty"},
		"leaf":         {func(s *model.Split) { s.Leaves[0].Service = "none" }, `leaves[0].service: service "none" does not exist`},
		"leaf of two":  {func(s *model.Split) { s.Leaves[1].Service = "default/v1:80" }, "a service and a fault"},
		"leaf of none": {func(s *model.Split) { s.Leaves[0].Service = "" }, "neither"},
		"fault":        {func(s *model.Split) { s.Leaves[1].Fault.Status = 200 }, "leaves[1].fault: 200"},
		"sum":          {func(s *model.Split) { s.Leaves[0].Weight, s.Leaves[1].Weight = 1<<62-2, 2 }, "the sum of the weights is above"},
	} {
		t.Run(name, func(t *testing.T) {
			c := splitSample()
			if err := c.Validate(); err != nil {
				t.Fatal(err)
			}
			x.breakIt(&c.Splits[0])
			err := c.Validate()
			if err == nil || !strings.Contains(err.Error(), x.want) || !strings.Contains(err.Error(), "TrafficSplit default/") {
				t.Errorf("got %v, want %q", err, x.want)
			}
		})
	}
}
