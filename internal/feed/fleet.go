package feed

import (
	"cmp"
	"context"
	"log/slog"
	"slices"
	"strings"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/weirmesh/weir/internal/model"
)

// Proxy is the state of one proxy.
type Proxy struct {
	Name string `json:"name"`
	// Version is the version of the configuration it serves, as Version computes it; "" if it has none or did not
	// report one.
	Version string `json:"version,omitempty"`
	// Err is why it did not apply the last configuration it got; "" if it did. It then serves an earlier one.
	Err string `json:"err,omitempty"`
	// Unserved are the listeners that it cannot serve for their ports, at most 64.
	Unserved []Unserved `json:"unserved,omitempty"`
	// Ends is when the proxy's own identity ends; zero if it has none, or did not say so.
	Ends time.Time `json:"ends,omitzero"`
	// Since is when the proxy said so.
	Since time.Time `json:"since"`
}

// record is a proxy that is connected, or was a short time ago.
type record struct {
	Proxy
	session *session    // the connected one; nil if there is none
	forget  *time.Timer // runs while there is no session
}

// Running lists the proxies of an owner that are connected, or were until a short time ago (Linger), by name.
func (s *Server) Running(owner model.Owner) []Proxy {
	s.mu.Lock()
	defer s.mu.Unlock()
	f := s.feeds[owner]
	if f == nil {
		return nil
	}
	out := make([]Proxy, 0, len(f.proxies))
	for _, r := range f.proxies {
		out = append(out, r.Proxy)
	}
	slices.SortFunc(out, func(a, b Proxy) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// Alone is the state of a proxy of an owner whose configuration comes by Set.
type Alone struct {
	Owner model.Owner
	Proxy
	// Behind is that it does not serve what it was sent last, of its own or of its destinations, and had more than Patience to do so.
	Behind bool
	// Unsent is that some of what it is to have cannot be sent: it keeps the previous one.
	Unsent bool
}

// Alone lists the proxies of all owners whose configurations come by Set that are connected now, by owner and name.
func (s *Server) Alone() []Alone {
	now, lacking := time.Now(), s.directory.lacking()
	s.mu.Lock()
	var out []Alone
	var sessions []*session
	for owner, f := range s.feeds {
		if !f.alone || f.current.Load() == nil {
			continue
		}
		for _, r := range f.proxies {
			if r.session != nil {
				out = append(out, Alone{Owner: owner, Proxy: r.Proxy, Unsent: f.unsent != nil || lacking[r.session]})
				sessions = append(sessions, r.session)
			}
		}
	}
	s.mu.Unlock()
	for i, session := range sessions { // not with s.mu
		session.mu.Lock()
		out[i].Behind = !session.due.IsZero() && now.Sub(session.due) > Patience
		session.mu.Unlock()
	}
	slices.SortFunc(out, func(a, b Alone) int { return cmp.Or(cmp.Compare(a.Owner, b.Owner), cmp.Compare(a.Name, b.Name)) })
	return out
}

// Patience is how long a proxy may take to serve what it was given without being called behind.
const Patience = 10 * time.Second

// open begins a session, whose context is ctx and ended by end. One that the proxy still has ends: a proxy has one, and may
// be back before its old connection is known to be broken.
func (s *Server) open(ctx context.Context, owner model.Owner, proxy string, by *visitor, end context.CancelFunc) *session {
	s.mu.Lock()
	f := s.feed(owner)
	session := &session{
		server: s, owner: owner, proxy: proxy, feed: f, by: by, ctx: ctx, end: end, responses: make(chan *discovery.DeltaDiscoveryResponse, 1),
	}
	old := f.sessions[proxy]
	f.sessions[proxy] = session
	s.mu.Unlock()
	if old != nil {
		old.end()
	}
	s.counts.stream(owner, 1)
	s.Logger.Info("proxy is connected", whose(owner), "proxy", proxy)
	return session
}

// close ends a session. The proxy is forgotten unless it comes back in time.
func (s *Server) close(session *session) {
	session.leaveAll()
	s.mu.Lock()
	f := session.feed
	if f.sessions[session.proxy] == session {
		delete(f.sessions, session.proxy)
	}
	if r := f.proxies[session.proxy]; r != nil && r.session == session {
		r.session = nil
		r.forget = time.AfterFunc(s.Linger, func() { s.forget(session, r) })
	}
	s.drop(session.owner) // if it never said anything
	s.mu.Unlock()
	s.counts.stream(session.owner, -1)
	s.Logger.Info("proxy is gone", whose(session.owner), "proxy", session.proxy)
}

func (s *Server) forget(session *session, r *record) {
	s.mu.Lock()
	f := session.feed
	gone := r.session == nil && f.proxies[session.proxy] == r
	if gone {
		delete(f.proxies, session.proxy)
		s.drop(session.owner)
	}
	s.mu.Unlock()
	if gone {
		s.changed(session.owner)
	}
}

// drop forgets an owner that is unknown, no longer published or alone, once its proxies are gone. s.mu is held.
func (s *Server) drop(owner model.Owner) {
	f := s.feeds[owner]
	if f != nil && (f.current.Load() == nil || f.retired || f.alone) && len(f.sessions)+len(f.proxies) == 0 {
		delete(s.feeds, owner)
	}
}

// forgetAll stops the timers of proxies that are gone, when the server ends.
func (s *Server) forgetAll() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, f := range s.feeds {
		for name, r := range f.proxies {
			if r.session == nil && r.forget.Stop() {
				delete(f.proxies, name)
			}
		}
	}
}

// report takes a proxy's report: the version it runs, or why it did not apply another.
func (s *Server) report(session *session, version, refusal string) {
	s.mu.Lock()
	f := session.feed
	if f.sessions[session.proxy] != session { // there is a newer one
		s.mu.Unlock()
		return
	}
	r := f.proxies[session.proxy]
	if r == nil {
		r = &record{Proxy: Proxy{Name: session.proxy}}
		f.proxies[session.proxy] = r
	}
	if r.forget != nil {
		r.forget.Stop()
		r.forget = nil
	}
	fresh := r.session != session
	r.session = session
	before := r.Proxy
	switch version = printable(version, 64); {
	case refusal != "" && version != "": // served except for some parts
		r.Version, r.Err = version, refusal
	case refusal != "":
		r.Err = refusal
	case fresh && r.Version == version: // it is back, and will say again if it cannot apply another
	default:
		r.Version, r.Err = version, ""
	}
	changed := before.Version != r.Version || before.Err != r.Err || before.Since.IsZero()
	if changed {
		r.Since = time.Now()
	}
	s.mu.Unlock()
	if refusal != "" && before.Err != refusal {
		s.complain(session.owner, session.proxy, "proxy did not apply the configuration", "error", refusal)
	}
	if changed || fresh {
		s.changed(session.owner)
	}
}

// complain logs what a proxy says is wrong, each message at most once a second: a proxy may say something else all the time.
func (s *Server) complain(owner model.Owner, proxy, message string, args ...any) {
	s.complaints.Log(s.Logger, slog.LevelWarn, string(owner)+" "+proxy+" "+message, message, append([]any{whose(owner), "proxy", proxy}, args...)...)
}

// whose names an owner in the log, by its kind.
func whose(owner model.Owner) slog.Attr {
	return slog.String(strings.ToLower(string(owner.Kind())), owner.Namespace()+"/"+owner.Name())
}

func (s *Server) changed(owner model.Owner) {
	if s.OnChange != nil {
		s.OnChange(owner)
	}
}
