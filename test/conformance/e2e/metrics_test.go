package e2e

import (
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

// measured is what these tests read of a TrafficMetrics.
type measured struct {
	Resource struct{ Kind, Namespace, Name string }
	Edge     struct {
		Direction string
		Resource  *struct{ Kind, Namespace, Name string }
	}
	Metrics []struct {
		Name  string
		Value string
	}
	Items []measured
}

// counts are successes and failures.
func (m measured) counts() (out [2]string) {
	for _, v := range m.Metrics {
		if i := slices.Index([]string{"success_count", "failure_count"}, v.Name); i >= 0 {
			out[i] = v.Value
		}
	}
	return out
}

const trafficAPI = "/apis/traffic.metrics.k8s.io/v1beta1/"

// metrics reads from the API of Traffic Metrics, with the whole of what is kept as the window.
func (w *world) metrics(path string) (m measured, err error) {
	text, err := install.Kubectl(w.Context(), "", "get", "--raw", trafficAPI+path)
	if err == nil {
		err = json.Unmarshal([]byte(text), &m)
	}
	return m, err
}

// fake is a pod with the labels of a proxy, which answers where proxies have their reports. It says what it was asked.
const fake = `
apiVersion: v1
kind: Pod
metadata:
  name: fake
  labels:
    app.kubernetes.io/name: weir
    app.kubernetes.io/component: proxy
    app.kubernetes.io/managed-by: weir
    gateway.networking.k8s.io/gateway-name: other
    gateway.networking.k8s.io/gateway-class-name: weir
spec:
  containers:
  - name: proxy
    image: ` + install.Image + `
    args: [echo, "fake=0.0.0.0:19080"]
    readinessProbe: {httpGet: {path: /ready, port: 19080}, periodSeconds: 1}
`

// TestTrafficMetricsTellWhatWasSent: the counts of requests through a Gateway are exact, at pods that have no proxy as at the
// Gateway's own, whichever replica of the controller is asked; and no pod is read that has not proved to be a proxy.
func TestTrafficMetricsTellWhatWasSent(t *testing.T) {
	if testing.Short() {
		t.Skip("the traffic of meshed pods shows them")
	}
	t.Parallel()
	w := newWorld(t)
	w.apply(fake)
	w.toys("web", "api")
	url := w.gateway("edge")
	w.apply(fmt.Sprintf(shop, "web"))
	w.answers(url, http.StatusOK, "web") // one that is served
	const n = 36
	for i := range n {
		if a, err := get(t.Context(), fmt.Sprint(url, "/", i)); err != nil || a.Status != http.StatusOK {
			t.Fatalf("request %d: %+v, %v", i, a, err)
		}
	}
	want := [2]string{fmt.Sprint(n + 1), "0"}
	deployment := "namespaces/" + w.namespace + "/deployments/web"
	began := time.Now()
	w.eventually(func() error {
		m, err := w.metrics(deployment + "?window=1m")
		if got := m.counts(); err == nil && got != want {
			err = fmt.Errorf("deployment web has %v, want %v", got, want)
		}
		return err
	})
	t.Logf("known %v after the last request", time.Since(began).Round(time.Millisecond))

	proxy := w.kubectl("", "get", "pods", "--selector=gateway.networking.k8s.io/gateway-name=edge", "--output=jsonpath={.items[*].metadata.name}")
	pod := w.kubectl("", "get", "pods", "--selector=app=web", "--output=jsonpath={.items[*].metadata.name}")
	for _, path := range []string{"pods/" + pod, "services/web", "deployments/web"} {
		m, err := w.metrics("namespaces/" + w.namespace + "/" + path + "?window=1m")
		if err != nil || m.counts() != want {
			t.Errorf("%s has %v, want %v, %v", path, m.counts(), want, err)
		}
	}
	m, err := w.metrics("namespaces/" + w.namespace + "/deployments/api?window=1m")
	if err != nil || m.counts() != [2]string{"0", "0"} {
		t.Errorf("deployment api, which nobody asked, has %v, %v", m.counts(), err)
	}
	m, err = w.metrics(deployment + "/edges?window=1m&kind=pods")
	if err != nil || len(m.Items) != 1 || m.Items[0].counts() != want || m.Items[0].Edge.Direction != "from" || m.Items[0].Edge.Resource == nil || m.Items[0].Edge.Resource.Name != proxy {
		t.Errorf("the edges of deployment web are %+v, want one from pod %s, %v", m.Items, proxy, err)
	}
	table := w.kubectl("", "get", "pods.traffic.metrics.k8s.io", "--all-namespaces")
	for _, name := range []string{pod, proxy} {
		if !strings.Contains(table, name) {
			t.Errorf("kubectl's table lacks %s:\n%s", name, table)
		}
	}
	w.replicasAgree(deployment+"?window=1m", want)

	if log := w.kubectl("", "logs", "fake"); strings.Contains(log, "/edges") || !strings.Contains(log, "/ready") {
		t.Errorf("a pod that is no proxy was asked for its report:\n%s", log)
	}
}

// replicasAgree asks each replica of the controller, as the API server does for a user.
func (w *world) replicasAgree(path string, want [2]string) {
	w.Helper()
	addresses := strings.Fields(w.kubectl("", "--namespace", install.Namespace, "get", "pods", "--selector=app.kubernetes.io/component=controller", "--output=jsonpath={.items[*].status.podIP}"))
	if len(addresses) < 2 {
		w.Fatalf("the controller has the replicas %q", addresses)
	}
	proxy := filepath.Join(os.Getenv("WEIR_CLUSTER_DIR"), "apiserver", "front-proxy.")
	certificate, err := tls.LoadX509KeyPair(proxy+"crt", proxy+"key")
	if err != nil {
		w.Fatal(err)
	}
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true, Certificates: []tls.Certificate{certificate}, // pods have no names
	}}}
	for _, address := range addresses {
		w.eventually(func() error {
			request, err := http.NewRequestWithContext(w.Context(), http.MethodGet, "https://"+address+":18443"+trafficAPI+path, nil)
			if err != nil {
				return err
			}
			request.Header.Set("X-Remote-User", "somebody")
			request.Header.Set("X-Remote-Group", "system:masters")
			response, err := client.Do(request)
			if err != nil {
				return err
			}
			defer response.Body.Close()
			body, err := io.ReadAll(response.Body)
			var m measured
			if err == nil && response.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s", response.Status)
			}
			if err == nil {
				err = json.Unmarshal(body, &m)
			}
			if got := m.counts(); err != nil || got != want {
				return fmt.Errorf("the replica at %s says %v, want %v: %s, %w", address, got, want, body, err)
			}
			return nil
		})
	}
}
