//go:build linux

package main

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/folder"
)

// trustDomain is that of the sidecars' identities, Weir's default.
const trustDomain = "cluster.local"

// The pods that have sidecars, in the namespace namespace. The Service of the application's name leads to it.
const (
	namespace   = "bench"
	application = "shop"
	caller      = "web"
	podPort     = 8080
)

// trust is a trust domain as "weir identity" makes one, whose certificates all sidecars present: ECDSA P-256.
type trust struct {
	dir       string // as weir reads it
	rootsFile string
	roots     *x509.CertPool
	// server and client are the files of the application's and the caller's certificate, each with its key.
	server, client string
	// stranger is like client, by an authority that nobody trusts.
	stranger string
}

// newTrust makes the trust domain, and the stranger's, in a folder.
func newTrust(dir string) (t trust, err error) {
	t.dir = filepath.Join(dir, "trust")
	t.rootsFile = filepath.Join(t.dir, "ca.crt")
	var err1, err2, err3 error
	t.server, err1 = issue(t.dir, application, hostname)
	t.client, err2 = issue(t.dir, caller)
	t.stranger, err3 = issue(filepath.Join(dir, "elsewhere"), caller)
	if err := errors.Join(err1, err2, err3); err != nil {
		return t, err
	}
	text, err := os.ReadFile(t.rootsFile)
	if err != nil {
		return t, err
	}
	t.roots = x509.NewCertPool()
	if !t.roots.AppendCertsFromPEM(text) {
		return t, fmt.Errorf("%s holds no certificate", t.rootsFile)
	}
	return t, nil
}

// issue makes the certificate of a Deployment's pods in the trust domain of a folder, and the trust domain if there is none.
func issue(dir, name string, hosts ...string) (file string, err error) {
	now := time.Now()
	f, err := folder.Make(dir, trustDomain, "", now)
	if err != nil {
		return "", err
	}
	owners := []claim.Owner{{Kind: "Deployment", Name: name}}
	file, _, err = f.Pod(folder.Pod{Namespace: namespace, Name: name, Account: name, Owners: owners, DNSNames: hosts}, 24*time.Hour, now)
	return file, err
}

// clientTLS is the configuration of a client that presents the certificate of a file, or none, and trusts the roots.
func (t *trust) clientTLS(file string) (*tls.Config, error) {
	c := &tls.Config{RootCAs: t.roots, ServerName: hostname, MinVersion: tls.VersionTLS13}
	if file == "" {
		return c, nil
	}
	pair, err := tls.LoadX509KeyPair(file, file)
	c.Certificates = []tls.Certificate{pair}
	return c, err
}
