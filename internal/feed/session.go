package feed

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"
	"unicode"

	core "github.com/envoyproxy/go-control-plane/envoy/config/core/v3"
	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/weirmesh/weir/internal/model"
)

const (
	// chunk is how many bytes of parts one response has at most, unless a single part is larger. A larger step is sent
	// in several responses, of which only the last has the version; a proxy applies nothing before that.
	chunk = 1 << 20
	// maxError bounds a proxy's reason for not applying a configuration, in bytes.
	maxError = 1 << 10
	// runningKey is the field of the node's metadata in which a connecting proxy reports the version that it runs.
	runningKey = "running"
)

// session is one stream of one proxy. What the proxy claims to be never counts. One response is under way at a time; the
// next waits for its acknowledgement. So a proxy that does not read delays no other and holds at most one chunk, and the
// steps that it misses become one.
type session struct {
	server *Server
	owner  model.Owner
	proxy  string
	feed   *feed
	by     *visitor        // its connection; nil if it came by no door
	ctx    context.Context // ends with the session
	end    context.CancelFunc

	// responses has room for the one that is under way.
	responses chan *discovery.DeltaDiscoveryResponse

	mu      sync.Mutex
	begun   bool              // the first request has come
	have    map[string]string // versions of the parts that the proxy came with; nil after the first step
	at      *snapshot         // the result of the steps that were sent; nil before the first
	rest    step              // the unsent part of the step to at
	sending bool              // the step to at is not sent to its end
	waiting bool              // a response is not acknowledged
	nonce   string            // of the last response, "" if that is not sent yet
	version string            // of the last response: "" if more of its step follows
	due     time.Time         // since when it does not serve what it was sent; zero if it does
	answers []question        // that the end of the step to at has

	asks atomic.Bool // it asks for destinations (Server.Destinations), and gets no others
	sub  subscription
	// eager says that its first request did not ask for destinations.
	eager atomic.Bool
}

// wake sends what is new, if the proxy waits for it.
func (s *session) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.fill()
}

// serve answers the requests of a stream until it ends, or the session does, which is no error.
func (s *session) serve(stream discovery.AggregatedDiscoveryService_DeltaAggregatedResourcesServer) error {
	requests := make(chan *discovery.DeltaDiscoveryRequest)
	go func() { // ends with the stream, which ends when serve returns
		defer close(requests)
		for {
			r, err := stream.Recv()
			if err != nil {
				return
			}
			select {
			case requests <- r:
			case <-stream.Context().Done():
				return
			}
		}
	}()
	for sent := 1; ; {
		select {
		case <-s.ctx.Done():
			return nil
		case r, more := <-requests:
			if !more {
				return nil
			}
			if err := s.request(r); err != nil {
				return err
			}
			s.wake()
		case r := <-s.responses:
			r.Nonce = strconv.Itoa(sent)
			sent++
			s.server.counts.responses.Add(1)
			s.server.counts.parts.Add(uint64(len(r.Resources) + len(r.RemovedResources)))
			s.mu.Lock()
			s.nonce, s.version = r.Nonce, r.SystemVersionInfo
			s.mu.Unlock()
			if err := stream.Send(r); err != nil {
				return err
			}
		}
	}
}

// fill sends the next response if there is one and the proxy waits for it. s.mu is held.
func (s *session) fill() {
	if !s.begun || s.waiting {
		return
	}
	s.answer()
	current := s.newest()
	if current == nil {
		return
	}
	if !s.sending {
		switch {
		case s.at == nil:
			s.rest = current.sinceVersions(s.have) // answered even if there is nothing, so that the proxy knows
			s.have = nil
		case s.at.version == current.version && len(s.sub.asked) == 0:
			return
		default:
			s.rest = current.since(s.at)
		}
		s.at, s.sending = current, true
		if s.due.IsZero() {
			s.due = time.Now()
		}
		s.answers, s.sub.asked = s.sub.asked, nil
	}
	response := &discovery.DeltaDiscoveryResponse{TypeUrl: typeURL}
	if s.asks.Load() {
		response.ControlPlane = &core.ControlPlane{Identifier: destinationsKey}
	}
	s.cut(response)
	if s.sending = len(s.rest.changed)+len(s.rest.removed) > 0; !s.sending {
		s.rest = step{}
		response.SystemVersionInfo = s.at.version
		answers(response, s.answers)
		s.answers = nil
	}
	s.waiting, s.nonce = true, "" // it has none before it is sent, so that nobody can acknowledge it, and responses has room
	s.responses <- response
}

// cut moves what fits into one response from the rest of the step.
func (s *session) cut(r *discovery.DeltaDiscoveryResponse) {
	size, n := 0, 0
	for _, p := range s.rest.changed {
		if size += p.size(); size > chunk && n > 0 {
			break
		}
		r.Resources = append(r.Resources, p.resource)
		n++
	}
	s.rest.changed = s.rest.changed[n:]
	if len(s.rest.changed) > 0 {
		return
	}
	k := 0
	for _, name := range s.rest.removed {
		if size += len(name) + 4; size > chunk && n+k > 0 {
			break
		}
		k++
	}
	r.RemovedResources, s.rest.removed = slices.Clone(s.rest.removed[:k]), s.rest.removed[k:]
}

// request checks a request and processes its acknowledgement.
func (s *session) request(r *discovery.DeltaDiscoveryRequest) error {
	s.mu.Lock()
	first := !s.begun
	if first {
		s.have = r.InitialResourceVersions
	}
	s.mu.Unlock()
	subscribe, unsubscribe := r.ResourceNamesSubscribe, r.ResourceNamesUnsubscribe
	if err := check(r, !first && s.asks.Load()); err != nil {
		return status.Error(codes.InvalidArgument, err.Error())
	}
	asks := len(subscribe)+len(unsubscribe) > 0
	if names, ok := destinationsOf(r); first && ok && s.server.Destinations {
		s.mu.Lock()
		s.sub = subscription{uses: map[netip.AddrPort]*destination{}, tokens: askBurst, settled: time.Now()}
		s.mu.Unlock()
		s.asks.Store(true)
		subscribe, unsubscribe = names, nil
	} else if first {
		s.eager.Store(true)
	}
	if s.asks.Load() {
		if err := s.take(subscribe, unsubscribe); err != nil {
			s.server.complain(s.owner, s.proxy, "questions of a proxy are not answered", "error", err)
			return err
		}
	}
	s.mu.Lock()
	s.begun = true
	acknowledged := r.ResponseNonce != "" && r.ResponseNonce == s.nonce
	version := s.version
	if acknowledged {
		s.waiting = false
		if version != "" && (r.ErrorDetail == nil || r.ErrorDetail.GetCode() == servedInPart) {
			s.due = time.Time{}
		}
	}
	s.mu.Unlock()
	defer func() {
		if r.Node != nil { // else it is as it was
			s.server.reportState(s, stateOf(r.Node))
		}
	}()
	switch {
	case first && r.Node.GetId() != "" && model.Owner(r.Node.GetId()) != s.owner:
		return status.Errorf(codes.InvalidArgument, "the token belongs to a proxy of %s, not of %s", s.owner.Ref(), printable(r.Node.GetId(), maxError))
	case first:
		s.server.report(s, r.Node.GetMetadata().GetFields()[runningKey].GetStringValue(), "")
	case r.ResponseNonce == "" && asks:
	case r.ResponseNonce == "":
		return status.Error(codes.InvalidArgument, "a request after the first has no nonce to acknowledge")
	case !acknowledged:
	case r.ErrorDetail.GetCode() == servedInPart:
		s.server.report(s, version, printable(r.ErrorDetail.GetMessage(), maxError))
	case r.ErrorDetail != nil:
		s.server.counts.nacks.Add(1)
		s.server.report(s, "", printable(r.ErrorDetail.GetMessage(), maxError))
	case version != "":
		s.server.report(s, version, "")
	}
	return nil
}

// check refuses requests that proxies never send.
func check(r *discovery.DeltaDiscoveryRequest, asks bool) error {
	switch {
	case r.TypeUrl != typeURL:
		return errors.New("the type is not " + typeURL)
	case asks:
	case len(r.ResourceNamesUnsubscribe) > 0:
		return errors.New("unsubscribing is not supported")
	case len(r.ResourceNamesSubscribe) > 1 || len(r.ResourceNamesSubscribe) == 1 && r.ResourceNamesSubscribe[0] != "*":
		return errors.New(`only "*" can be subscribed`)
	}
	return nil
}

// printable cuts a text and removes characters that do not belong into logs.
func printable(s string, limit int) string {
	if len(s) > limit {
		s = s[:limit] + "..."
	}
	return strings.Map(func(r rune) rune {
		switch {
		case r == '\n' || r == '\t':
			return ' '
		case !unicode.IsPrint(r):
			return -1
		}
		return r
	}, strings.ToValidUTF8(s, ""))
}
