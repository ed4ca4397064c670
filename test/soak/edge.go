//go:build unix

package main

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/test/freeport"
)

// ports of the listeners: cleartext, TLS, and one that comes and goes.
type ports struct{ web, secure, passing int }

func freePorts() (p ports, err error) {
	for _, port := range []*int{&p.web, &p.secure, &p.passing} {
		if *port, err = freeport.Take(); err != nil {
			return p, err
		}
	}
	return p, nil
}

// edge is what the processes are told: a folder with the routes, whose file is written in place or replaced, and a folder with everything else,
// which changes as a mounted ConfigMap does.
type edge struct {
	files, folder string
	folderNumber  atomic.Int64

	certificate []byte // manifest
	passing     bool
	services    map[string][]*instance
	stopping    sync.WaitGroup
}

func number(n int64) string { return fmt.Sprintf("%06d", n) }

func folderMark(n int64) string { return fmt.Sprintf("folder-%06d", n) }

// start starts the backends.
func (e *edge) start(s *soak) (err error) {
	e.files, e.folder = filepath.Join(s.dir, "files"), filepath.Join(s.dir, "folder")
	e.services = map[string][]*instance{}
	for _, dir := range []string{e.files, e.folder} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			return err
		}
	}
	for _, version := range versions {
		for _, name := range []string{version, "grpc-" + version} {
			if err := e.deploy(s, name, version); err != nil {
				return err
			}
		}
	}
	if err := e.deploy(s, "grpc-endless", "endless"); err != nil {
		return err
	}
	return e.deploy(s, "copies", "copies")
}

func (e *edge) deploy(s *soak, name, version string) error {
	in, err := startInstance(s, strings.HasPrefix(name, "grpc-"), version)
	if err == nil {
		e.services[name] = append(e.services[name], in)
	}
	return err
}

func (e *edge) stop() {
	e.stopping.Wait()
	for _, all := range e.services {
		for _, in := range all {
			in.stop(0)
		}
	}
}

// write makes the first files.
func (e *edge) write(s *soak) error {
	s.truth.written.Store(1)
	if err := e.writeRoutes(e.routes(1), false); err != nil {
		return err
	}
	if err := e.rotate(s); err != nil {
		return err
	}
	return e.swap(s)
}

// writeRoutes writes the routes' file in place, or replaces it.
func (e *edge) writeRoutes(text string, replace bool) error {
	name := filepath.Join(e.files, "routes.yaml")
	if !replace {
		return os.WriteFile(name, []byte(text), 0o600)
	}
	if err := os.WriteFile(name+".new", []byte(text), 0o600); err != nil {
		return err
	}
	return os.Rename(name+".new", name)
}

// swap writes the folder anew behind its symbolic link, as a kubelet does.
func (e *edge) swap(s *soak) error {
	n := e.folderNumber.Add(1)
	version := fmt.Sprintf("..%06d", n)
	if err := os.Mkdir(filepath.Join(e.folder, version), 0o700); err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(e.folder, version, "edge.yaml"), []byte(e.manifests(s, n)), 0o600); err != nil {
		return err
	}
	data, next := filepath.Join(e.folder, "..data"), filepath.Join(e.folder, "..data_tmp")
	if err := os.Symlink(version, next); err != nil {
		return err
	}
	if err := os.Rename(next, data); err != nil {
		return err
	}
	if n == 1 {
		return os.Symlink(filepath.Join("..data", "edge.yaml"), filepath.Join(e.folder, "edge.yaml"))
	}
	return os.RemoveAll(filepath.Join(e.folder, fmt.Sprintf("..%06d", n-1)))
}

// reload makes the i-th change and returns when all processes serve it.
func (e *edge) reload(s *soak, i int) error {
	s.diary.reloads.Add(1)
	kinds := []struct {
		name string
		do   func() error
	}{
		{"split, filters and mirror (written in place)", func() error { return e.reroute(s, false) }},
		{"endpoints added (symbolic link swapped)", func() error { return e.add(s) }},
		{"split, filters and mirror (renamed)", func() error { return e.reroute(s, true) }},
		{"certificate (symbolic link swapped)", func() error { return e.change(s, func() error { return e.rotate(s) }) }},
		{"broken YAML", func() error { return e.breakRoutes(s, "spec:\n", "kind: [\nspec:\n") }},
		{"port (symbolic link swapped)", func() error { return e.togglePort(s) }},
		{"split, filters and mirror (renamed)", func() error { return e.reroute(s, true) }},
		{"endpoints removed (symbolic link swapped)", func() error { return e.remove(s) }},
		{"invalid routes", func() error { return e.breakRoutes(s, "weight: ", "weight: many") }},
		{"port (symbolic link swapped)", func() error { return e.togglePort(s) }},
	}
	k := kinds[i%len(kinds)]
	defer s.diary.during("reload %d: %s", i+1, k.name)()
	return k.do()
}

// reroute goes on to the next number of the routes.
func (e *edge) reroute(s *soak, replace bool) error {
	s.fleet.files.Lock()
	n := s.truth.written.Add(1)
	err := e.writeRoutes(e.routes(n), replace)
	s.fleet.files.Unlock()
	if err != nil {
		return err
	}
	return s.fleet.confirm()
}

// breakRoutes writes routes of the next number that must never be served, waits until all processes have seen them, and lets some traffic pass
// before it mends them.
func (e *edge) breakRoutes(s *soak, right, wrong string) error {
	s.diary.broken.Add(1)
	s.fleet.files.Lock()
	n := s.truth.written.Load() + 1
	s.truth.broken[n].Store(true)
	err := e.writeRoutes(strings.ReplaceAll(e.routes(n), right, wrong), n%2 == 0)
	if err == nil {
		err = s.fleet.all("status", func(_ int, body string) bool { return strings.Contains(body, `"severity": "error"`) })
	}
	for until := s.sent.Load() + int64(s.requests/2000); err == nil && s.sent.Load() < until && s.ctx.Err() == nil; {
		time.Sleep(time.Millisecond)
	}
	if err == nil {
		n = s.truth.written.Add(2)
		err = e.writeRoutes(e.routes(n), true)
	}
	s.fleet.files.Unlock()
	if err != nil {
		return err
	}
	return s.fleet.confirm()
}

// change changes the folder.
func (e *edge) change(s *soak, f func() error) error {
	s.fleet.files.Lock()
	err := f()
	if err == nil {
		err = e.swap(s)
	}
	s.fleet.files.Unlock()
	if err != nil {
		return err
	}
	return s.fleet.confirm()
}

// add starts a second instance of each version.
func (e *edge) add(s *soak) error {
	return e.change(s, func() error {
		for _, version := range versions {
			for _, name := range []string{version, "grpc-" + version} {
				if err := e.deploy(s, name, version); err != nil {
					return err
				}
			}
		}
		return nil
	})
}

// remove takes the oldest instance of each version away: it is asked to say goodbye, left out of the configuration, and stops when nobody can know it
// any more.
func (e *edge) remove(s *soak) error {
	var gone []*instance
	for name, all := range e.services {
		if len(all) > 1 {
			all[0].leave()
			gone = append(gone, all[0])
			e.services[name] = all[1:]
		}
	}
	if err := e.change(s, func() error { return nil }); err != nil {
		return err
	}
	for _, in := range gone {
		e.stopping.Go(func() {
			s.fleet.stale()
			time.Sleep(500 * time.Millisecond) // exchanges that began before
			in.stop(patience)
		})
	}
	return nil
}

func (e *edge) togglePort(s *soak) error {
	if e.passing {
		s.passing.close()
	}
	err := e.change(s, func() error { e.passing = !e.passing; return nil })
	if err == nil && e.passing {
		s.passing.open()
	}
	return err
}

// routes are the manifests whose number the answers tell.
func (e *edge) routes(n int64) string {
	filters := fmt.Sprintf(`    filters:
    - type: RequestHeaderModifier
      requestHeaderModifier:
        set: [{name: %[1]s, value: %[2]q}]
`, fieldConfig, number(n))
	if unmarked(int(n)) {
		filters += fmt.Sprintf("        remove: [%s]\n", fieldMark)
	}
	filters += fmt.Sprintf("    - type: ResponseHeaderModifier\n      responseHeaderModifier: {set: [{name: %s, value: %q}]}\n", fieldConfig, number(n))
	mirror := ""
	if mirrored(int(n)) {
		mirror = "    - {type: RequestMirror, requestMirror: {backendRef: {name: copies, port: 80}, percent: 10}}\n"
	}
	backends := func(prefix string) string {
		text := "    backendRefs:\n"
		for i, w := range weights(int(n)) {
			text += fmt.Sprintf("    - {name: %s%s, port: 80, weight: %d}\n", prefix, versions[i], w)
		}
		return text
	}
	return fmt.Sprintf(`apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: web, namespace: soak}
spec:
  parentRefs: [{name: edge}]
  hostnames: [web.example]
  rules:
  - name: web
%s---
apiVersion: gateway.networking.k8s.io/v1
kind: GRPCRoute
metadata: {name: grpc, namespace: soak}
spec:
  parentRefs: [{name: edge}]
  hostnames: [grpc.example]
  rules:
  - name: endless
    matches: [{method: {service: soak.Soak, method: Endless}}]
    backendRefs: [{name: grpc-endless, port: 80}]
  - name: grpc
%s`, filters+mirror+backends(""), filters+backends("grpc-"))
}

// manifests are all but the routes.
func (e *edge) manifests(s *soak, n int64) string {
	var b strings.Builder
	fmt.Fprintf(&b, `apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge, namespace: soak}
spec:
  gatewayClassName: weir
  listeners:
  - {name: web, port: %d, protocol: HTTP}
  - {name: secure, port: %d, protocol: HTTPS, tls: {certificateRefs: [{name: edge}]}}
`, s.ports.web, s.ports.secure)
	if e.passing {
		fmt.Fprintf(&b, "  - {name: passing, port: %d, protocol: HTTP}\n", s.ports.passing)
	}
	fmt.Fprintf(&b, `---
apiVersion: gateway.networking.k8s.io/v1
kind: HTTPRoute
metadata: {name: mark, namespace: soak}
spec:
  parentRefs: [{name: edge}]
  hostnames: [mark.example]
  rules:
  - filters:
    - {type: ResponseHeaderModifier, responseHeaderModifier: {set: [{name: x-mark, value: %s}]}}
    backendRefs: [{name: v1, port: 80}]
`, folderMark(n))
	b.Write(e.certificate)
	for _, name := range []string{"v1", "v2", "v3", "grpc-v1", "grpc-v2", "grpc-v3", "grpc-endless", "copies"} {
		protocol := ""
		if name == "v3" || strings.HasPrefix(name, "grpc-") {
			protocol = ", appProtocol: kubernetes.io/h2c"
		}
		fmt.Fprintf(&b, "---\napiVersion: v1\nkind: Service\nmetadata: {name: %s, namespace: soak}\nspec: {ports: [{port: 80%s}]}\n", name, protocol)
		for _, in := range e.services[name] {
			fmt.Fprintf(&b, `---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s-%[2]d, namespace: soak, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
ports: [{port: %[2]d}]
endpoints: [{addresses: [127.0.0.1]}]
`, name, in.port)
		}
	}
	return b.String()
}

// authority signs the certificates.
type authority struct {
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
	pool *x509.CertPool
}

func newAuthority() (*authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, err
	}
	a := &authority{key: key, pool: x509.NewCertPool(), cert: &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "soak"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}}
	der, err := x509.CreateCertificate(rand.Reader, a.cert, a.cert, key.Public(), key)
	if err != nil {
		return nil, err
	}
	if a.cert, err = x509.ParseCertificate(der); err != nil {
		return nil, err
	}
	a.pool.AddCert(a.cert)
	return a, nil
}

// client is the configuration of clients; the name is what they ask for.
func (a *authority) client(s *soak, name string, protocols ...string) *tls.Config {
	return &tls.Config{RootCAs: a.pool, ServerName: name, NextProtos: protocols}
}

// checkCertificate says whether a handshake that began when oldest was confirmed was given a certificate in force.
func (s *soak) checkCertificate(oldest int64, state tls.ConnectionState) error {
	serial := state.PeerCertificates[0].SerialNumber.Int64()
	if newest := s.truth.certWritten.Load(); serial < oldest || serial > newest {
		return fmt.Errorf("certificate %d was given, in force are %d to %d", serial, oldest, newest)
	}
	return nil
}

// rotate makes the next certificate.
func (e *edge) rotate(s *soak) error {
	serial := s.truth.certWritten.Add(1)
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(serial), DNSNames: []string{"web.example", "grpc.example"}, NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(24 * time.Hour),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}, s.tls.cert, key.Public(), s.tls.key)
	if err != nil {
		return err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return err
	}
	encode := func(kind string, der []byte) string {
		return base64.StdEncoding.EncodeToString(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	e.certificate = fmt.Appendf(nil, "---\napiVersion: v1\nkind: Secret\nmetadata: {name: edge, namespace: soak}\ntype: kubernetes.io/tls\ndata: {tls.crt: %s, tls.key: %s}\n",
		encode("CERTIFICATE", der), encode("PRIVATE KEY", private))
	return nil
}
