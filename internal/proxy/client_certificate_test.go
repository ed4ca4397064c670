package proxy

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
)

// witness is a TLS backend that notes which client certificate was presented on which connection.
type witness struct {
	*httptest.Server
	authority string

	mu    sync.Mutex
	seen  map[string]string // by the connection's address
	mixed bool
	asked chan string // the certificate's name, for each request
}

func newWitness(t *testing.T) *witness {
	t.Helper()
	w := &witness{seen: map[string]string{}, asked: make(chan string, 100)}
	w.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		name := "nobody"
		if len(r.TLS.PeerCertificates) > 0 {
			name = r.TLS.PeerCertificates[0].Subject.CommonName
		}
		w.mu.Lock()
		if before, ok := w.seen[r.RemoteAddr]; ok && before != name {
			w.mixed = true
		}
		w.seen[r.RemoteAddr] = name
		w.mu.Unlock()
		w.asked <- name
		io.WriteString(rw, name+" on "+r.RemoteAddr)
	}))
	authority := peertest.NewAuthority(t)
	chain, key := authority.Issue(t, "backend.example")
	w.authority = authority.PEM
	pair, err := tls.X509KeyPair([]byte(chain), []byte(key))
	if err != nil {
		t.Fatal(err)
	}
	w.TLS = &tls.Config{Certificates: []tls.Certificate{pair}, ClientAuth: tls.RequestClientCert}
	w.StartTLS()
	t.Cleanup(w.Close)
	return w
}

func (w *witness) service(name string) model.Service {
	s := service(name, model.HTTP, w.Listener.Addr().String())
	s.TLS = &model.ServiceTLS{Hostname: "backend.example", CAs: w.authority}
	return s
}

// TestClientCertificatesShareNoConnection has one service with a mirror. Two Gateways present different certificates to
// it, and a third presents none. Then one of the certificates is renewed.
func TestClientCertificatesShareNoConnection(t *testing.T) {
	w, copies := newWitness(t), newWitness(t)
	clients := peertest.NewAuthority(t)
	const copied = "default/copy:80"
	certificate := func(name, holder string) model.Certificate {
		chain, key := clients.Issue(t, holder)
		return model.Certificate{Name: name, Chain: chain, Key: model.Secret(key)}
	}
	rule := ruleTo(serviceName)
	rule.Filters.Mirrors = []model.Mirror{{Service: copied, Numerator: 1, Denominator: 1}}
	cfg := config([]model.Service{w.service(serviceName), copies.service(copied)}, rule)
	cfg.Certificates = []model.Certificate{certificate("default/a", "a"), certificate("default/b", "b")}
	whole := cfg.Routes[0]
	cfg.Routes = nil
	for _, gateway := range []string{"a", "b", "none"} {
		l := cfg.Listeners[0]
		l.Name, l.Hostname = "default/"+gateway+"/http", gateway+".example"
		cfg.Listeners = append(cfg.Listeners, l)
		r := whole
		r.Attachments = []model.Attachment{{Listener: l.Name, Hostnames: []string{l.Hostname}}}
		if gateway != "none" {
			r.ClientCertificate = "default/" + gateway
		}
		cfg.Routes = append(cfg.Routes, r)
	}
	cfg.Listeners = cfg.Listeners[1:]
	if err := cfg.Validate(); err != nil {
		t.Fatal(err)
	}
	s := serve(t, cfg)
	client := newClient(t)
	ask := func(gateway string) (name, connection string) {
		t.Helper()
		req, _ := http.NewRequest("GET", "http://"+s.addr()+"/", nil)
		req.Host = gateway + ".example"
		resp, err := client.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		body, _ := io.ReadAll(resp.Body)
		name, connection, _ = strings.Cut(string(body), " on ")
		if got := <-w.asked; got != name {
			t.Errorf("%s: status %d, %q", gateway, resp.StatusCode, body)
		}
		if copy := <-copies.asked; copy != name {
			t.Errorf("%s is presented with a request, %s with its copy", name, copy)
		}
		return name, connection
	}
	want := map[string]string{"a": "a", "b": "b", "none": "nobody"}
	first := map[string]string{}
	for range 3 {
		for _, gateway := range []string{"a", "b", "none", "b", "a"} {
			name, connection := ask(gateway)
			if name != want[gateway] {
				t.Errorf("Gateway %s presents %s", gateway, name)
			}
			if before := first[gateway]; before != "" && before != connection {
				t.Errorf("Gateway %s opens another connection, though one is idle", gateway)
			}
			first[gateway] = connection
		}
	}

	renewed := *cfg
	renewed.Certificates = []model.Certificate{certificate("default/a", "renewed"), cfg.Certificates[1]}
	if err := s.Apply(&renewed); err != nil {
		t.Fatal(err)
	}
	for _, gateway := range []string{"a", "b", "none"} {
		name, connection := ask(gateway)
		if gateway == "a" && (name != "renewed" || connection == first["a"]) {
			t.Errorf("with the new certificate Gateway a presents %s, on a new connection: %v", name, connection != first["a"])
		}
		if gateway != "a" && connection != first[gateway] {
			t.Errorf("a new certificate of Gateway a costs Gateway %s its connection", gateway)
		}
	}
	if w.mixed || copies.mixed {
		t.Error("a connection was used with two identities")
	}

	// Statistics list the service once, by its name.
	var names []string
	for state := range s.Services {
		names = append(names, fmt.Sprintf("%s with %d endpoints", state.Service, len(state.Endpoints)))
	}
	if got := strings.Join(names, ", "); got != serviceName+" with 1 endpoints, "+copied+" with 1 endpoints" && got != copied+" with 1 endpoints, "+serviceName+" with 1 endpoints" {
		t.Errorf("services: %s", got)
	}
	for _, x := range s.metrics.Snapshot().Exchanges {
		if x.Backend != serviceName && x.Backend != "" {
			t.Errorf("requests are counted for %q", x.Backend)
		}
	}
	rec := httptest.NewRecorder()
	s.metrics.Handler().ServeHTTP(rec, httptest.NewRequest("GET", "/metrics", nil))
	if text := rec.Body.String(); rec.Code != 200 || strings.Contains(text, "#default/") || !strings.Contains(text, `service="`+serviceName+`"`) {
		t.Errorf("metrics: status %d", rec.Code)
	}
}
