// Package folder keeps a trust domain in a folder: its authority, and a file for each workload with its certificate and
// key. It is for trying things out, and for sidecars without a cluster: whoever reads the folder can be anybody.
//
//	trust-domain         its name
//	ca.crt               the roots, which may be public
//	authority/           the authority's certificates and keys
//	NAMESPACE/NAME.pem   a pod's certificate and key
//	@node/NAME.pem       a node's
package folder

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/identity/claim"
	"github.com/weirmesh/weir/internal/identity/spiffe"
)

const (
	domainFile   = "trust-domain"
	rootsFile    = "ca.crt"
	authorityDir = "authority"
	nodeDir      = "@node"
	// maxFile bounds the files that are read.
	maxFile = 1 << 20
)

// Folder is a trust domain in a folder. It is for one goroutine, and one process, at a time.
type Folder struct {
	path      string
	Domain    string
	authority *identity.Authority
}

// Make opens the trust domain of a folder, and makes it first if there is none. An empty domain is the one that is
// there, or for a new one fallback. A domain that differs from the one that is there is an error.
func Make(path, domain, fallback string, now time.Time) (*Folder, error) {
	f := &Folder{path: path, Domain: domain}
	have, err := read(filepath.Join(path, domainFile))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if f.Domain == "" {
			f.Domain = fallback
		}
		return f, f.create(now)
	case err != nil:
		return nil, err
	}
	name := strings.TrimSpace(string(have))
	if f.Domain == "" {
		f.Domain = name
	}
	if f.Domain != name {
		return nil, fmt.Errorf("%s has the trust domain %q, not %q: use another folder", path, name, f.Domain)
	}
	return f, f.open(now)
}

func (f *Folder) create(now time.Time) error {
	if err := spiffe.CheckTrustDomain(f.Domain); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(f.path, authorityDir), 0o700); err != nil {
		return err
	}
	a, err := identity.New(now)
	if err != nil {
		return err
	}
	if err := f.keep(a); err != nil {
		return err
	}
	return write(filepath.Join(f.path, domainFile), []byte(f.Domain+"\n"), 0o644)
}

// keep stores the authority before it is used.
func (f *Folder) keep(a *identity.Authority) error {
	data, err := a.Secret()
	if err != nil {
		return err
	}
	for name, content := range data {
		if err := write(filepath.Join(f.path, authorityDir, name), content, 0o600); err != nil {
			return err
		}
	}
	f.authority = a
	return write(filepath.Join(f.path, rootsFile), a.Bundle(), 0o644)
}

// open reads the authority, and replaces its roots when that is due.
func (f *Folder) open(now time.Time) error {
	data := map[string][]byte{}
	entries, err := os.ReadDir(filepath.Join(f.path, authorityDir))
	if err != nil {
		return err
	}
	for _, e := range entries {
		if data[e.Name()], err = read(filepath.Join(f.path, authorityDir, e.Name())); err != nil {
			return err
		}
	}
	a, err := identity.Parse(data)
	if err != nil {
		return fmt.Errorf("%s: %w", filepath.Join(f.path, authorityDir), err)
	}
	if f.authority, err = a.Rotate(now); err != nil || f.authority == a {
		return err
	}
	return f.keep(f.authority)
}

// Pod is who gets a certificate.
type Pod struct {
	Namespace, Name, Account string
	Owners                   []claim.Owner
	DNSNames                 []string
}

// Pod writes a pod's certificate and key, and returns the file's path and the ID.
func (f *Folder) Pod(p Pod, life time.Duration, now time.Time) (path string, id spiffe.ID, err error) {
	for _, name := range []string{p.Namespace, p.Name, p.Account} {
		if err := checkName(name); err != nil {
			return "", id, err
		}
	}
	extension, err := claim.Claims{Pod: p.Name, Owners: p.Owners}.Extension()
	if err != nil {
		return "", id, err
	}
	path = filepath.Join(f.path, p.Namespace, p.Name+".pem")
	id, err = f.issue(path, "/ns/"+p.Namespace+"/sa/"+p.Account, identity.Workload{DNSNames: p.DNSNames, Life: life}, now, extension)
	return path, id, err
}

// Node does the same for a node.
func (f *Folder) Node(name string, life time.Duration, now time.Time) (path string, id spiffe.ID, err error) {
	if err := checkName(name); err != nil {
		return "", id, err
	}
	path = filepath.Join(f.path, nodeDir, name+".pem")
	id, err = f.issue(path, "/node/"+name, identity.Workload{Life: life}, now)
	return path, id, err
}

// checkName keeps files inside of the folder.
func checkName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, `/\@`) || strings.ContainsFunc(name, func(r rune) bool { return r <= ' ' || r == 0x7f }) {
		return fmt.Errorf("%q is not the name of an object", name)
	}
	return nil
}

func (f *Folder) issue(path, of string, w identity.Workload, now time.Time, extensions ...pkix.Extension) (id spiffe.ID, err error) {
	if id, err = spiffe.Parse(spiffe.Scheme + f.Domain + of); err != nil {
		return id, err
	}
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return id, err
	}
	w.ID, w.Extensions = id.String(), extensions
	chain, err := f.authority.Workload(w, key.Public(), now)
	if err != nil {
		return id, err
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return id, err
	}
	var b bytes.Buffer
	for _, der := range chain {
		if err := pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: der}); err != nil {
			return id, err
		}
	}
	if err := pem.Encode(&b, &pem.Block{Type: "PRIVATE KEY", Bytes: private}); err != nil {
		return id, err
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return id, err
	}
	return id, write(path, b.Bytes(), 0o600)
}

// write replaces a file whole.
func write(path string, content []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".new-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(content)
	if err == nil {
		err = tmp.Chmod(mode)
	}
	if e := tmp.Close(); err == nil {
		err = e
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	return err
}

// read reads a file that is not too large.
func read(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > maxFile {
		return nil, fmt.Errorf("%s is no file of at most %d bytes", path, maxFile)
	}
	return os.ReadFile(path)
}

// load reads a pod's identity.
func load(roots, file string) (*spiffe.Identity, error) {
	trusted, err := read(roots)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(trusted) {
		return nil, fmt.Errorf("%s holds no certificate", roots)
	}
	pair, err := read(file)
	if err != nil {
		return nil, err
	}
	chain, err := tls.X509KeyPair(pair, pair)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return spiffe.New(chain, pool)
}
