package tls_test

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/weirtest"
)

// rotations is how often each of the two ways to write files changes the certificate: at least until each kind of what is broken has come.
func rotations() int {
	if testing.Short() {
		return 18
	}
	return 50
}

// TestCertificatesRotateInFilesUnderLoad rewrites the Secret a hundred times (36 with -short), every third time with one that cannot be used, while clients
// that check certificates connect all along. No handshake and no request fails, the newest good certificate is the one presented, connections
// that are open stay so, and what is broken is named at /status.
func TestCertificatesRotateInFilesUnderLoad(t *testing.T) {
	for way, volume := range map[string]func(t *testing.T, dir string) func(text string){
		"renamed over": func(t *testing.T, dir string) func(string) {
			return func(text string) { write(t, filepath.Join(dir, "cert.yaml"), text) }
		},
		"mounted": mounted,
	} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			rotate(t, volume)
		})
	}
}

// mounted returns a function that writes a file as the kubelet does: each version has a folder, and renaming a link changes all at once.
func mounted(t *testing.T, dir string) func(text string) {
	if err := os.Symlink("..data/cert.yaml", filepath.Join(dir, "cert.yaml")); err != nil {
		t.Fatal(err)
	}
	version := 0
	return func(text string) {
		old := filepath.Join(dir, fmt.Sprintf("..%d", version))
		version++
		folder := fmt.Sprintf("..%d", version)
		write(t, filepath.Join(dir, folder, "cert.yaml"), text)
		link := filepath.Join(dir, "..data_tmp")
		if err := os.Symlink(folder, link); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(link, filepath.Join(dir, "..data")); err != nil {
			t.Fatal(err)
		}
		if err := os.RemoveAll(old); err != nil {
			t.Fatal(err)
		}
	}
}

func rotate(t *testing.T, volume func(*testing.T, string) func(string)) {
	dir := filepath.Join(t.TempDir(), "weir")
	port := weirtest.FreePort(t)
	site := startSite(t, func(http.ResponseWriter, *http.Request) {})
	write(t, filepath.Join(dir, "gateway.yaml"), gateway(port, site, "cert"))
	store := volume(t, dir)
	ca, key := newAuthority(t), newECDSA(t)
	const life = 90 * 24 * time.Hour
	chain, private := ca.issue(t, key, life)
	store(secretOf("cert", chain, private))
	p := weirtest.Run(t, dir)
	defer p.Stop()
	client := &visitor{address: fmt.Sprintf("127.0.0.1:%d", port), roots: x509.NewCertPool()}
	client.roots.AddCert(ca.cert)

	var over atomic.Bool
	var visits atomic.Int64
	var wait sync.WaitGroup
	defer wait.Wait()
	defer over.Store(true)
	for _, protocol := range protocols {
		wait.Go(func() {
			for !over.Load() {
				if _, err := client.visit(protocol); err != nil {
					t.Errorf("%s, visit %d: %v", protocol, visits.Load(), err)
					return
				}
				visits.Add(1)
			}
		})
	}
	lasting := map[string]*http.Transport{}
	for _, protocol := range protocols {
		lasting[protocol] = client.transport(protocol)
		defer lasting[protocol].CloseIdleConnections()
		if _, reused, err := client.ask(lasting[protocol]); err != nil || reused {
			t.Fatalf("%s: the first request: reused %t, %v", protocol, reused, err)
		}
	}

	for i := range rotations() {
		before := visits.Load()
		if i%3 == 2 {
			text, field, reason := ca.spoilt(t, i/3)
			store(text)
			await(t, reason, func() bool { return slices.Contains(unusable(t, p), field+": "+reason) })
		} else {
			chain, private = ca.issue(t, key, life)
			store(secretOf("cert", chain, private))
			await(t, "the new certificate", func() bool {
				cert, err := client.visit("http/1.1")
				return err != nil || encode("CERTIFICATE", cert.Raw) == chain[:strings.Index(chain[1:], "-----BEGIN")+1]
			})
			await(t, "the end of complaints", func() bool { return len(unusable(t, p)) == 0 })
		}
		for _, protocol := range protocols {
			cert, err := client.visit(protocol)
			if err != nil {
				t.Fatalf("%s, rotation %d: %v", protocol, i, err)
			}
			if !strings.HasPrefix(chain, encode("CERTIFICATE", cert.Raw)) {
				t.Errorf("%s, rotation %d: the newest good certificate is not presented", protocol, i)
			}
			if status, reused, err := client.ask(lasting[protocol]); err != nil || !reused || status != 200 {
				t.Errorf("%s, rotation %d: on the connection that lasts: status %d, reused %t, %v", protocol, i, status, reused, err)
			}
		}
		await(t, "visits during this rotation", func() bool { return t.Failed() || visits.Load() > before })
		if t.Failed() {
			return
		}
	}
	t.Logf("%d visits", visits.Load())
}

// spoilt is a Secret that cannot be used, and the field and the reason that are to be told.
func (a *authority) spoilt(t *testing.T, n int) (text, field, reason string) {
	const life = 90 * 24 * time.Hour
	chain, private := a.issue(t, newECDSA(t), life)
	switch n % 6 {
	case 0:
		return secretOf("cert", "no PEM at all", private), "stringData[tls.crt]", "cannot be used: holds no certificate in PEM form"
	case 1:
		_, other := a.issue(t, newECDSA(t), life)
		return secretOf("cert", chain, other), "stringData[tls.key]", "cannot be used: private key does not match public key"
	case 2:
		return secretOf("cert", chain[:len(chain)-100], private), "stringData[tls.crt]", "cannot be used: block 2 is cut short or damaged"
	case 3:
		return secretOf("cert", "", private), "stringData[tls.crt]", "cannot be used: is empty"
	case 4:
		return secretOf("cert", private, private), "stringData[tls.crt]", `cannot be used: block 1 is of type "PRIVATE KEY", not a certificate`
	}
	end := time.Now().Add(-time.Hour)
	chain, private = a.issue(t, newECDSA(t), time.Until(end))
	return secretOf("cert", chain, private), "stringData[tls.crt]", "expired on " + end.UTC().Format(time.RFC3339)
}

var protocols = []string{"http/1.1", "h2"}

// visitor is a client that checks certificates.
type visitor struct {
	address string
	roots   *x509.CertPool
}

// transport speaks one protocol.
func (v *visitor) transport(protocol string) *http.Transport {
	p := new(http.Protocols)
	p.SetHTTP1(protocol == "http/1.1")
	p.SetHTTP2(protocol == "h2")
	return &http.Transport{
		TLSClientConfig: &tls.Config{ServerName: name, RootCAs: v.roots, NextProtos: []string{protocol}}, Protocols: p,
		TLSHandshakeTimeout: patience, ResponseHeaderTimeout: patience, MaxConnsPerHost: 1,
	}
}

// visit makes a request on a connection of its own, and returns the certificate that was presented.
func (v *visitor) visit(protocol string) (*x509.Certificate, error) {
	transport := v.transport(protocol)
	defer transport.CloseIdleConnections()
	resp, err := v.get(context.Background(), transport)
	if err != nil {
		return nil, err
	}
	if got := resp.TLS.NegotiatedProtocol; resp.StatusCode != 200 || got != protocol {
		return nil, fmt.Errorf("status %d over %q", resp.StatusCode, got)
	}
	return resp.TLS.PeerCertificates[0], nil
}

// ask makes a request on the connection that a transport has, if it has one.
func (v *visitor) ask(transport *http.Transport) (status int, reused bool, err error) {
	ctx := httptrace.WithClientTrace(context.Background(), &httptrace.ClientTrace{GotConn: func(i httptrace.GotConnInfo) { reused = i.Reused }})
	resp, err := v.get(ctx, transport)
	if err != nil {
		return 0, reused, err
	}
	return resp.StatusCode, reused, nil
}

func (v *visitor) get(ctx context.Context, transport *http.Transport) (*http.Response, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+v.address+"/", nil)
	if err != nil {
		return nil, err
	}
	req.Host = name
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	_, err = io.Copy(io.Discard, resp.Body)
	return resp, err
}

// unusable is what /status says of certificates that cannot be used: "field: reason".
func unusable(t *testing.T, p *weirtest.Process) (all []string) {
	t.Helper()
	resp, err := http.Get(p.Admin() + "status")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	var status struct {
		Findings []struct {
			Code, Message string
			Ref           struct{ Kind, Namespace, Name, Field string }
		}
	}
	if err := json.NewDecoder(resp.Body).Decode(&status); err != nil {
		t.Fatal(err)
	}
	for _, f := range status.Findings {
		if f.Code == "WR406" && f.Ref.Kind == "Secret" && f.Ref.Namespace == "default" && f.Ref.Name == "cert" {
			all = append(all, f.Ref.Field+": "+f.Message)
		}
	}
	return all
}

// patience is how long anything may take before a test fails; it decides nothing else.
const patience = 30 * time.Second

// await waits until something holds.
func await(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("in vain: %s", what)
		}
	}
}
