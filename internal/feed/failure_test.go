package feed

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"
	"github.com/weirmesh/weir/internal/identity"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

func TestProxyThatRestartsAloneServesItsState(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	c := config(20, 10)
	c.Certificates = []model.Certificate{{Name: "default/cert", Chain: "chain", Key: "the key"}}
	p, address, stop := w.begin(s, c)
	p.stop()
	stop()

	again := w.run(w.client("a", address)) // nobody listens there
	again.serves(c)
	if got := again.last().Certificates[0].Key.Reveal(); got != "the key" {
		t.Errorf("key: %q", got)
	}
	if st := again.client.Status(); st.Connected || st.Version != Version(c) {
		t.Errorf("status: %+v", st)
	}
	info, err := os.Stat(again.client.StateFile)
	if err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("state file: %v, %v", info.Mode(), err)
	}
}

func TestStateIsOfTheLastGoodConfiguration(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	good := config(5, 5)
	p, address, stop := w.begin(s, good)
	good = moved(good, 0, "10.7.7.7:1")
	publish(t, s, good) // within the second in which the file is not written again
	knows(t, s, "a", good)
	p.setRefuse(errors.New("port 80 is in use"))
	publish(t, s, moved(good, 1, "10.8.8.8:1"))
	until(t, "the refusal", func() bool { return s.Stats().Refusals == 1 })
	stop()
	p.stop()
	w.run(w.client("a", address)).serves(good)
}

func TestStateFileThatIsTornOrForeignIsNotUsed(t *testing.T) {
	c := config(3, 3)
	snapshot, err := newSnapshot(c, nil)
	if err != nil {
		t.Fatal(err)
	}
	var parts []*received
	for _, p := range snapshot.parts {
		parts = append(parts, newReceived(p.name, p.resource.Resource.Value))
	}
	good, err := encodeState(gateway, parts)
	if err != nil {
		t.Fatal(err)
	}
	foreign, err := encodeState("default/other", parts)
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(good)
	flipped[len(flipped)-10] ^= 1
	for name, data := range map[string][]byte{
		"empty": {}, "torn": good[:len(good)/2], "cut in its head": good[:20], "flipped": flipped, "foreign": foreign,
		"of another format": bytes.Replace(good, []byte("state 1"), []byte("state 2"), 1), "text": []byte("hello"),
	} {
		if a, _, err := decodeState(data, gateway, maxConfig); err == nil {
			t.Errorf("%s: %d parts", name, len(a.parts))
		}
	}
	if _, _, err := decodeState(good, gateway, 100); !errors.Is(err, errTooLarge) {
		t.Errorf("too large: %v", err)
	}
	a, _, err := decodeState(good, gateway, maxConfig)
	if err != nil || a.version() != Version(c) {
		t.Fatalf("good: %v", err)
	}

	w := newWorld(t)
	s := w.server()
	address, _ := w.serve(s, "")
	publish(t, s, c)
	client := w.client("a", address)
	w.write("a.state", string(flipped))
	w.run(client).serves(c)
}

// replicas passes connections on to one of several servers, the one whose turn it is.
type replicas struct {
	mu     sync.Mutex
	to     []string
	turn   int
	served atomic.Int32
}

func (r *replicas) listen(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.mu.Lock()
			to := r.to[r.turn%len(r.to)]
			r.turn++
			r.mu.Unlock()
			r.served.Add(1)
			all.Go(func() { relay(c, to) })
		}
	})
	t.Cleanup(func() { l.Close(); all.Wait() })
	return l.Addr().String()
}

func relay(c net.Conn, to string) {
	defer c.Close()
	d, err := net.Dial("tcp", to)
	if err != nil {
		return
	}
	defer d.Close()
	done := make(chan struct{})
	go func() { defer close(done); io.Copy(d, c); d.Close() }()
	io.Copy(c, d)
	c.Close()
	<-done
}

func TestProxyMovesBetweenReplicasAndIsSentNothingTwice(t *testing.T) {
	w := newWorld(t)
	c := config(200, 100)
	var r replicas
	var servers []*Server
	for range 2 {
		s := w.server()
		s.MaxAge = 100 * time.Millisecond
		publish(t, s, c)
		address, _ := w.serve(s, "")
		servers, r.to = append(servers, s), append(r.to, address)
	}
	p := w.run(w.client("a", r.listen(t)))
	p.serves(c)
	until(t, "the proxy has been at both", func() bool {
		return r.served.Load() >= 4 && len(servers[0].Running(gateway)) == 1 && len(servers[1].Running(gateway)) == 1
	})
	knows(t, servers[0], "a", c)
	knows(t, servers[1], "a", c)
	if n := p.applied(); n != 1 {
		t.Errorf("applied %d times", n)
	}
	if n := servers[1].Stats().Bytes; n > 500*servers[1].Stats().Responses {
		t.Errorf("the second server sent %d bytes", n)
	}
	next := moved(c, 7, "10.8.8.8:80")
	publish(t, servers[0], next)
	publish(t, servers[1], next)
	p.serves(next)
}

func TestProxyFollowsAServerThatRestarts(t *testing.T) {
	w := newWorld(t)
	s := w.server()
	c := config(2000, 500)
	p, address, stop := w.begin(s, c)
	stop()

	s = w.server() // knows nothing yet
	w.serve(s, address)
	until(t, "the proxy is back and says what it runs", func() bool {
		r := s.Running(gateway)
		return len(r) == 1 && r[0].Version == Version(c)
	})
	if s.Stats().Responses != 0 {
		t.Error("something was sent before anything was published")
	}
	next := moved(c, 3, "10.8.8.8:80")
	publish(t, s, next)
	knows(t, s, "a", next)
	if n := s.Stats().Bytes; n > 1000 {
		t.Errorf("%d bytes for what was known but for one service", n)
	}
	if n := p.applied(); n != 2 {
		t.Errorf("applied %d times", n)
	}
}

func TestStrangersGetNothing(t *testing.T) {
	w := newWorld(t)
	other := newWorld(t)
	for name, change := range map[string]func(*Client){
		"wrong token":        func(c *Client) { c.TokenFile = w.write("x.token", "bad-token-secret") },
		"token of nobody":    func(c *Client) { c.TokenFile = w.write("x.token", "good::a") },
		"control plane asks": func(c *Client) { c.TokenFile = w.write("x.token", "unavailable") },
		"empty token":        func(c *Client) { c.TokenFile = w.write("x.token", "\n") },
		"no token file":      func(c *Client) { c.TokenFile = filepath.Join(w.dir, "missing") },
		"wrong CA":           func(c *Client) { c.CAFile = filepath.Join(other.dir, "ca.crt") },
		"broken CA":          func(c *Client) { c.CAFile = w.write("broken.crt", "x") },
		"wrong name":         func(c *Client) { c.ServerName = "other" },
	} {
		t.Run(name, func(t *testing.T) {
			var serverLog, clientLog peertest.Log
			s := w.server()
			s.Logger = slog.New(slog.NewTextHandler(&serverLog, nil))
			s.Authenticate = func(ctx context.Context, token string) (model.Owner, string, error) {
				if token == "unavailable" {
					return "", "", fmt.Errorf("API server: %w", ErrUnavailable)
				}
				return authenticate(ctx, token)
			}
			publish(t, s, config(3, 3))
			address, _ := w.serve(s, "")
			c := w.client("a", address)
			c.Logger = slog.New(slog.NewTextHandler(&clientLog, nil))
			change(c)
			p := w.run(c)
			until(t, "the client fails", func() bool { return strings.Contains(clientLog.String(), "no configuration") })
			p.stop()
			if p.applied() > 0 || len(s.Running(gateway)) > 0 || s.Stats().Responses > 0 {
				t.Error("a stranger was served")
			}
			if all := serverLog.String() + clientLog.String(); strings.Contains(all, "bad-token-secret") {
				t.Errorf("the token is in the log:\n%s", all)
			}
			if strings.HasSuffix(name, "token") && name != "empty token" && s.Stats().Unauthenticated == 0 {
				t.Error("not counted")
			}
		})
	}
}

// TestStreamsWithoutAWholeTokenGetNothing opens streams by hand, since no Client sends such tokens.
func TestStreamsWithoutAWholeTokenGetNothing(t *testing.T) {
	w := newWorld(t)
	const good = "Bearer good:" + gateway + ":a"
	for name, c := range map[string]struct {
		values []string
		served bool
	}{
		"a good token":    {[]string{good}, true}, // by which the others are known to fail for theirs
		"none":            {nil, false},
		"two":             {[]string{good, good}, false},
		"another scheme":  {[]string{"Basic good:" + gateway + ":a"}, false},
		"no scheme":       {[]string{"good:" + gateway + ":a"}, false},
		"empty":           {[]string{"Bearer "}, false},
		"too long":        {[]string{good + strings.Repeat("a", maxToken)}, false},
		"of no Gateway":   {[]string{"Bearer good::a"}, false},
		"of no proxy":     {[]string{"Bearer good:" + gateway + ":"}, false},
		"that is not one": {[]string{"Bearer bad"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := w.server()
			publish(t, s, config(3, 3))
			address, _ := w.serve(s, "")
			roots := x509.NewCertPool()
			roots.AppendCertsFromPEM(w.authority.Bundle())
			trust := &tls.Config{RootCAs: roots, ServerName: "controller"}
			conn, err := grpc.NewClient(address, grpc.WithTransportCredentials(credentials.NewTLS(trust)))
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			ctx, cancel := context.WithTimeout(context.Background(), patient)
			defer cancel()
			for _, v := range c.values {
				ctx = metadata.AppendToOutgoingContext(ctx, authorization, v)
			}
			stream, err := discovery.NewAggregatedDiscoveryServiceClient(conn).DeltaAggregatedResources(ctx)
			if err != nil {
				t.Fatal(err)
			}
			err = stream.Send(&discovery.DeltaDiscoveryRequest{TypeUrl: typeURL, ResourceNamesSubscribe: []string{"*"}})
			if err != nil && err != io.EOF {
				t.Fatal(err)
			}
			resp, err := stream.Recv()
			if c.served != (err == nil) {
				t.Errorf("a response of %d parts, %v", len(resp.GetResources()), err)
			}
			if !c.served && status.Code(err) != codes.Unauthenticated {
				t.Errorf("%v, want %s", err, codes.Unauthenticated)
			}
		})
	}
}

func TestCAAndTokenAreReadAgain(t *testing.T) {
	w := newWorld(t)
	old := w.authority
	next, err := identity.New(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	w.authority = next
	s := w.server()
	address, _ := w.serve(s, "")
	c := config(3, 3)
	publish(t, s, c)
	client := w.client("a", address)
	var log peertest.Log
	client.Logger = slog.New(slog.NewTextHandler(&log, nil))
	p := w.run(client)
	until(t, "the client does not trust the server", func() bool { return strings.Contains(log.String(), "no configuration") })
	w.write("ca.crt", string(old.Bundle())+string(next.Bundle()))
	p.serves(c)
}

func TestOwnerComesFromTheToken(t *testing.T) {
	for name, own := range map[string]model.Owner{
		"Gateway default/mine": "default/mine", "Workload default/gw": "workload/default/gw", // of the other one's name
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			s := w.server()
			address, _ := w.serve(s, "")
			mine, theirs := config(3, 3), config(5, 5)
			if err := s.Publish(map[model.Owner]*model.Config{gateway: theirs, own: mine}); len(err) != 0 {
				t.Fatal(err)
			}
			c := w.client("a", address) // says default/gw
			c.TokenFile = w.write("mine.token", "good:"+string(own)+":a")
			var log peertest.Log
			c.Logger = slog.New(slog.NewTextHandler(&log, nil))
			p := w.run(c)
			until(t, "it is sent nothing", func() bool {
				return strings.Contains(log.String(), "the token belongs to a proxy of "+name+", not of "+gateway)
			})
			p.stop()
			if len(p.configs) != 0 || len(s.Running(gateway))+len(s.Running(own)) != 0 {
				t.Error("a proxy of one owner has to do with another")
			}
			c.Owner = own
			w.run(c).serves(mine)
			if len(s.Running(gateway)) != 0 {
				t.Error("it is taken for a proxy of another owner")
			}
		})
	}
}
