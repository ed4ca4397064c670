package access

import (
	"fmt"
	"slices"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/workload"
)

// Gateway is one whose proxies have an identity, that of their ServiceAccount in its namespace.
type Gateway struct{ Namespace, Name, Account string }

func (g *Gateway) ref() model.Ref {
	return model.Ref{Kind: "Gateway", Namespace: g.Namespace, Name: g.Name}
}

// peer is what pods know of the Gateway's proxies, which are the pods of a Deployment of the name of their account.
func (g *Gateway) peer(s *Served) policy.Peer {
	return policy.Peer{
		ID: s.accountID(g.Namespace, g.Account), Namespace: g.Namespace, Account: g.Account, Pod: policy.UnknownName,
		Owners: []policy.Owner{{Kind: "ReplicaSet", Name: policy.UnknownName}, {Kind: "Deployment", Name: g.Account}},
	}
}

// gateway is a client that is a Gateway.
func (s *Served) gateway(who string, ref model.Ref) (*Client, error) {
	i := slices.IndexFunc(s.Gateways, func(g Gateway) bool { return g.Namespace == ref.Namespace && g.Name == ref.Name })
	if i < 0 {
		why := finding.Object(ref) + " is none that reaches pods by an identity: in a cluster with sidecars (mesh.enabled) those of Weir's classes do"
		var there []string
		for _, g := range s.Gateways {
			there = append(there, "gateway/"+g.Namespace+"/"+g.Name)
		}
		return nil, &WhoError{who, why, there}
	}
	g := &s.Gateways[i]
	c := &Client{Ref: ref, Account: g.Namespace + "/" + g.Account, peer: g.peer(s)}
	c.ID = c.peer.ID
	c.Notes = append(c.Notes, "the Gateway's own clients are not known to pods: what is allowed to it, is allowed to all whom its routes let in")
	return c, nil
}

// gatewayOf names the Gateway whose proxies run as a ServiceAccount; "" if none do.
func (s *Served) gatewayOf(namespace, account string) string {
	for i := range s.Gateways {
		if g := &s.Gateways[i]; g.Namespace == namespace && g.Account == account {
			return finding.Object(g.ref())
		}
	}
	return ""
}

// sidecars is how many of the pods of an object have one, and how many there are. It is none of none where sidecars are not
// what enforces, and where the object has no pods yet.
func (s *Served) sidecars(ref model.Ref) (with, all int) {
	if !s.Mesh {
		return 0, 0
	}
	if s.meshed == nil {
		s.meshed = map[model.Ref][2]int{}
		for _, p := range workload.Of(s.Set) {
			if p.Kind != model.KindPod {
				continue
			}
			of := []model.Ref{{Kind: p.Kind, Namespace: p.Namespace, Name: p.Name}}
			for _, o := range p.Owners {
				of = append(of, model.Ref{Kind: o.Kind, Namespace: p.Namespace, Name: o.Name})
			}
			for _, r := range of {
				n := s.meshed[r]
				if n[1]++; p.Sidecar {
					n[0]++
				}
				s.meshed[r] = n
			}
		}
	}
	n := s.meshed[ref]
	return n[0], n[1]
}

// bare reports whether a workload's pods have no sidecar, so that nothing is denied there.
func (s *Served) bare(ref model.Ref) bool {
	with, all := s.sidecars(ref)
	return all > 0 && with == 0
}

// proves takes from a client that is pods what these prove without a sidecar: nothing.
func (s *Served) proves(c *Client) {
	switch with, all := s.sidecars(c.Ref); {
	case with == all:
	case with == 0:
		c.ID, c.peer = "", policy.Peer{}
		c.Notes = append(c.Notes, "it has no sidecar, so it proves no identity: pods with a sidecar serve it as nobody, or not at all if they refuse plain text")
	default:
		c.Notes = append(c.Notes, fmt.Sprintf("%d of its %d pods have no sidecar, and prove no identity", all-with, all))
	}
}
