//go:build linux

package main

import (
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"
)

// place is one proxy of a contender: where it listens, and what it stands before.
type place struct {
	setting setting
	port    int
	// next is the port of the sidecar behind it; 0: the backends are.
	next int
}

// checkSidecars checks what the answer to a good client does not show: that the server's sidecar passes on nothing of a client
// without a certificate, or with one by another authority, and that Weir judges by the policy.
func (b *bench) checkSidecars(p *proxy) error {
	port := p.places[len(p.places)-1].port
	before, err := b.counts()
	if err != nil {
		return err
	}
	for who, file := range map[string]string{"without a certificate": "", "with a certificate by another authority": b.trust.stranger} {
		if status, err := b.knock(port, file, requestPath); err == nil && status < 400 {
			return fmt.Errorf("a client %s is answered %d", who, status)
		}
	}
	if p.peer == "weir" && p.setting.Rules > 0 {
		if status, err := b.knock(port, b.trust.client, "/elsewhere"); err != nil || status != http.StatusForbidden {
			return errors.Join(fmt.Errorf("a path that no rule allows is answered %d", status), err)
		}
	}
	after, err := b.counts()
	if err != nil {
		return err
	}
	passed := after[p.setting.Backend][0] - before[p.setting.Backend][0]
	if p.setting.Backend == roleFast {
		passed-- // the request for the counts
	}
	if passed != 0 {
		return fmt.Errorf("%d requests reached the backend that should have been refused", passed)
	}
	if status, err := b.knock(port, b.trust.client, requestPath); err != nil || status != http.StatusOK {
		return errors.Join(fmt.Errorf("the caller is answered %d", status), err)
	}
	return nil
}

// knock sends a request to a port over TLS, with the certificate of a file or none, and is the status of the answer. The server has to prove
// that it is the application, with the cipher suite of all.
func (b *bench) knock(port int, file, path string) (int, error) {
	config, err := b.trust.clientTLS(file)
	if err != nil {
		return 0, err
	}
	client := &http.Client{Timeout: 5 * time.Second, Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}}
	req, err := http.NewRequestWithContext(b.ctx, http.MethodGet, "https://"+address(port)+path, nil)
	if err != nil {
		return 0, err
	}
	req.Host = hostname
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	return resp.StatusCode, checkCipher(resp)
}

// sidecarManifests writes the pods, the Service between them, whose endpoint is where the application's sidecar listens, and the policy.
func (b *bench) sidecarManifests(dir string, s setting, port int) error {
	if err := mkdir(dir); err != nil {
		return err
	}
	var out strings.Builder
	for _, name := range []string{application, caller} {
		fmt.Fprintf(&out, `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: %[2]s}
spec:
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      serviceAccountName: %[1]s
      containers: [{name: %[1]s, image: %[1]s, ports: [{containerPort: %[3]d}]}]
`, name, namespace, podPort)
	}
	fmt.Fprintf(&out, `---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: %[2]s}
spec: {selector: {app: %[1]s}, ports: [{name: web, port: 80, targetPort: %[3]d}]}
---
apiVersion: discovery.k8s.io/v1
kind: EndpointSlice
metadata: {name: %[1]s, namespace: %[2]s, labels: {kubernetes.io/service-name: %[1]s}}
addressType: IPv4
endpoints: [{addresses: [127.0.0.1], conditions: {ready: true}}]
ports: [{name: web, port: %[4]d, protocol: TCP}]
`, application, namespace, podPort, port)
	_, err := writeFile(dir, "pods.yaml", out.String())
	return errors.Join(err, accessManifests(dir, s.Rules))
}

// roleRules is how many rules a role has: the definition allows 256.
const roleRules = 100

// accessManifests writes rules of access in roles that are all bound to the caller. One in the middle allows the requests.
func accessManifests(dir string, rules int) error {
	if rules == 0 {
		return nil
	}
	var out strings.Builder
	for i := range rules {
		if i%roleRules == 0 {
			fmt.Fprintf(&out, `---
apiVersion: access.smi-spec.io/v1beta1
kind: TrafficRoleBinding
metadata: {name: calls-%[1]d, namespace: %[2]s}
subjects: [{kind: Deployment, name: %[3]s}]
roleRef: {kind: TrafficRole, name: calls-%[1]d}
---
apiVersion: access.smi-spec.io/v1beta1
kind: TrafficRole
metadata: {name: calls-%[1]d, namespace: %[2]s}
rules:
`, i/roleRules, namespace, caller)
		}
		path := fmt.Sprintf(`/service%d/\w+$`, i)
		if i == rules/2 {
			path = allowedPath
		}
		fmt.Fprintf(&out, "- {resources: [{kind: Deployment, name: %s}], methods: [GET], paths: ['%s']}\n", application, path)
	}
	_, err := writeFile(dir, "access.yaml", out.String())
	return err
}

// allowedPath is that of the rule that allows the requests.
const allowedPath = `/cart/\w+$`

// sidecarFlags are those by which "weir run" is the sidecar of a place.
func (b *bench) sidecarFlags(at place) []string {
	if at.next > 0 {
		return []string{"--as", namespace + "/" + caller, "--identity", b.trust.dir, "--outbound", address(at.port)}
	}
	return []string{
		"--as", namespace + "/" + application, "--identity", b.trust.dir,
		"--inbound", fmt.Sprintf("%d=%s", podPort, address(at.port)), "--app", fmt.Sprintf("%d=%s", podPort, address(b.backends[at.setting.Backend])),
	}
}
