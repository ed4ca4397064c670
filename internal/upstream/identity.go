package upstream

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
)

// ErrNoIdentity is why a service is not reached for which the process needs an identity that it does not have, yet or any more.
var ErrNoIdentity = errors.New("no identity")

// workloads is the part of a TLS identity that comes from Options.Identities: it is asked for at each handshake, so that
// what was renewed counts at once. Connections that exist are not touched. Names are empty for none.
type workloads struct {
	presents string      // the identity that is presented
	believes string      // the identity whose roots vouch for the endpoint
	accepted []spiffe.ID // that the endpoint may have, if believes is set
	pod      string      // that the endpoint must be by its certificate, if believes is set; empty for any
	source   func(name string) *spiffe.Identity
}

func (w *workloads) none() bool { return w.presents == "" && w.believes == "" }

// Meshed reports whether an identity vouches for the endpoint: a proxy of the mesh answers there.
func (e *Endpoint) Meshed() bool { return e.tls != nil && e.tls.believes != "" }

// Shares reports whether requests of all kinds may share an HTTP/2 connection to the endpoint: it is Meshed, and has not
// shown that it takes only HTTP/1.1, as where the client's side says that a port carries HTTP and the endpoint's side that
// it does not.
func (e *Endpoint) Shares() bool { return e.Meshed() && !e.unshared.Load() }

// Busy reports whether the endpoint has so many exchanges that others cost less if they share a connection.
func (e *Endpoint) Busy() bool { return e.inFlight.Load() >= int64(e.set.opt.ShareFrom) }

// read takes what t and the name of the client certificate say about identities.
func (w *workloads) read(t *model.ServiceTLS, client string) error {
	if model.IsIdentity(client) {
		w.presents = client
	}
	if w.believes = t.Identity(); w.believes == "" {
		return nil
	}
	if w.presents == "" { // what else the route presents is for other services
		w.presents = w.believes
	}
	if len(t.SubjectAltNames) == 0 && t.Pods == nil {
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
			return nil, nil, fmt.Errorf("%w: there is no certificate yet for %q", ErrNoIdentity, w.presents)
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
			return nil, nil, fmt.Errorf("%w: there are no roots yet for %q", ErrNoIdentity, w.believes)
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
			if err := w.isPod(cs.PeerCertificates[0]); err != nil {
				return err
			}
			ends(cs.PeerCertificates[0])
			return nil
		}
	}
	return config, until, nil
}

// isPod fails if a certificate is another pod's than the one that was meant: addresses of pods are used again.
func (w *workloads) isPod(leaf *x509.Certificate) error {
	if w.pod == "" {
		return nil
	}
	claims, err := claim.Of(leaf)
	if err == nil && claims.Pod != w.pod {
		err = fmt.Errorf("the certificate is for the pod %q, wanted is %q", claims.Pod, w.pod)
	}
	if err != nil {
		return &podError{err}
	}
	return nil
}

// podError says that a certificate does not prove to be the wanted pod's.
type podError struct{ error }

// Unwrap returns why.
func (e *podError) Unwrap() error { return e.error }

// pods are the identities that pods of a service have, by their addresses; nil if ServiceTLS names none.
func pods(t *model.ServiceTLS) map[netip.Addr]*model.PodIdentity {
	if t == nil || t.Pods == nil {
		return nil
	}
	out := make(map[netip.Addr]*model.PodIdentity, len(t.Pods))
	for i := range t.Pods {
		if a, err := netip.ParseAddr(t.Pods[i].Address); err == nil {
			out[a.Unmap()] = &t.Pods[i]
		}
	}
	return out
}

// of returns the identity of one endpoint of a service with this one, and its digest, made from the service's; nil, and an
// empty one, if it is spoken to in cleartext. known are those that were made before, by digest.
func (id *tlsIdentity) of(pods map[netip.Addr]*model.PodIdentity, digest, address string, known map[string]*tlsIdentity) (*tlsIdentity, string) {
	if id == nil || pods == nil {
		return id, digest
	}
	var pod *model.PodIdentity
	if to, err := netip.ParseAddrPort(address); err == nil {
		pod = pods[to.Addr().Unmap()]
	}
	if pod == nil {
		return nil, ""
	}
	digest += "\x00" + pod.ID + "\x00" + pod.Pod
	if known[digest] == nil {
		one := *id
		accepted, err := spiffe.Parse(pod.ID)
		if err != nil && one.err == nil {
			one.err = fmt.Errorf("the pod %s: %w", pod.Address, err)
		}
		one.accepted, one.pod = []spiffe.ID{accepted}, pod.Pod
		known[digest] = &one
	}
	return known[digest], digest
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
	case errors.As(err, new(*spiffe.DomainError)), errors.As(err, new(*podError)):
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
