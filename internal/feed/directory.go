package feed

import (
	"fmt"
	"log/slog"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/weirmesh/weir/internal/model"
)

const (
	// destinationPrefix begins the names by which proxies ask for destinations; ADDRESS:PORT follows.
	destinationPrefix = "to/"
	// destinationURL is the type of answers, whose version is answerKnown or answerUnknown.
	destinationURL = "type.googleapis.com/weir.v1.Destination"
	answerKnown    = "known"
	answerUnknown  = "unknown"
	// destinationsKey is the field of the node's metadata in which a connecting proxy lists the destinations that it asks
	// for. Without the field it gets everything. A control plane that answers by destination names itself destinationsKey
	// in its responses; others send everything.
	destinationsKey = "destinations"
	// maxDestinations bounds the destinations of one stream, those with an answer under way included.
	maxDestinations = 1024
	// A stream may ask askBurst questions at once, and askRate a second after that.
	askBurst, askRate = 2 * maxDestinations, 100
)

// destinationName is the name by which a proxy asks for an address and port.
func destinationName(to netip.AddrPort) string { return destinationPrefix + to.String() }

// parseDestination reads such a name. Only the spelling of destinationName is one.
func parseDestination(name string) (netip.AddrPort, error) {
	text, ok := strings.CutPrefix(name, destinationPrefix)
	if !ok || len(text) > 64 {
		return netip.AddrPort{}, fmt.Errorf("%q is not the name of a destination", printable(name, 64))
	}
	to, err := netip.ParseAddrPort(text)
	if err != nil || to.Port() == 0 || to.Addr().Zone() != "" || to.Addr().Is4In6() || to.String() != text {
		return netip.AddrPort{}, fmt.Errorf("%q is not an address and port", printable(text, 64))
	}
	return to, nil
}

// directory is what a server knows of destinations: how to find them, and those that proxies use.
type directory struct {
	mu   sync.Mutex // also guards contents of the parts
	find func(clients string, to netip.AddrPort) *model.Config
	used map[netip.AddrPort]map[string]*destination // by the namespace of those who use them
}

// destination is one that sessions use, or used since the last Direct if it cannot be sent.
type destination struct {
	current atomic.Pointer[snapshot] // the newest that can be sent; without one, what names its parts (asHad)
	made    *model.Config            // what find returned last; guarded by directory.mu
	unsent  error                    // why current is not that, nil if it is; guarded by directory.mu
	users   map[*session]struct{}    // guarded by directory.mu
}

// Direct makes find what answers proxies that ask for destinations (Destinations), instead of the one before. It returns
// what connections from pods of a namespace to an address and port need, which may not be changed afterwards; nil if nothing is known there. It may
// be called from any goroutine, one call at a time. What proxies have asked for is made anew, unless find returns the same
// again, by its address; those of which something changed get it. What is the same for several namespaces, by its address, is
// kept once.
func (s *Server) Direct(find func(clients string, to netip.AddrPort) *model.Config) {
	s.init()
	d := &s.directory
	d.mu.Lock()
	first := d.find == nil
	d.find = find
	all := make([]netip.AddrPort, 0, len(d.used))
	for to := range d.used {
		all = append(all, to)
	}
	d.mu.Unlock()
	slices.SortFunc(all, netip.AddrPort.Compare)
	for _, to := range all {
		for _, r := range s.renew(to) {
			r.session.wake()
			if r.turned {
				s.changed(r.session.owner)
			}
		}
	}
	if first {
		s.wakeAsking()
	}
}

// wakeAsking wakes the sessions that waited for the first directory.
func (s *Server) wakeAsking() {
	var all []*session
	s.mu.Lock()
	for _, f := range s.feeds {
		for _, session := range f.sessions {
			all = append(all, session)
		}
	}
	s.mu.Unlock()
	for _, session := range all {
		session.wake()
	}
}

// renewed is a session for which a destination changed. It turned if it could be sent before and cannot now, or the other way
// around.
type renewed struct {
	session *session
	turned  bool
}

// renew makes a destination anew, and returns those who use it for whom it changed.
func (s *Server) renew(to netip.AddrPort) (all []renewed) {
	d := &s.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	for clients, x := range d.used[to] {
		if len(x.users) == 0 {
			d.remove(clients, to)
			continue
		}
		users, turned := s.renewFor(clients, to, x)
		for _, session := range users {
			all = append(all, renewed{session, turned})
		}
	}
	return all
}

// renewFor does it for the users of one namespace. The directory's mutex is held.
func (s *Server) renewFor(clients string, to netip.AddrPort, x *destination) (users []*session, turned bool) {
	d := &s.directory
	c := d.at(clients, to)
	if c != nil && c == x.made {
		return nil, false
	}
	before, could := x.current.Load(), x.unsent == nil
	next := &snapshot{} // known no more; it may come back
	if x.unsent = nil; c != nil {
		next, x.unsent = d.snapshot(to, c, before)
	}
	x.made = c
	if x.unsent != nil {
		s.tellUnsent(to, x.unsent)
		next = before
	} else if !could {
		s.Logger.Info("a destination can be sent again", "destination", to.String())
	}
	turned = could != (x.unsent == nil)
	if x.current.Store(next); turned || before.version != next.version {
		users = slices.Collect(maps.Keys(x.users))
	}
	return users, turned
}

func (s *Server) tellUnsent(to netip.AddrPort, err error) {
	s.complaints.Log(s.Logger, slog.LevelError, to.String(), "a destination cannot be sent, and proxies that have it keep the previous one", "destination", to.String(), "error", err)
}

// at is what is known of a destination, nil if nothing is. d.mu is held.
func (d *directory) at(clients string, to netip.AddrPort) *model.Config {
	if d.find == nil {
		return nil
	}
	return d.find(clients, to)
}

// snapshot is newSnapshot of what is at a destination, or what it gave for another namespace. d.mu is held.
func (d *directory) snapshot(to netip.AddrPort, c *model.Config, before *snapshot) (*snapshot, error) {
	for _, other := range d.used[to] {
		if other.made == c && other.unsent == nil {
			return other.current.Load(), nil
		}
	}
	return newSnapshot(c, before)
}

// remove forgets a destination. d.mu is held.
func (d *directory) remove(clients string, to netip.AddrPort) {
	if delete(d.used[to], clients); len(d.used[to]) == 0 {
		delete(d.used, to)
	}
}

// Unsent is a destination that cannot be sent. Proxies that had it before keep what they have; others do not get it.
type Unsent struct {
	Destination netip.AddrPort `json:"destination"`
	Reason      string         `json:"reason"`
}

// Unsent are the destinations that proxies use, or asked for since the last Direct, and that cannot be sent.
func (s *Server) Unsent() (out []Unsent) {
	d := &s.directory
	d.mu.Lock()
	defer d.mu.Unlock()
	for to, by := range d.used {
		for _, x := range by {
			if x.unsent != nil {
				out = append(out, Unsent{to, x.unsent.Error()})
				break
			}
		}
	}
	slices.SortFunc(out, func(a, b Unsent) int { return a.Destination.Compare(b.Destination) })
	return out
}

// lacking are the sessions whose proxies use a destination that cannot be sent.
func (d *directory) lacking() map[*session]bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := map[*session]bool{}
	for _, by := range d.used {
		for _, x := range by {
			if x.unsent != nil {
				for session := range x.users {
					out[session] = true
				}
			}
		}
	}
	return out
}

// Lagging returns the name of a proxy that uses one of the destinations that are chosen by what is there, and does not serve the newest
// of what it asked for; empty if all do.
func (s *Server) Lagging(chosen func(*model.Config) bool) string {
	users := map[*session]bool{}
	d := &s.directory
	d.mu.Lock()
	for _, by := range d.used {
		for _, x := range by {
			if x.made != nil && len(x.users) > 0 && chosen(x.made) {
				for session := range x.users {
					users[session] = true
				}
			}
		}
	}
	d.mu.Unlock()
	for session := range users {
		session.mu.Lock()
		newest := session.newest()
		session.mu.Unlock()
		if newest == nil {
			return session.proxy
		}
		s.mu.Lock()
		r := session.feed.proxies[session.proxy]
		lags := session.feed.sessions[session.proxy] == session && (r == nil || r.Version != newest.version)
		s.mu.Unlock()
		if lags {
			return session.proxy
		}
	}
	return ""
}

// ready reports whether there is something to find destinations by.
func (d *directory) ready() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.find != nil
}

// enter makes a session one that uses a destination; nil if nothing is known there. It fails if the destination cannot be sent
// and the proxy does not have it either. s.mu is held.
func (d *directory) enter(s *session, to netip.AddrPort) (*destination, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clients := s.owner.Namespace()
	x := d.used[to][clients]
	if x == nil {
		c := d.at(clients, to)
		if c == nil {
			return nil, nil
		}
		is, err := d.snapshot(to, c, nil)
		if err != nil {
			s.server.tellUnsent(to, err)
			is = asHad(c)
		}
		x = &destination{made: c, unsent: err, users: map[*session]struct{}{}}
		x.current.Store(is)
		if d.used == nil {
			d.used = map[netip.AddrPort]map[string]*destination{}
		}
		if d.used[to] == nil {
			d.used[to] = map[string]*destination{}
		}
		d.used[to][clients] = x
	}
	is := x.current.Load()
	switch {
	case len(is.parts) == 0:
		return nil, nil
	case !s.canHave(is):
		return nil, x.unsent
	}
	x.users[s] = struct{}{}
	return x, nil
}

// leave ends that.
func (d *directory) leave(s *session, to netip.AddrPort) {
	d.mu.Lock()
	defer d.mu.Unlock()
	clients := s.owner.Namespace()
	if x := d.used[to][clients]; x != nil {
		if delete(x.users, s); len(x.users) == 0 && x.unsent == nil {
			d.remove(clients, to)
		}
	}
}

// asHad is what stands for a configuration that cannot be sent: its parts, each as the proxy has it.
func asHad(c *model.Config) *snapshot {
	s := &snapshot{}
	for l, content := range parts(c) {
		s.parts = append(s.parts, &part{name: string(appendName(nil, l, content))})
	}
	return s
}

// had is a part as the proxy has it, or will when what was sent is applied; nil if it does not have it. s.mu is held.
func (s *session) had(name string) *part {
	if s.at == nil {
		if version, ok := s.have[name]; ok {
			return &part{name: name, version: version}
		}
		return nil
	}
	if i, ok := slices.BinarySearchFunc(s.at.parts, name, func(p *part, name string) int { return strings.Compare(p.name, name) }); ok {
		return s.at.parts[i]
	}
	return nil
}

// canHave reports whether the proxy can have a destination: all of it can be sent, or the proxy has its listeners, by which it
// serves the destination. s.mu is held.
func (s *session) canHave(is *snapshot) bool {
	return !slices.ContainsFunc(is.parts, func(p *part) bool {
		return p.resource == nil && strings.HasPrefix(p.name, "listener/") && s.had(p.name) == nil
	})
}

// Asks reports whether no proxy of an owner that is connected has to have everything: then Set needs nothing that Direct
// answers.
func (s *Server) Asks(owner model.Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feeds[owner]
	if f == nil {
		return true
	}
	for _, session := range f.sessions {
		if session.eager.Load() {
			return false
		}
	}
	return true
}
