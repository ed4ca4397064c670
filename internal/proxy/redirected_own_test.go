package proxy

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"github.com/weirmesh/weir/internal/socket"
)

// sidecarOf serves a pod at 127.0.0.9, whose application has one port of HTTP and one of connections, with an identity in
// front of both and of all other ports. Its own requests go to a Service, 10.96.0.1:80, of which it is the one endpoint,
// and its connections where they were meant to. Whom the policies let in is edit's. meaning is where a client connects who
// stands for the application and means an address.
func sidecarOf(t *testing.T, edit func(*model.Config)) (meaning func(string) string, app map[string]string) {
	t.Helper()
	const own = "127.0.0.9"
	app = map[string]string{}
	listen := func(name string) net.Listener {
		l, err := net.Listen("tcp", own+":0")
		if err != nil {
			t.Fatal(err)
		}
		app[name] = l.Addr().String()
		return l
	}
	web := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { fmt.Fprint(w, "the application") })}
	l := listen("http")
	go web.Serve(l)
	t.Cleanup(func() { web.Close() })
	bytes := listen("bytes")
	t.Cleanup(func() { bytes.Close() })
	go func() {
		for {
			c, err := bytes.Accept()
			if err != nil {
				return
			}
			go func() { defer c.Close(); io.Copy(c, c) }()
		}
	}()
	port := int32(netip.MustParseAddrPort(app["http"]).Port())
	identity := &model.ListenerTLS{Certificates: []string{workload}}
	proves := &model.ServiceTLS{Hostname: "cart.shop", CAs: workload, Pods: []model.PodIdentity{{Address: own, ID: cartID}}}
	cfg := &model.Config{
		Workloads: []model.Workload{pod},
		Listeners: []model.Listener{
			{Name: "in-http", Ref: pod.Ref, Redirect: model.RedirectInbound, Port: port, Protocol: model.HTTPS, TLS: identity, Workload: pod.Name(), WorkloadPort: port},
			{Name: "in-rest", Ref: pod.Ref, Redirect: model.RedirectInbound, Protocol: model.TLS, TLS: identity, Workload: pod.Name()},
			{Name: "out-http", Ref: pod.Ref, Redirect: model.RedirectOutbound, Address: "10.96.0.1", Port: 80, Protocol: model.HTTP},
			{Name: "out-rest", Ref: pod.Ref, Redirect: model.RedirectOutbound, Protocol: model.TCP},
		},
		Services: []model.Service{
			service("in-http", model.HTTP, app["http"]), {Name: "in-rest", Protocol: model.HTTP, Meant: true},
			service("out-http", model.HTTP, app["http"]), {Name: "out-rest", Protocol: model.HTTP, Meant: true, TLS: proves},
		},
	}
	cfg.Services[2].TLS = proves
	for i := range cfg.Listeners {
		l := &cfg.Listeners[i]
		r := model.Route{Ref: model.Ref{Kind: "Pod", Namespace: "shop", Name: "cart-1", Field: l.Name}, ClientCertificate: workload, Attachments: []model.Attachment{{Listener: l.Name, Hostnames: []string{"*"}}}}
		rule := ruleTo(l.Name)
		if !l.Protocol.Requests() {
			r.Kind, rule.Matches = model.RouteTCP, nil
		}
		r.Rules = []model.Rule{rule}
		cfg.Routes = append(cfg.Routes, r)
	}
	if edit(cfg); cfg.Validate() != nil {
		t.Fatal(cfg.Validate())
	}
	ca := peertest.NewAuthority(t)
	source := &identities{}
	source.have(t, ca.Workload(t, cartID, nil), ca.Pool())
	sockets := map[string]string{}
	meant := map[string]netip.AddrPort{} // by the address that is dialled in its stead
	for i, to := range []string{"10.96.0.1:80", app["http"], app["bytes"]} {
		meant[fmt.Sprintf("127.0.1.%d", i+1)] = netip.MustParseAddrPort(to)
	}
	serve(t, cfg, func(o *Options) {
		o.Identities, o.Pod, o.MaxPasses = source.of, []netip.Addr{netip.MustParseAddr(own)}, 2 // once out, once in
		o.Listen = func(network, address string) (socket.Bound, error) {
			b, err := socket.Open(network, "0.0.0.0:0")
			if err == nil {
				_, sockets[address], _ = net.SplitHostPort(b.Addr().String())
			}
			return b, err
		}
		o.Original = func(nc net.Conn) (netip.AddrPort, error) {
			if to, ok := meant[nc.LocalAddr().(*net.TCPAddr).IP.String()]; ok {
				return to, nil
			}
			return netip.AddrPort{}, syscall.ENOENT
		}
	})
	return func(to string) string {
		for host, address := range meant {
			if address.String() == to {
				return net.JoinHostPort(host, sockets["redirect/outbound"])
			}
		}
		t.Fatalf("nobody means %s", to)
		return ""
	}, app
}

// TestAPodReachesItselfByWayOfItsPolicies: by a Service and by its address, with requests and with connections.
func TestAPodReachesItselfByWayOfItsPolicies(t *testing.T) {
	for _, c := range []struct {
		name   string
		edit   func(*model.Config)
		status string
		rest   bool
	}{
		{"no policy", func(*model.Config) {}, "200 OK", true},
		{"let in", func(cfg *model.Config) { cfg.Policies = []model.Policy{letting("cart", model.TrafficAny)} }, "200 OK", true},
		{"another is let in", func(cfg *model.Config) { cfg.Policies = []model.Policy{letting("shop", model.TrafficAny)} }, "403 Forbidden", false},
		{"requests are let in", func(cfg *model.Config) { cfg.Policies = []model.Policy{letting("cart", model.TrafficHTTP)} }, "200 OK", false},
		{"one port is let in", func(cfg *model.Config) {
			p := letting("cart", model.TrafficAny)
			p.Ports = []int32{cfg.Listeners[0].Port}
			cfg.Policies = []model.Policy{p}
		}, "200 OK", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			meaning, app := sidecarOf(t, c.edit)
			for _, to := range []string{"10.96.0.1:80", app["http"]} {
				nc := dial(t, meaning(to))
				io.WriteString(nc, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
				answer, _ := io.ReadAll(nc)
				if !strings.HasPrefix(string(answer), "HTTP/1.1 "+c.status) {
					t.Errorf("%s: %q, want %s", to, answer, c.status)
				}
			}
			if got := works(dial(t, meaning(app["bytes"]))); got != c.rest {
				t.Errorf("a connection works: %t, want %t", got, c.rest)
			}
		})
	}
}
