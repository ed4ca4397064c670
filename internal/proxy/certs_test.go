package proxy

import (
	"crypto/x509"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
)

// secure makes the first listener HTTPS, with a certificate for the names.
func secure(t testing.TB, cfg *model.Config, names ...string) *x509.CertPool {
	t.Helper()
	a := peertest.NewAuthority(t)
	chain, key := a.Issue(t, names...)
	cfg.Certificates = append(cfg.Certificates, model.Certificate{Name: "default/cert", Chain: chain, Key: model.Secret(key)})
	cfg.Listeners[0].Protocol = model.HTTPS
	cfg.Listeners[0].TLS = &model.ListenerTLS{Certificates: []string{"default/cert"}}
	return a.Pool()
}
