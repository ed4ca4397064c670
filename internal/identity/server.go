package identity

import (
	"crypto/tls"
	"errors"
	"sync"
	"time"
)

// Server holds a server certificate of an authority that may change, and renews it when it is asked for. Its zero value,
// with Subject or Replica set, is ready for Use.
type Server struct {
	Subject Subject
	// Replica makes it a certificate of Authority.Replica instead.
	Replica bool
	// Now is the clock; nil is the system's.
	Now func() time.Time

	mu        sync.Mutex
	authority *Authority
	current   *tls.Certificate
	renewal   time.Time
}

// Use makes a the authority that signs from now on.
func (s *Server) Use(a *Authority) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.authority == nil || !s.authority.signer.cert.Equal(a.signer.cert) {
		s.current = nil
	}
	s.authority = a
}

// Certificate returns the certificate to present now. It fails while there is no authority. If no new certificate can
// be had, the old one is returned until it ends.
func (s *Server) Certificate() (*tls.Certificate, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.authority == nil {
		return nil, errors.New("identity: no certificate authority yet")
	}
	now := time.Now()
	if s.Now != nil {
		now = s.Now()
	}
	// The renewal is a time of day, as is the end of a certificate, and not an interval: the clock may be set.
	now = now.Round(0)
	if s.current != nil && now.Before(s.renewal) && !now.Before(s.current.Leaf.NotBefore) { // it may have been put back
		return s.current, nil
	}
	cert, err := s.sign(now)
	if err != nil {
		if s.current != nil && now.Before(s.current.Leaf.NotAfter) {
			return s.current, nil
		}
		return nil, err
	}
	s.current, s.renewal = cert, now.Add(cert.Leaf.NotAfter.Sub(now)*2/3)
	return cert, nil
}

func (s *Server) sign(now time.Time) (*tls.Certificate, error) {
	if s.Replica {
		return s.authority.Replica(now)
	}
	return s.authority.Server(s.Subject, now)
}
