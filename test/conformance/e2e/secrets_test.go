package e2e

import (
	"bufio"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/test/conformance/install"
)

// TestSecretsShowNowhere serves with one private key, has another that is not one, and looks for both in all that Weir says.
func TestSecretsShowNowhere(t *testing.T) {
	if testing.Short() {
		t.Skip("for the full size")
	}
	t.Parallel()
	w := newWorld(t)
	w.toys("v1")
	chain, key := selfSigned(t, "shop.example")
	broken := "-----BEGIN PRIVATE KEY-----\n" + base64.StdEncoding.EncodeToString([]byte("this is no key, but nobody's business either")) + "\n-----END PRIVATE KEY-----\n"
	w.tlsSecret("good", chain, key)
	w.tlsSecret("broken", chain, broken)
	w.apply(fmt.Sprintf(shop, "v1"), fmt.Sprintf(`
apiVersion: gateway.networking.k8s.io/v1
kind: Gateway
metadata: {name: edge}
spec:
  gatewayClassName: %s
  listeners:
  - {name: good, port: 443, protocol: HTTPS, tls: {certificateRefs: [{name: good}]}}
  - {name: broken, port: 8443, protocol: HTTPS, tls: {certificateRefs: [{name: broken}]}}
`, install.Class))
	url := strings.Replace(w.programmed("edge"), "http:", "https:", 1)
	w.eventually(func() error { return w.overTLS(url, chain) })
	w.condition("gateway/edge", ".status.listeners[1]", "ResolvedRefs", "False")

	said := map[string]string{
		"the events":               w.kubectl("", "get", "events", "--all-namespaces", "--output=json"),
		"the statuses":             w.kubectl("", "get", "gateway,httproute", "--output=json"),
		"the controller's log":     w.kubectl("", "--namespace", install.Namespace, "logs", "deployment/weir-controller", "--all-containers"),
		"the proxy's log":          w.kubectl("", "logs", "--selector=gateway.networking.k8s.io/gateway-name=edge", "--all-containers", "--tail=-1"),
		"the proxy's dump":         w.admin(w.proxy("edge"), "19080", "/config"),
		"the proxy's status":       w.admin(w.proxy("edge"), "19080", "/status"),
		"the controller's dump":    w.admin("--namespace="+install.Namespace+" deployment/weir-controller", "19081", "/config"),
		"the controller's status":  w.admin("--namespace="+install.Namespace+" deployment/weir-controller", "19081", "/status"),
		"the objects of the proxy": w.kubectl("", "get", kinds, "--selector=gateway.networking.k8s.io/gateway-name=edge", "--output=json"),
	}
	for _, dump := range []string{"the proxy's dump", "the controller's dump"} {
		if !strings.Contains(said[dump], w.namespace+"/good") {
			t.Errorf("%s does not hold the certificate by name: %.500s", dump, said[dump])
		}
	}
	forms := func(secret string) []string {
		return []string{strings.Split(secret, "\n")[1][:24], base64.StdEncoding.EncodeToString([]byte(secret))[:80]}
	}
	for name, secret := range map[string]string{"good": key, "broken": broken} {
		if held := w.kubectl("", "get", "secret", name, "--output=json"); !strings.Contains(held, forms(secret)[1]) {
			t.Fatalf("Secret %s would not be found where it shows", name)
		}
	}
	for where, text := range said {
		if text == "" {
			t.Errorf("%s: nothing was said", where)
		}
		for _, form := range append(append(forms(key), forms(broken)...), "nobody's business") {
			if strings.Contains(text, form) {
				t.Errorf("%s shows a secret: %q", where, form)
			}
		}
	}
}

// selfSigned makes a certificate and its key, in PEM.
func selfSigned(t *testing.T, name string) (chain, key string) {
	t.Helper()
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(100 * 24 * time.Hour), IsCA: true, BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, private.Public(), private)
	if err != nil {
		t.Fatal(err)
	}
	pkcs8, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		t.Fatal(err)
	}
	encode := func(kind string, der []byte) string {
		return string(pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der}))
	}
	return encode("CERTIFICATE", der), encode("PRIVATE KEY", pkcs8)
}

func (w *world) tlsSecret(name, chain, key string) {
	w.Helper()
	manifest, err := json.Marshal(map[string]any{
		"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls", "metadata": map[string]any{"name": name},
		"stringData": map[string]string{"tls.crt": chain, "tls.key": key},
	})
	if err != nil {
		w.Fatal(err)
	}
	w.kubectl(string(manifest), "create", "-f", "-")
}

// overTLS is nil when a request to shop.example is served by who has the certificate.
func (w *world) overTLS(url, chain string) error {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(chain))
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true, TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: "shop.example"},
	}}
	a, err := ask(w.Context(), &client, url)
	if err == nil && a.Status != http.StatusOK {
		err = fmt.Errorf("%s: status %d", url, a.Status)
	}
	return err
}

// proxy is a pod of a Gateway's, as kubectl takes it.
func (w *world) proxy(gateway string) string {
	w.Helper()
	return w.kubectl("", "get", "pods", "--selector=gateway.networking.k8s.io/gateway-name="+gateway, "--output=name", "--field-selector=status.phase=Running")
}

// admin asks an admin endpoint from inside the pod, as it tells its configuration to nobody else.
func (w *world) admin(of, port, path string) string {
	w.Helper()
	args := append([]string{"--namespace", w.namespace, "port-forward"}, append(strings.Fields(of), ":"+port)...)
	forward := exec.CommandContext(w.Context(), "kubectl", args...)
	out, err := forward.StdoutPipe()
	if err != nil {
		w.Fatal(err)
	}
	if err := forward.Start(); err != nil {
		w.Fatal(err)
	}
	defer func() {
		_ = forward.Process.Kill()
		_ = forward.Wait() // it was killed
	}()
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		w.Fatalf("kubectl port-forward %s: %v", of, err)
	}
	_, rest, _ := strings.Cut(line, "Forwarding from ")
	address, _, _ := strings.Cut(rest, " ")
	client := http.Client{Timeout: 10 * time.Second}
	response, err := client.Get("http://" + address + path)
	if err != nil {
		w.Fatal(err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err != nil || response.StatusCode != http.StatusOK {
		w.Fatalf("%s of %s: %s %v: %s", path, of, response.Status, err, text)
	}
	return string(text)
}
