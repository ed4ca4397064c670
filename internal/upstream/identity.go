package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
)

// workloads is the part of a TLS identity that comes from Options.Identities: it is asked for at each handshake, so that
// what was renewed counts at once. Connections that exist are not touched. Names are empty for none.
type workloads struct {
	presents string      // the identity that is presented
	believes string      // the identity whose roots vouch for the endpoint
	accepted []spiffe.ID // that the endpoint may have, if believes is set
	source   func(name string) *spiffe.Identity
}

func (w *workloads) none() bool { return w.presents == "" && w.believes == "" }

// read takes what t and the name of the client certificate say about identities.
func (w *workloads) read(t *model.ServiceTLS, client string) error {
	if model.IsIdentity(client) {
		w.presents = client
	}
	if w.believes = t.Identity(); w.believes == "" {
		return nil
	}
	if len(t.SubjectAltNames) == 0 {
		return fmt.Errorf("no SPIFFE ID to check the certificate against, and %q vouches for these alone", w.believes)
	}
	for _, name := range t.SubjectAltNames {
		id, err := spiffe.Parse(name)
		if err != nil {
			return fmt.Errorf("subject alternative name: %w", err)
		}
		w.accepted = append(w.accepted, id)
	}
	return nil
}

// configure returns the configuration of one handshake, made from base. When the handshake has succeeded, until is when
// the first of the certificates ends that prove identities; nil or zero for never.
func (w *workloads) configure(base *tls.Config) (config *tls.Config, until *time.Time, err error) {
	if w.none() {
		return base, nil, nil
	}
	until = new(time.Time)
	ends := func(leaf *x509.Certificate) {
		if until.IsZero() || leaf.NotAfter.Before(*until) {
			*until = leaf.NotAfter
		}
	}
	config = base.Clone()
	if w.presents != "" {
		own := w.source(w.presents)
		if own == nil {
			return nil, nil, fmt.Errorf("there is no certificate yet for %q", w.presents)
		}
		// It is presented to every server that asks, whatever authorities the server names.
		config.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			ends(own.Certificate.Leaf)
			return own.Certificate, nil
		}
	}
	if w.believes != "" {
		own := w.source(w.believes)
		if own == nil {
			return nil, nil, fmt.Errorf("there are no roots yet for %q", w.believes)
		}
		// The library would check a host name. VerifyConnection runs for resumed sessions, too.
		config.InsecureSkipVerify = true
		config.VerifyConnection = func(cs tls.ConnectionState) error {
			id, err := own.Verify(cs.PeerCertificates, x509.ExtKeyUsageServerAuth)
			if err != nil {
				return err
			}
			if !slices.Contains(w.accepted, id) {
				return &nameError{cs.PeerCertificates[0], names(w.accepted)}
			}
			ends(cs.PeerCertificates[0])
			return nil
		}
	}
	return config, until, nil
}

func names(ids []spiffe.ID) (all []string) {
	for _, id := range ids {
		all = append(all, id.String())
	}
	return all
}

// certificateReason names why a certificate proves no identity; empty for other errors.
func certificateReason(err error) TLSReason {
	switch {
	case errors.As(err, new(*spiffe.DomainError)):
		return TLSWrongName
	case errors.As(err, new(*spiffe.CertificateError)):
		return TLSBadCertificate
	}
	return ""
}

// ended reports whether a certificate has ended that the connection was made with: no exchange may begin on it.
func (c *Conn) ended() bool { return !c.until.IsZero() && !time.Now().Before(c.until) }

// retire closes idle connections that were made with certificates that have ended, and lets HTTP/2 connections end with
// their last stream.
func (e *Endpoint) retire(now time.Time) {
	if e.tls == nil || e.tls.none() {
		return
	}
	var ended []*Conn
	e.mu.Lock()
	e.idle = slices.DeleteFunc(e.idle, func(c *Conn) bool {
		over := !now.Before(c.until) && !c.until.IsZero()
		if over {
			ended = append(ended, c)
		}
		return over
	})
	e.mu.Unlock()
	for _, c := range ended {
		c.closeGently()
	}
	e.h2.retire(now)
}

// retire lets connections take no more streams whose certificates have ended.
func (p *http2Pool) retire(now time.Time) {
	var ended []*http2Conn
	p.mu.Lock()
	for c := range p.all {
		if !c.until.IsZero() && !now.Before(c.until) && slices.Contains(*p.conns.Load(), c) {
			p.unlist(c)
			ended = append(ended, c)
		}
	}
	if len(ended) > 0 {
		p.proceed()
	}
	p.mu.Unlock()
	for _, c := range ended {
		c.Shutdown()
	}
}
