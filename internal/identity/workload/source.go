package workload

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"errors"
	"fmt"
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
	if id == nil || time.Now().After(id.Certificate.Leaf.NotAfter) {
		return nil
	}
	return id
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
	var due time.Time // when to ask
	for {
		if now := time.Now(); !now.Before(due) || !s.begun(now) || s.early.asks(now) {
			id, issued, err := s.ask(ctx)
			switch {
			case ctx.Err() != nil:
				return nil
			case err == nil:
				retry, due, s.issued = 0, renewal(id, time.Now()), issued
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

// begun reports whether the current certificate, if there is one, is valid already: it is not when the clock was put back.
func (s *Source) begun(now time.Time) bool {
	id := s.current.Load()
	return id == nil || !now.Before(id.Certificate.Leaf.NotBefore)
}

// renewal is when to ask for the next certificate: at a random time up to a tenth before two thirds of its life are over,
// so that pods that began together do not ask together.
func renewal(id *spiffe.Identity, now time.Time) time.Time {
	life := id.Certificate.Leaf.NotAfter.Sub(now)
	return now.Add(max(life*2/3-mathrand.N(max(life/10, 0)+1), leastLife))
}

func (s *Source) longest() time.Duration {
	if s.Identity() == nil {
		return retryWithout
	}
	return retryWith
}

func (s *Source) ask(ctx context.Context) (*spiffe.Identity, Issued, error) {
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
	id, issued, err := identityOf(data, key, time.Now())
	if err != nil {
		return nil, Issued{}, fmt.Errorf("the answer is not used: %w", err)
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
	if id == nil {
		s.failures.Log(log, slog.LevelWarn, "none", "no identity yet; asking again", "error", err)
		return
	}
	leaf := id.Certificate.Leaf
	left := time.Until(leaf.NotAfter)
	switch {
	case left <= 0:
		s.failures.Log(log, slog.LevelError, "ended", "the identity has ended and cannot be renewed: nothing that needs mutual TLS works", "id", id.ID.String(), "ended", leaf.NotAfter, "error", err)
	case left.Seconds() < loud*leaf.NotAfter.Sub(leaf.NotBefore).Seconds():
		s.failures.Log(log, slog.LevelError, "ends", "the identity ends soon and cannot be renewed", "id", id.ID.String(), "until", leaf.NotAfter, "error", err)
	default:
		s.failures.Log(log, slog.LevelWarn, "stays", "the identity cannot be renewed; asking again", "id", id.ID.String(), "until", leaf.NotAfter, "error", err)
	}
}
