package access

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/policy"
	"github.com/weirmesh/weir/internal/workload"
)

// Client is who makes a call.
type Client struct {
	// Ref is the client's object; zero for a SPIFFE ID that is none's.
	Ref model.Ref `json:"ref,omitzero"`
	// ID is the client's SPIFFE ID; empty if its ServiceAccount is not known.
	ID string `json:"id,omitempty"`
	// Foreign means that the ID is of another trust domain.
	Foreign bool `json:"foreign,omitempty"`
	// Account is the ServiceAccount, "namespace/name".
	Account string `json:"account,omitempty"`
	// Owners are what runs the client's pod, "Kind/name", the nearest first.
	Owners []string `json:"owners,omitempty"`
	// Notes are what one should know about how the client was understood.
	Notes []string `json:"notes,omitempty"`

	peer policy.Peer
}

// WhoError is a mistake in how a client or a workload is named.
type WhoError struct {
	Who, Reason string
	// There are names that would do.
	There []string
}

func (e *WhoError) Error() string { return fmt.Sprintf("%q: %s", e.Who, e.Reason) }

// whoForms are the ways to name a client.
const whoForms = "want NAMESPACE/SERVICEACCOUNT, KIND/NAMESPACE/NAME such as deployment/shop/cart or gateway/shop/edge, node/NAME or a SPIFFE ID"

// kindNames are the kinds by their names on the command line, as kubectl takes them.
var kindNames = map[string]string{
	"pod": "Pod", "po": "Pod", "deployment": "Deployment", "deploy": "Deployment", "statefulset": "StatefulSet", "sts": "StatefulSet",
	"daemonset": "DaemonSet", "ds": "DaemonSet", "replicaset": "ReplicaSet", "rs": "ReplicaSet", "job": "Job",
	"replicationcontroller": "ReplicationController", "rc": "ReplicationController",
	"serviceaccount": "ServiceAccount", "sa": "ServiceAccount", "node": "Node", "no": "Node", "gateway": kindGateway, "gtw": kindGateway,
}

const kindGateway = "Gateway"

// kindOf is a kind by its name, also in the plural.
func kindOf(name string) (kind string, ok bool) {
	name = strings.ToLower(name)
	if kind, ok = kindNames[name]; !ok && len(name) > 3 {
		kind, ok = kindNames[strings.TrimSuffix(name, "s")]
	}
	return kind, ok
}

// defaultNamespace is that of names without one.
const defaultNamespace = "default"

// Client finds out who is meant: "namespace/account", "kind/namespace/name", "node/name" or a SPIFFE ID; a name alone is
// an account, and one without a namespace is of the namespace default. The error is a *WhoError.
func (s *Served) Client(who string) (*Client, error) {
	if strings.HasPrefix(strings.ToLower(who), spiffe.Scheme) {
		return s.identity(who)
	}
	ref, err := readWho(who)
	if err != nil {
		return nil, err
	}
	switch ref.Kind {
	case model.KindServiceAccount:
		return s.account(ref), nil
	case kindGateway:
		return s.gateway(who, ref)
	case model.KindNode:
		id := spiffe.Scheme + s.trustDomain() + "/node/" + ref.Name
		return &Client{Ref: ref, ID: id, peer: policy.Peer{ID: id, Node: ref.Name}}, nil
	}
	return s.pods(who, ref)
}

// readWho reads a name of a client that is no SPIFFE ID.
func readWho(who string) (model.Ref, error) {
	fail := func(format string, args ...any) (model.Ref, error) {
		return model.Ref{}, &WhoError{Who: who, Reason: fmt.Sprintf(format, args...)}
	}
	if _, err := netip.ParseAddr(who); err == nil {
		return fail("is an address, and rules know clients by their identity alone: %s. An address that the connection comes from follows --", whoForms)
	}
	parts := strings.Split(who, "/")
	ref := model.Ref{Kind: model.KindServiceAccount, Namespace: defaultNamespace}
	kind, isKind := kindOf(parts[0])
	switch {
	case who == "":
		return fail("names nobody: %s", whoForms)
	case len(parts) > 3:
		return fail("has too many parts: %s", whoForms)
	case len(parts) == 1 && isKind:
		return fail("is a kind without a name: %s", whoForms)
	case len(parts) > 1 && isKind:
		ref.Kind, parts = kind, parts[1:]
	case len(parts) == 3:
		return fail("kind %q is unknown; there is: pod, deployment, statefulset, daemonset, replicaset, replicationcontroller, job, serviceaccount, gateway, node", parts[0])
	}
	if ref.Kind == model.KindNode {
		if ref.Namespace = ""; len(parts) > 1 {
			return fail("a node has no namespace: want node/NAME")
		}
	}
	if len(parts) == 2 {
		ref.Namespace, parts = parts[0], parts[1:]
		if problems := validation.IsDNS1123Label(ref.Namespace); problems != nil {
			return fail("%q is no name of a namespace, which has lower-case letters, digits and -", ref.Namespace)
		}
	}
	if ref.Name = parts[0]; validation.IsDNS1123Subdomain(ref.Name) != nil {
		return fail("%q is no name of a %s, which has lower-case letters, digits, - and .", ref.Name, ref.Kind)
	}
	return ref, nil
}

// identity is a client by its SPIFFE ID.
func (s *Served) identity(text string) (*Client, error) {
	id, err := spiffe.Parse(text)
	if err == nil && id.Path() == "" {
		err = errors.New("it names a trust domain, and nobody in it")
	}
	if err != nil {
		return nil, &WhoError{Who: text, Reason: err.Error() + "; write it as " + spiffe.Scheme + s.trustDomain() + "/ns/NAMESPACE/sa/ACCOUNT"}
	}
	c := &Client{ID: id.String(), peer: policy.Peer{ID: id.String()}}
	if id.TrustDomain() != s.trustDomain() {
		c.Foreign, c.peer.Foreign = true, true
		c.Notes = append(c.Notes, fmt.Sprintf("the trust domain %s is not the own one, %s, so only rules for the whole ID count", id.TrustDomain(), s.trustDomain()))
		return c, nil
	}
	if name, ok := id.Node(); ok {
		c.Ref, c.peer.Node = model.Ref{Kind: model.KindNode, Name: name}, name
	}
	if namespace, name, ok := id.ServiceAccount(); ok {
		return s.account(model.Ref{Kind: model.KindServiceAccount, Namespace: namespace, Name: name}), nil
	}
	return c, nil
}

func (s *Served) accountID(namespace, name string) string {
	return policy.AccountID(s.trustDomain(), namespace, name)
}

// account is a client of which the ServiceAccount is known and nothing else.
func (s *Served) account(ref model.Ref) *Client {
	id := s.accountID(ref.Namespace, ref.Name)
	c := &Client{Ref: ref, ID: id, Account: ref.Namespace + "/" + ref.Name, peer: policy.Peer{ID: id, Namespace: ref.Namespace, Account: ref.Name}}
	var of []string
	for _, w := range s.workloads() {
		if w.Ref.Namespace == ref.Namespace && w.Account == ref.Name {
			of = append(of, strings.ToLower(w.Ref.Kind)+"/"+w.Ref.Namespace+"/"+w.Ref.Name)
		}
	}
	if g := s.gatewayOf(ref.Namespace, ref.Name); g != "" {
		c.Notes = append(c.Notes, "it is the account of the proxies of "+g)
	}
	switch {
	case len(of) > 0:
		c.Notes = append(c.Notes, "asked for the account alone; rules may allow its pods more: "+strings.Join(finding.First(of, maxListed), ", "))
	case ref.Name != workload.DefaultAccount && s.Set.Object(s.Set.Kinds().Key(ref)) == nil && !s.isSource(ref):
		c.Notes = append(c.Notes, finding.Object(ref)+" is not among what was read, and no rule names it")
	}
	return c
}

// pods is a client that is a pod, or one of those that something runs.
func (s *Served) pods(who string, ref model.Ref) (*Client, error) {
	c := &Client{Ref: ref, peer: policy.Peer{Namespace: ref.Namespace, Pod: policy.UnknownName}}
	p, ok := workload.Find(s.Set, ref.Kind, ref.Namespace, ref.Name)
	switch {
	case ok:
		c.Account, c.peer.Account = ref.Namespace+"/"+p.Account, p.Account
		c.ID = s.accountID(ref.Namespace, p.Account)
		c.peer.ID = c.ID
		for _, o := range p.Owners {
			c.peer.Owners = append(c.peer.Owners, policy.Owner{Kind: o.Kind, Name: o.Name})
			c.Owners = append(c.Owners, o.Kind+"/"+o.Name)
		}
		if ref.Kind == "Deployment" {
			c.peer.Owners = append(c.peer.Owners, policy.Owner{Kind: "ReplicaSet", Name: policy.UnknownName})
		}
	case s.isSource(ref):
		c.Notes = append(c.Notes, finding.Object(ref)+" is not among what was read, so its ServiceAccount is not known: rules for accounts do not count")
		c.peer.ID = policy.UnknownName
		if ref.Kind != model.KindPod {
			c.peer.Owners = []policy.Owner{{Kind: ref.Kind, Name: ref.Name}}
		}
	default:
		var there []string
		for _, w := range workload.Of(s.Set) {
			there = append(there, strings.ToLower(w.Kind)+"/"+w.Namespace+"/"+w.Name)
		}
		return nil, &WhoError{who, finding.Object(ref) + " is not among what was read, and no rule names it", there}
	}
	if ref.Kind == model.KindPod {
		c.peer.Pod = ref.Name
	} else {
		c.Owners = slices.DeleteFunc(c.Owners, func(o string) bool { return o == ref.Kind+"/"+ref.Name })
	}
	s.proves(c)
	return c, nil
}

// isSource reports whether a policy names the object as a client.
func (s *Served) isSource(ref model.Ref) bool {
	for i := range s.Config.Policies {
		for _, source := range s.Config.Policies[i].Sources {
			if source.Kind == ref.Kind && source.Name == ref.Name && (source.Namespace == "" || source.Namespace == ref.Namespace) {
				return true
			}
		}
	}
	return false
}

// String names the client for people.
func (c *Client) String() string {
	return cmp.Or(finding.Object(c.Ref), c.ID)
}

// maxListed is how many names a message lists.
const maxListed = 20
