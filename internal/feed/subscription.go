package feed

import (
	"net/netip"
	"slices"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/anypb"
)

// subscription is what a session asks for. session.mu guards it.
type subscription struct {
	uses    map[netip.AddrPort]*destination
	waiting []netip.AddrPort // questions that came before the first Direct
	asked   []question       // whose answers are not sent yet
	tokens  float64
	settled time.Time // of tokens
}

// question is one whose answer is known, but not sent.
type question struct {
	to    netip.AddrPort
	known bool
}

// destinationsOf reads what a connecting proxy asks for, if it does.
func destinationsOf(r *discovery.DeltaDiscoveryRequest) (names []string, asks bool) {
	field, asks := r.GetNode().GetMetadata().GetFields()[destinationsKey]
	for _, v := range field.GetListValue().GetValues() {
		names = append(names, v.GetStringValue())
	}
	return names, asks
}

// take answers questions, and ends the use of what is not needed any more.
func (s *session) take(subscribe, unsubscribe []string) error {
	for _, name := range unsubscribe {
		to, err := parseDestination(name)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		s.mu.Lock()
		_, used := s.sub.uses[to]
		delete(s.sub.uses, to)
		s.sub.waiting = slices.DeleteFunc(s.sub.waiting, func(other netip.AddrPort) bool { return other == to })
		s.mu.Unlock()
		if used {
			s.server.directory.leave(s, to)
		}
	}
	for _, name := range subscribe {
		to, err := parseDestination(name)
		if err != nil {
			return status.Error(codes.InvalidArgument, err.Error())
		}
		if err := s.ask(to, time.Now()); err != nil {
			return err
		}
	}
	return nil
}

// ask answers a question, or keeps it until there is something to answer it by.
func (s *session) ask(to netip.AddrPort, now time.Time) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	b := &s.sub
	b.tokens = min(askBurst, b.tokens+now.Sub(b.settled).Seconds()*askRate)
	b.settled = now
	b.tokens--
	switch {
	case len(b.uses)+len(b.waiting)+len(b.asked) >= maxDestinations:
		return status.Errorf(codes.ResourceExhausted, "a stream has at most %d destinations", maxDestinations)
	case b.tokens < 0:
		return status.Errorf(codes.ResourceExhausted, "a stream may ask for %d destinations a second", askRate)
	}
	b.waiting = append(b.waiting, to)
	s.answer()
	return nil
}

// answer answers the questions that wait, if there is something to answer them by: before that, "unknown" would not be true.
// s.mu is held.
func (s *session) answer() {
	b := &s.sub
	if len(b.waiting) == 0 || !s.server.directory.ready() {
		return
	}
	for _, to := range b.waiting {
		_, used := b.uses[to]
		x, err := s.server.directory.enter(s, to)
		if err != nil { // no answer: that is not "unknown"
			s.server.complain(s.owner, s.proxy, "a proxy asks for a destination that cannot be sent", "destination", to.String(), "error", err)
			continue
		}
		if x != nil {
			b.uses[to] = x
		} else if used {
			delete(b.uses, to)
			s.server.directory.leave(s, to)
		}
		b.asked = append(b.asked, question{to, x != nil})
	}
	b.waiting = nil
}

// leaveAll ends the use of all destinations.
func (s *session) leaveAll() {
	s.mu.Lock()
	uses := s.sub.uses
	s.sub.uses, s.sub.waiting, s.sub.asked = nil, nil, nil
	s.mu.Unlock()
	for to := range uses {
		s.server.directory.leave(s, to)
	}
}

// newest is what the proxy is to have: the owner's configuration, and what the proxy asked for; nil if it has to wait. s.mu is
// held.
func (s *session) newest() *snapshot {
	current := s.feed.current.Load()
	switch {
	case current == nil:
		return nil
	case !s.asks.Load():
		if current.partial {
			return nil
		}
		return current
	case len(s.sub.waiting) > 0 || !s.server.directory.ready():
		return nil
	case len(s.sub.uses) == 0:
		return current
	}
	all := slices.Clone(current.parts)
	for _, x := range s.sub.uses {
		for _, p := range x.current.Load().parts {
			if p.resource == nil {
				p = s.had(p.name)
			}
			if p != nil {
				all = append(all, p)
			}
		}
	}
	// Of parts of one name the owner's own counts, else the older version by its hash: which one does not matter, as the
	// others follow at once, but it has to be one.
	slices.SortStableFunc(all[len(current.parts):], func(a, b *part) int { return strings.Compare(a.version, b.version) })
	slices.SortStableFunc(all, func(a, b *part) int { return strings.Compare(a.name, b.name) })
	all = slices.CompactFunc(all, func(a, b *part) bool { return a.name == b.name })
	return &snapshot{version: versionOf(all, func(p *part) (string, string) { return p.name, p.version }), parts: all}
}

// answers appends the answers to a response that ends a step.
func answers(r *discovery.DeltaDiscoveryResponse, all []question) {
	for _, q := range all {
		version := answerUnknown
		if q.known {
			version = answerKnown
		}
		r.Resources = append(r.Resources, &discovery.Resource{Name: destinationName(q.to), Version: version, Resource: &anypb.Any{TypeUrl: destinationURL}})
	}
}
