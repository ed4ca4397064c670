package access

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/test/size"
)

// TestGrantsAreWhatIsJudged compares the grants of random policies with how these judge: a workload is among those that
// may do something to another one exactly if some request of its passes, and nothing passes that no grant tells.
func TestGrantsAreWhatIsJudged(t *testing.T) {
	random := rand.New(rand.NewPCG(5, 6))
	one := func(all ...string) string { return all[random.IntN(len(all))] }
	allowed, denied := 0, 0
	for range size.Of(200, 5000) {
		c := &model.Config{}
		for _, name := range []string{"a", "b", "c"} {
			c.Workloads = append(c.Workloads, model.Workload{Ref: model.Ref{Kind: "Deployment", Namespace: one("x", "y"), Name: name}, Account: name, Deny: model.DenyAll, Groups: []model.Group{
				{Kind: "Deployment", Name: name}, {Kind: "ServiceAccount", Name: name}, {Kind: "Service", Name: "s", Ports: []int32{int32(80 + random.IntN(2))}}}})
		}
		for i := range random.IntN(4) {
			p := model.Policy{Ref: model.Ref{Kind: "TrafficRole", Namespace: "x", Name: fmt.Sprint("r", i)}, Traffic: model.TrafficHTTP,
				Targets: []model.Target{{Namespace: one("", "x"), Kind: one("Deployment", "Service"), Name: one("", "a", "s")}}}
			for range random.IntN(3) {
				p.Sources = append(p.Sources, model.Source{Kind: one("ServiceAccount", "Deployment", "Pod", "Node"), Namespace: one("", "x"), Name: one("", "a", "b")})
			}
			if random.IntN(4) == 0 {
				p.Ports = []int32{80}
			}
			if random.IntN(6) == 0 {
				p.Void = "for a test"
			}
			c.Policies = append(c.Policies, p)
		}
		s := &Served{Config: c}
		m, err := s.Matrix(Filter{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range c.Workloads {
			to := &c.Workloads[i]
			table := policy.Compile(to, c.Policies)
			for j := range c.Workloads {
				from := &c.Workloads[j]
				peer := policy.PeerOf(from, "cluster.local")
				for _, port := range []int32{80, 81, 82} {
					passes := table.Subject(peer, port).Judge(&policy.Request{Method: "GET", Path: "/"}).Reason.Passes()
					told := slices.ContainsFunc(m.Grants, func(g Grant) bool {
						is := slices.Contains(g.Clients, from.Ref) || g.Source.Name == "" && peer.Is(&g.Source)
						return is && g.Target == to.Ref && (g.Ports == nil || slices.Contains(g.Ports, port))
					})
					if passes != told {
						t.Fatalf("%v to %v port %d: it passes: %v, it is told: %v\n%+v", from.Ref, to.Ref, port, passes, told, c.Policies)
					}
					if passes {
						allowed++
					} else {
						denied++
					}
				}
			}
		}
	}
	if allowed < 200 || denied < 200 {
		t.Errorf("%d allowed, %d denied: too few to show anything", allowed, denied)
	}
}

func TestAMatrixHasABound(t *testing.T) {
	c := &model.Config{}
	for i := range 150 {
		c.Workloads = append(c.Workloads, model.Workload{Ref: model.Ref{Kind: "Deployment", Namespace: "x", Name: fmt.Sprint("w", i)}, Account: "a"})
		c.Policies = append(c.Policies, model.Policy{Ref: model.Ref{Kind: "TrafficRole", Name: fmt.Sprint("r", i)}, Traffic: model.TrafficAny, Targets: []model.Target{{}}, Sources: []model.Source{{Kind: "Node"}}})
	}
	m, err := (&Served{Config: c}).Matrix(Filter{})
	if err != nil || len(m.Grants) != maxGrants || m.Omitted != 150*150-maxGrants {
		t.Errorf("%d grants, %d omitted, %v", len(m.Grants), m.Omitted, err)
	}
}
