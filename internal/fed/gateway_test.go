package fed

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/identity/spiffe"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/peertest"
)

// TestAGatewayReachesPodsByTheirIdentity serves what needs no identity while none is signed, and sends a pod with a sidecar
// no plain text.
func TestAGatewayReachesPodsByTheirIdentity(t *testing.T) {
	c := newCluster(t, spiffe.DefaultTrustDomain)
	old := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "old") }))
	defer old.Close()
	var asked atomic.Pointer[string]
	pay := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "pay") }))
	pay.TLS = tlsOf(c.identity("shop/pay-1"), x509.ExtKeyUsageClientAuth, &asked)
	pay.StartTLS()
	defer pay.Close()
	c.refuse.Store(true)

	port := c.port()
	ref := model.Ref{Kind: "HTTPRoute", Namespace: "shop", Name: "r"}
	rule := func(path, service string) model.Rule {
		return model.Rule{Ref: ref, Matches: []model.Match{{Path: model.PathMatch{Type: model.Prefix, Value: path}}}, Backends: []model.Backend{{Ref: ref, Service: service, Weight: 1}}}
	}
	config := &model.Config{
		Listeners: []model.Listener{{Name: "shop/edge/http", Ref: model.Ref{Kind: "Gateway", Namespace: "shop", Name: "edge"}, Owner: "shop/edge", Address: "127.0.0.1", Port: int32(port), Protocol: model.HTTP}},
		Routes: []model.Route{{Ref: ref, Attachments: []model.Attachment{{Listener: "shop/edge/http", Hostnames: []string{"*"}}},
			Rules: []model.Rule{rule("/pay", "shop/pay:80"), rule("/old", "shop/old:80")}}},
		Services: []model.Service{
			{Name: "shop/old:80", Ref: ref, Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: old.Listener.Addr().String()}}},
			{Name: "shop/pay:80", Ref: ref, Protocol: model.HTTP, Endpoints: []model.Endpoint{{Address: pay.Listener.Addr().String()}}, TLS: &model.ServiceTLS{
				Hostname: "pay.shop.svc", CAs: model.WorkloadIdentity, Pods: []model.PodIdentity{{Address: "127.0.0.1", ID: "spiffe://cluster.local/ns/shop/sa/pay", Pod: "pay-1"}}}},
		},
	}
	config.Sort()
	if errs := c.feed.Publish(map[model.Owner]*model.Config{"shop/edge": config}); len(errs) > 0 {
		t.Fatal(errs)
	}
	p := New()
	f := pflag.NewFlagSet("proxy", pflag.ContinueOnError)
	p.Flags(f)
	if err := f.Parse([]string{"--gateway=shop/edge", "--controller=" + c.address, "--ca-file=" + c.ca, "--token-file=" + c.file("token", "shop/edge-1"),
		"--admin=127.0.0.1:0", "--reach=any", "--log-format=text"}); err != nil {
		t.Fatal(err)
	}
	log := &peertest.Log{}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx, io.Discard, log) }()
	defer func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Log(log)
		}
	}()
	get := func(path string) string {
		answer, err := http.Get(fmt.Sprintf("http://127.0.0.1:%d%s", port, path))
		if err != nil {
			return err.Error()
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		return fmt.Sprint(answer.StatusCode, " ", string(body))
	}
	c.until("what needs no identity is served", func() bool { return get("/old") == "200 old" })
	if got := get("/pay"); !strings.HasPrefix(got, "503") || !strings.Contains(got, "no identity yet") || asked.Load() != nil {
		t.Errorf("without an identity: %s", got)
	}
	c.refuse.Store(false)
	c.until("the pod is reached", func() bool { return get("/pay") == "200 pay" })
	if who := asked.Load(); who == nil || *who != "spiffe://cluster.local/ns/shop/sa/edge" {
		t.Errorf("the pod is asked by %v", who)
	}
}

// TestAGatewayUsesNoIdentityOfOthers, as a sidecar does not: neither of another namespace nor of another trust domain.
func TestAGatewayUsesNoIdentityOfOthers(t *testing.T) {
	for who, want := range map[string]string{"shop/edge-1": "", "blog/edge-1": "of no ServiceAccount of namespace \"shop\", which is the Gateway's", "mesh.example": "of the trust domain"} {
		domain, token := spiffe.DefaultTrustDomain, who
		if want == "of the trust domain" {
			domain, token = who, "shop/edge-1"
		}
		id := newCluster(t, domain).identity(token)
		log := &peertest.Log{}
		own := newIdentities(spiffe.DefaultTrustDomain, "shop", "Gateway", slog.New(slog.NewTextHandler(log, nil)))
		told := false
		own.tell = func() { told = true }
		own.changed(id)
		if err := own.owns(id); (err == nil) != (want == "") || told != (want == "") || !strings.Contains(strings.ReplaceAll(log.String(), `\"`, `"`), want) {
			t.Errorf("%s: %v; the controller hears of it: %t; the log: %s", who, err, told, log)
		}
	}
}
