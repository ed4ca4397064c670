package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

// tapped is what this test reads of a line.
type tapped struct {
	Request *struct {
		At, To       struct{ Kind, Namespace, Name string }
		Method, Path string
		Status       int
	}
	Counts *struct{ Matched, Shown, Proxies, Silent int }
}

// TestATapShowsRequestsAsTheyEnd: whoever is asked, the API server or one replica of the controller in its stead, shows what
// the Gateway's proxy observes, although that is connected to one replica alone; and nothing to those who may not.
func TestATapShowsRequestsAsTheyEnd(t *testing.T) {
	if testing.Short() {
		t.Skip("another test taps pods with sidecars, and test/cluster/kube an API server")
	}
	t.Parallel()
	w := newWorld(t)
	w.toys("web", "api")
	url := w.gateway("edge")
	w.apply(fmt.Sprintf(shop, "web"))
	w.answers(url, http.StatusOK, "web")
	proxy := w.kubectl("", "get", "pods", "--selector=gateway.networking.k8s.io/gateway-name=edge", "--output=jsonpath={.items[*].metadata.name}")
	pod := w.kubectl("", "get", "pods", "--selector=app=web", "--output=jsonpath={.items[*].metadata.name}")

	ctx, stop := context.WithCancel(t.Context())
	var asking sync.WaitGroup
	asking.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			_, _ = get(ctx, fmt.Sprintf("%s/tap-%d?secret", url, i))
			time.Sleep(50 * time.Millisecond)
		}
	})
	defer asking.Wait()
	defer stop()

	path := trafficAPI + "watch/namespaces/" + w.namespace + "/deployments/"
	// check reads lines until one is of a request to the pod and counts have a proxy, and reports what is wrong with one.
	check := func(who string, text []byte) {
		requests, proxies := 0, 0
		for lines := bufio.NewScanner(bytes.NewReader(text)); lines.Scan(); {
			var l tapped
			if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
				t.Errorf("%s says %s: %v", who, lines.Bytes(), err)
			}
			if l.Counts != nil {
				proxies = max(proxies, l.Counts.Proxies)
			}
			if r := l.Request; r != nil {
				requests++
				if r.At.Name != proxy || r.At.Namespace != w.namespace || r.To.Name != pod || r.Method != "GET" || !strings.HasPrefix(r.Path, "/tap-") || r.Status != 200 || strings.Contains(lines.Text(), "secret") {
					t.Errorf("%s shows %s, want a request at %s to %s", who, lines.Bytes(), proxy, pod)
				}
			}
		}
		if requests < 5 || proxies < 1 {
			t.Errorf("%s shows %d requests of %d proxies:\n%s", who, requests, proxies, text)
		}
	}
	text, err := install.Kubectl(t.Context(), "", "get", "--raw", path+"web/tap?path=/tap&for=8s")
	if err != nil {
		t.Fatal(err)
	}
	check("the API server", []byte(text))
	if text, err = install.Kubectl(t.Context(), "", "get", "--raw", path+"api/tap?for=3s"); err != nil || strings.Contains(text, "request") {
		t.Errorf("a tap of another deployment: %v\n%s", err, text)
	}
	if text, err = install.Kubectl(t.Context(), "", "--as=somebody", "get", "--raw", path+"web/tap?for=3s"); err == nil || strings.Contains(text, "request") {
		t.Errorf("who has no rights: %v\n%s", err, text)
	}

	front := filepath.Join(os.Getenv("WEIR_CLUSTER_DIR"), "apiserver", "front-proxy.")
	certificate, err := tls.LoadX509KeyPair(front+"crt", front+"key")
	if err != nil {
		t.Fatal(err)
	}
	client := http.Client{Timeout: time.Minute, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}, // pods have no names
	}}}
	replicas := strings.Fields(w.kubectl("", "--namespace", install.Namespace, "get", "pods", "--selector=app.kubernetes.io/component=controller", "--output=jsonpath={.items[*].status.podIP}"))
	if len(replicas) < 2 {
		t.Fatalf("the controller has the replicas %q", replicas)
	}
	for _, address := range replicas {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+address+":18443"+path+"web/tap?path=/tap&for=8s", nil)
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("X-Remote-User", "somebody")
		request.Header.Set("X-Remote-Group", "system:masters")
		answer, err := client.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		var all bytes.Buffer
		_, err = all.ReadFrom(answer.Body)
		answer.Body.Close()
		if err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("the replica at %s: %s, %v\n%s", address, answer.Status, err, &all)
		}
		check("the replica at "+address, all.Bytes())
	}
}
