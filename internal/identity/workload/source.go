package workload

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	mathrand "math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/loglimit"
)

const (
	// askTime bounds a request.
	askTime = 15 * time.Second
	// firstRetry doubles with each failure, up to retryWithout while there is no good certificate, up to retryWith while
	// there is one. Of each pause a random part of at least a half is waited.
	firstRetry   = 100 * time.Millisecond
	retryWithout = 2 * time.Second
	retryWith    = time.Minute
	// leastLife is the pause after a certificate that is over sooner: the authority itself ends.
	leastLife = 10 * time.Second
	// lookEvery is how often the clock is looked at, which may be stepped at any time.
	lookEvery = time.Minute
	// loud is the part of a certificate's life that is left when failures to renew it become errors in the log.
	loud = 0.25
)

// Source keeps a pod's identity: a new key with each certificate, renewed when two thirds of its life are over, at the
// latest. Sign is required. No field may be changed after Run.
type Source struct {
	// Sign has an Issuer answer a request.
	Sign func(ctx context.Context, request []byte) ([]byte, error)
	// Changed, if set, is called with each new identity, before Identity returns it. It must not block.
	Changed func(*spiffe.Identity)
	// Logger, if set, has what was issued and what failed.
	Logger *slog.Logger
	// File, if set, is where the identity is kept with its key, for a process that is started again: it belongs on memory.
	File string
	// Now is the time of day, which may be set at any time; nil is the system's.
	Now func() time.Time

	current  atomic.Pointer[spiffe.Identity]
	issued   Issued // of current; only Run uses it
	expected atomic.Pointer[Issued]
	early    early
	once     sync.Once
	again    chan struct{}
	looks    chan struct{}
	failures loglimit.Limiter
}

// Identity is what the pod presents now; nil before the first one, and when the last one has ended.
func (s *Source) Identity() *spiffe.Identity {
	id := s.current.Load()
	if id == nil || s.day().After(id.Certificate.Leaf.NotAfter) {
		return nil
	}
	return id
}

// day is the time of day, without a reading of the clock that measures intervals.
func (s *Source) day() time.Time {
	if s.Now != nil {
		return s.Now().Round(0)
	}
	return time.Now().Round(0)
}

// Ends is when the current identity ends; zero if there is none.
func (s *Source) Ends() time.Time {
	if id := s.current.Load(); id != nil {
		return id.Certificate.Leaf.NotAfter
	}
	return time.Time{}
}

// Renew has a certificate signed now, as when the roots or what it should say have changed. It does not wait for it.
func (s *Source) Renew() {
	select {
	case s.asked() <- struct{}{}:
	default:
	}
}

// Expect says what a certificate would be that was signed now. If the current one differs, it is renewed soon: at a random
// time, since many pods may learn the same at once, and not again and again, should the answer stay another one. It may be
// called from any goroutine.
func (s *Source) Expect(now Issued) {
	if before := s.expected.Swap(&now); before == nil || *before != now {
		select {
		case s.lookAgain() <- struct{}{}:
		default:
		}
	}
}

func (s *Source) lookAgain() chan struct{} {
	s.init()
	return s.looks
}

func (s *Source) init() {
	s.once.Do(func() { s.again, s.looks = make(chan struct{}, 1), make(chan struct{}, 1) })
}

func (s *Source) asked() chan struct{} {
	s.init()
	return s.again
}

// Run gets the identity and renews it until ctx ends, which is no error. While it cannot be renewed, it is what it was
// until it ends.
func (s *Source) Run(ctx context.Context) error {
	if s.Sign == nil {
		return errors.New("workload: an identity needs someone to sign it")
	}
	log := s.Logger
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	var retry time.Duration
	var due time.Time // when to ask, whatever becomes of the time of day
	before := s.clocks()
	switch id, issued, err := s.restore(); {
	case err == nil:
		s.issued, due = issued, before.steady.Add(renewal(id, before.day))
		s.use(id, log)
	case !errors.Is(err, fs.ErrNotExist):
		log.Warn("the identity that was kept is not used; asking for another one", "file", s.File, "error", err)
	}
	for {
		now := s.clocks()
		if step := now.step(before); step.Abs() >= leastStep {
			s.stepped(step, now.day, log)
			if before = now; retry == 0 { // asks at the time of day that was chosen; at once if the certificate is not valid by it
				if due = due.Add(-step); !s.begun(now.day) {
					due = time.Time{}
				}
			}
		}
		if now := now.steady; !now.Before(due) || s.early.asks(now) {
			id, issued, err := s.ask(ctx, log)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				before = s.clocks()
				retry, due, s.issued = 0, before.steady.Add(renewal(id, before.day)), issued
				s.use(id, log)
			default:
				retry = min(max(2*retry, firstRetry), s.longest())
				due = time.Now().Add(retry/2 + mathrand.N(retry/2))
				s.failed(err, log)
			}
		}
		next := due
		if expected := s.expected.Load(); expected != nil && s.current.Load() != nil {
			s.early.look(s.issued, *expected, time.Now())
			if at := s.early.at; !at.IsZero() && at.Before(next) {
				next = at
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-s.asked():
			due = time.Time{}
		case <-s.lookAgain():
		case <-time.After(min(time.Until(next), lookEvery)):
		}
	}
}

// leastStep is by how much the time of day has moved otherwise than intervals do when it counts as set.
const leastStep = time.Minute

// clocks are the time of day and a time by which intervals are measured, of one moment.
type clocks struct{ day, steady time.Time }

func (s *Source) clocks() clocks { return clocks{s.day(), time.Now()} }

// step is by how much the time of day was set between two moments. A node that was suspended looks like one that was put forward.
func (c clocks) step(since clocks) time.Duration {
	return c.day.Sub(since.day) - c.steady.Sub(since.steady)
}

// stepped says that the time of day was set: as an error if the certificate is not valid by it.
func (s *Source) stepped(step time.Duration, day time.Time, log *slog.Logger) {
	level, id := slog.LevelWarn, s.current.Load()
	if !s.begun(day) || id != nil && day.After(id.Certificate.Leaf.NotAfter) {
		level = slog.LevelError
	}
	log.Log(context.Background(), level, "the clock of this node was set, or the node was suspended; make sure that its clock and the controller's agree", "by", step, "now", day)
}

// begun reports whether the current certificate, if there is one, is valid already: it is not when the clock was put back.
func (s *Source) begun(now time.Time) bool {
	id := s.current.Load()
	return id == nil || !now.Before(id.Certificate.Leaf.NotBefore)
}

// renewal is after which time to ask for the next certificate: a random one up to a tenth before two thirds of its life are
// over, so that pods that began together do not ask together.
func renewal(id *spiffe.Identity, now time.Time) time.Duration {
	life := id.Certificate.Leaf.NotAfter.Sub(now)
	return max(life*2/3-mathrand.N(max(life/10, 0)+1), leastLife)
}

func (s *Source) longest() time.Duration {
	if s.Identity() == nil {
		return retryWithout
	}
	return retryWith
}

func (s *Source) ask(ctx context.Context, log *slog.Logger) (*spiffe.Identity, Issued, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, Issued{}, err
	}
	request, err := newRequest(key)
	if err != nil {
		return nil, Issued{}, err
	}
	data, err := s.Sign(ctx, request)
	if err != nil {
		return nil, Issued{}, err
	}
	id, issued, err := identityOf(data, key, s.day())
	if err != nil {
		return nil, Issued{}, fmt.Errorf("the answer is not used: %w", err)
	}
	if err := s.keep(key, data); err != nil {
		s.failures.Log(log, slog.LevelWarn, "kept", "the identity cannot be kept for a restart", "file", s.File, "error", err)
	}
	return id, issued, nil
}

func (s *Source) use(id *spiffe.Identity, log *slog.Logger) {
	leaf := id.Certificate.Leaf
	if before := s.current.Load(); before != nil && before.ID != id.ID {
		log.Warn("the identity is another one now", "was", before.ID.String(), "is", id.ID.String())
	}
	log.Info("the identity is certified", "id", id.ID.String(), "names", leaf.DNSNames, "until", leaf.NotAfter)
	if s.Changed != nil {
		s.Changed(id)
	}
	s.current.Store(id)
}

// failed says that there is no new certificate: the louder, the sooner the current one ends.
func (s *Source) failed(err error, log *slog.Logger) {
	id := s.current.Load()
	if errors.Is(err, errClocks) {
		s.failures.Log(log, slog.LevelError, "clocks", "no certificate is used while the clocks disagree; set the clock of this node, or of the controller's", "error", err)
		return
	}
	if id == nil {
		s.failures.Log(log, slog.LevelWarn, "none", "no identity yet; asking again", "error", err)
		return
	}
	leaf := id.Certificate.Leaf
	left := leaf.NotAfter.Sub(s.day())
	switch {
	case left <= 0:
		s.failures.Log(log, slog.LevelError, "ended", "the identity has ended and cannot be renewed: nothing that needs mutual TLS works", "id", id.ID.String(), "ended", leaf.NotAfter, "error", err)
	case left.Seconds() < loud*leaf.NotAfter.Sub(leaf.NotBefore).Seconds():
		s.failures.Log(log, slog.LevelError, "ends", "the identity ends soon and cannot be renewed", "id", id.ID.String(), "until", leaf.NotAfter, "error", err)
	default:
		s.failures.Log(log, slog.LevelWarn, "stays", "the identity cannot be renewed; asking again", "id", id.ID.String(), "until", leaf.NotAfter, "error", err)
	}
}
