package controller

import (
	"context"
	"crypto/x509"
	"errors"
	"net/netip"

	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/kube/aggregated"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/reach"
	"github.com/weirmesh/weir/internal/tapping"
)

// replicaHost is the name by which replicas call each other at the feed's port. There is no such Service, so that nothing
// else does by accident.
func (o *Options) replicaHost() string { return "replica." + o.feedHosts()[0] }

// newTaps returns this replica's end of the taps at proxies, and has the feed carry them.
func newTaps(c *controlPlane) *tapping.Hub {
	replicas := &feed.Replicas{
		Name: c.replicaHost(), Roots: func() *x509.CertPool { return c.authority.Roots() }, Is: identity.IsReplica, Certificate: c.authority.ReplicaCertificate,
	}
	h := &tapping.Hub{
		Connected: func() int { s := c.feeds.Stats(); return int(s.Proxies - s.Workloads) },
		Peers:     c.peers,
		Call: func(ctx context.Context, address string) (tapping.Stream, error) {
			s, err := replicas.Call(ctx, address)
			if err != nil {
				return nil, err
			}
			return s, nil
		},
		Who:    aggregated.Who,
		Logger: c.log,
	}
	if c.sidecars != nil {
		h.Sidecars = c.sidecars.connected
	}
	replicas.Serve = func(s *feed.Stream) error { return h.ServePeer(s) }
	c.feeds.Replicas = replicas
	c.feeds.Taps = func(s *feed.Stream, owner model.Owner, proxy string) error {
		if owner.Kind() == model.OwnerWorkload && c.sidecars == nil {
			return errNotTapped
		}
		return h.ServeProxy(s, owner, proxy)
	}
	return h
}

// errNotTapped ends the stream of a pod that is no Gateway's proxy, where there are no sidecars.
var errNotTapped = errors.New("taps are for proxies of Gateways and sidecars")

// peers are the other replicas, by their word on the board.
func (c *controlPlane) peers() []tapping.Peer {
	var out []tapping.Peer
	for _, r := range c.board.Replicas() {
		if !callable(r.Address, c.board.Address) {
			r.Address = ""
		}
		out = append(out, tapping.Peer(r))
	}
	return out
}

// callable reports whether a replica may be called at an address, "IP:port": whoever may write to the board is not to lead
// this replica to its node or to a cloud's metadata. Replicas on one machine may be on its loopback addresses.
func callable(address, own string) bool {
	there, err := netip.ParseAddrPort(address)
	if err != nil || there.Port() == 0 || there.Addr().Zone() != "" {
		return false
	}
	here, err := netip.ParseAddrPort(own)
	beside := err == nil && here.Addr().IsLoopback() && there.Addr().IsLoopback()
	return beside || reach.Judge(there.Addr()) == ""
}
