package upstream

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/model"
)

// An ejection lasts ejectMin, doubles each time the endpoint fails again, up to ejectMax, and is forgotten ejectForget
// after the last.
const (
	ejectMin    = time.Second
	ejectMax    = 30 * time.Second
	ejectForget = 60 * time.Second
)

// Defaults of model.Ejection.
const (
	defaultEjectAfter = 3
	defaultMaxEjected = 50 // percent
)

// slowConnect is the time after which an unfinished connect counts as a failure, although it may continue: so an
// endpoint that drops connection requests is noticed before Options.ConnectTimeout has passed. A lost packet is sent
// again after a second.
const slowConnect = 1500 * time.Millisecond

// health is the result of exchanges, connects and active checks. States of the passive part: healthy (until is 0),
// ejected (until lies ahead), half-open (until has passed: the next Pick claims the endpoint for one request and moves
// until on, so that another request is let through if that one never reports).
type health struct {
	until    atomic.Int64 // Set.now at which an ejection ends; 0 if healthy
	failures atomic.Int32 // consecutive
	errors   atomic.Int32 // consecutive gateway errors
	failing  atomic.Bool  // by the active check
	lost     atomic.Int64 // Set.now at its first failure since it answered; answering until then, 0 before any answer

	failuresLimit atomic.Int32 // number of failures that eject; less than 1 means never
	errorsLimit   atomic.Int32

	mu      sync.Mutex
	probing atomic.Bool
	level   int              // ejections in a row
	ended   int64            // when the last ejection ends or ended
	spared  loglimit.Limiter // of ejections that would have been one too many

	failed    atomic.Uint64
	ejections atomic.Uint64
	denied    atomic.Uint64 // ejections that were due and would have been too many
	checked   [2]atomic.Uint64
	checkErr  atomic.Pointer[string] // of the last check; nil if it went well
}

// answering is health.lost of an endpoint that has answered and not failed since.
const answering = -1

// healthPolicy applies the policy of the endpoint's service; nil means the defaults.
func (e *Endpoint) healthPolicy(p *model.Ejection) {
	failures, errors := e.set.opt.EjectAfter, 0
	if p != nil {
		if p.Failures != 0 {
			failures = p.Failures
		}
		errors = p.GatewayErrors
	}
	e.health.failuresLimit.Store(int32(failures))
	e.health.errorsLimit.Store(int32(errors))
}

// admit reports whether Pick may choose the endpoint as a healthy one. If probe is true, Pick must choose it: it has
// claimed the one request of a half-open endpoint.
func (e *Endpoint) admit() (ok, probe bool) {
	h := &e.health
	if h.failing.Load() {
		return false, false
	}
	until := h.until.Load()
	if until == 0 {
		return true, false
	}
	now := e.set.now()
	if now < until {
		return false, false
	}
	if !h.until.CompareAndSwap(until, now+int64(e.set.opt.ConnectTimeout)) {
		return false, false
	}
	h.probing.Store(true)
	return true, true
}

// Healthy is true unless the endpoint is ejected or fails its active check.
func (e *Endpoint) Healthy() bool { return e.health.until.Load() == 0 && !e.health.failing.Load() }

// Ended is how long ago an endpoint that had answered began to fail. It is false if the endpoint has never answered, or
// has answered since.
func (e *Endpoint) Ended() (ago time.Duration, ok bool) {
	at := e.health.lost.Load()
	return time.Duration(e.set.now() - at), at > 0
}

// Answered notes the status of a response. It is Succeeded, except for statuses by which gateways report errors of
// their backends, if the service's model.Ejection counts these.
func (e *Endpoint) Answered(status int) {
	e.reached(true)
	if status >= 502 && status <= 504 {
		if limit := int(e.health.errorsLimit.Load()); limit > 0 {
			e.gatewayError(limit)
			return
		}
	}
	e.Succeeded()
}

// TimedOut notes a response that did not come in time. It may lie in the request, so that it counts only where gateway errors do.
func (e *Endpoint) TimedOut() {
	if limit := int(e.health.errorsLimit.Load()); limit > 0 {
		e.gatewayError(limit)
	}
}

func (e *Endpoint) gatewayError(limit int) {
	h := &e.health
	h.mu.Lock()
	defer h.mu.Unlock()
	h.failures.Store(0)
	e.count(&h.errors, limit)
}

// Succeeded notes that the endpoint answered: consecutive failures start again at zero and an ejection ends.
func (e *Endpoint) Succeeded() {
	h := &e.health
	if h.failures.Load() == 0 && h.until.Load() == 0 && h.errors.Load() == 0 && h.lost.Load() == answering {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.lost.Store(answering)
	h.failures.Store(0)
	h.errors.Store(0)
	h.probing.Store(false)
	if h.until.Swap(0) != 0 {
		h.ended = e.set.now()
		e.set.opt.Logger.Info("endpoint recovered", "endpoint", e.Address)
	}
}

// Failed notes a failure of the endpoint: a connection reset or closed before a response, a malformed response.
// Failures to connect are noted inside the package, and those over HTTP/2 by Stream.Blame. Never call it because of the
// client, or for a reused connection that had been closed while idle.
func (e *Endpoint) Failed() {
	h := &e.health
	h.failed.Add(1)
	h.lost.CompareAndSwap(answering, max(e.set.now(), 1))
	limit := int(h.failuresLimit.Load())
	if limit < 1 {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	e.count(&h.failures, limit)
}

// count adds to consecutive failures and ejects the endpoint when they are enough, or when they are the probe's. health.mu is held.
func (e *Endpoint) count(consecutive *atomic.Int32, limit int) {
	h := &e.health
	n := consecutive.Load()
	if n < 1<<30 {
		n++
		consecutive.Store(n)
	}
	switch {
	case h.until.Load() == 0:
		if int(n) >= limit {
			e.eject(int(n), e.set.mayEject)
		}
	case h.probing.Load(): // others in an ejected state failed late, or because all are ejected
		e.eject(int(n), func(_ *Endpoint, eject func()) bool { eject(); return true })
	}
}

// eject ejects the endpoint if it is allowed. health.mu is held.
func (e *Endpoint) eject(failures int, allowed func(e *Endpoint, eject func()) bool) {
	h := &e.health
	now := e.set.now()
	level := h.level
	if now-h.ended > int64(ejectForget) {
		level = 0
	}
	d := min(ejectMin<<level, ejectMax)
	if !allowed(e, func() { h.until.Store(now + int64(d)) }) {
		h.denied.Add(1)
		h.spared.Log(e.set.opt.Logger, slog.LevelWarn, "", "endpoint not ejected, too many are", "endpoint", e.Address, "failures", failures)
		return
	}
	if h.level = level; d < ejectMax {
		h.level++
	}
	h.ended = now + int64(d)
	h.probing.Store(false)
	h.ejections.Add(1)
	e.set.opt.Logger.Warn("endpoint ejected", "endpoint", e.Address, "for", d, "failures", failures)
}

// mayEject calls eject if every service of the endpoint then still has a healthy endpoint and not too many ejected
// ones.
func (s *Set) mayEject(e *Endpoint, eject func()) bool {
	s.healthMu.Lock()
	defer s.healthMu.Unlock()
	for _, sv := range e.services {
		ejected, well := 0, 0
		for _, other := range sv.endpoints {
			switch {
			case other.health.until.Load() != 0:
				ejected++
			case other != e && !other.health.failing.Load():
				well++
			}
		}
		if ejected+1 > sv.maxEjected || well == 0 {
			return false
		}
	}
	eject()
	return true
}

// enlist tells the endpoints which services they are in, and takes back ejections that are too many for services that have shrunk: those
// first that would have ended first.
func (s *Set) enlist(endpoints map[key]*Endpoint, services map[serviceKey]*Service) {
	s.healthMu.Lock()
	defer s.healthMu.Unlock()
	for _, e := range endpoints {
		e.services = nil
	}
	for _, sv := range services {
		for _, e := range sv.endpoints {
			e.services = append(e.services, sv)
		}
		for {
			ejected, first := 0, (*Endpoint)(nil)
			for _, e := range sv.endpoints {
				if until := e.health.until.Load(); until != 0 {
					if ejected++; first == nil || until < first.health.until.Load() {
						first = e
					}
				}
			}
			if ejected <= sv.maxEjected {
				break
			}
			first.health.until.Store(0)
		}
	}
}

// maxEjected is how many of n endpoints may be ejected at once: never all.
func maxEjected(n int, p *model.Ejection) int {
	percent := defaultMaxEjected
	if p != nil && p.MaxPercent != nil {
		percent = *p.MaxPercent
	}
	return min(n*percent/100, max(n-1, 0))
}
