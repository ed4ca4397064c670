// Package apiserver runs a real kube-apiserver on its etcd, by itself on loopback, without nodes and controllers: objects
// are validated, stored and watched, nothing acts on them. For whoever tests against the Kubernetes API, and for package
// node, which puts a node beside it.
package apiserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"github.com/weirmesh/weir/test/cluster/components"
	"github.com/weirmesh/weir/test/cluster/pki"
	"github.com/weirmesh/weir/test/cluster/process"
)

const (
	// startTimeout bounds the start once the programs are built; seconds are usual.
	startTimeout = 2 * time.Minute
	// stopGrace bounds an orderly stop of one program.
	stopGrace = 5 * time.Second
)

// ServiceRange is that of ClusterIPs. Its first address is the API server's Service.
const ServiceRange = "10.96.0.0/16"

// Options of a server. The zero value builds into the user's cache and keeps no files.
type Options struct {
	Cache components.Cache
	// Dir keeps logs, certificates and data. If empty it is a temporary folder that Stop removes.
	Dir string
	// Args are added to those of kube-apiserver.
	Args []string
	// Address is where nodes and pods reach the server, which then listens on every address, tells them so, and expects
	// the controllers that make service accounts. Loopback, for clients on this machine alone, if nil.
	Address net.IP
}

// Server is an API server that is ready, until Stop.
type Server struct {
	// URL is where it serves.
	URL string
	// Kubeconfig is the path of a file for its administrator.
	Kubeconfig string

	client    *http.Client
	authority *pki.Authority
	address   net.IP
	dir       string
	temporary bool
	ports     []*process.Port
	running   []*process.Process // in the order of their start
	// program and args are those of kube-apiserver.
	program string
	args    []string
}

// Start builds the programs if need be, starts them and waits until the API server is ready. After an error nothing is
// left behind.
func Start(ctx context.Context, options Options) (*Server, error) {
	programs, err := options.Cache.Ensure(ctx, components.Etcd, components.APIServer)
	if err != nil {
		return nil, err
	}
	s := &Server{dir: options.Dir, address: options.Address}
	if s.address == nil {
		s.address = net.IPv4(127, 0, 0, 1)
	}
	if s.dir == "" {
		if s.dir, err = os.MkdirTemp("", "weir-apiserver-"); err != nil {
			return nil, err
		}
		s.temporary = true
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the API server was not ready within %s", startTimeout))
	defer cancel()
	if err := s.start(ctx, programs, options.Args); err != nil {
		return nil, errors.Join(err, s.Stop())
	}
	return s, nil
}

// Authority vouches for the server, and to the server for its clients.
func (s *Server) Authority() *pki.Authority { return s.authority }

// ServiceAccountKey is the path of the key that signs service accounts' tokens.
func (s *Server) ServiceAccountKey() string { return s.path("sa.key") }

// Client is the administrator's.
func (s *Server) Client() *http.Client { return s.client }

// Stop ends the server and removes what it left.
func (s *Server) Stop() error {
	if s.client != nil {
		s.client.CloseIdleConnections()
	}
	for len(s.running) > 0 {
		last := len(s.running) - 1
		s.running[last].Stop(stopGrace)
		s.running = s.running[:last]
	}
	for _, p := range s.ports {
		p.Release()
	}
	s.ports = nil
	if s.temporary {
		return os.RemoveAll(s.dir)
	}
	return nil
}

// Pids of the programs.
func (s *Server) Pids() []int {
	var pids []int
	for _, p := range s.running {
		pids = append(pids, p.Pid())
	}
	return pids
}

func (s *Server) start(ctx context.Context, programs components.Programs, args []string) error {
	for range 3 {
		p, err := process.ReservePort()
		if err != nil {
			return err
		}
		s.ports = append(s.ports, p)
	}
	etcd, peer, secure := s.ports[0], s.ports[1], s.ports[2]
	s.URL = "https://" + net.JoinHostPort(s.address.String(), strconv.Itoa(secure.Number))
	if err := s.writeFiles(); err != nil {
		return fmt.Errorf("certificates: %w", err)
	}
	if err := s.run(programs.Path(components.Etcd), s.etcdArgs(etcd, peer)); err != nil {
		return err
	}
	s.program, s.args = programs.Path(components.APIServer), append(s.apiServerArgs(etcd, secure), args...)
	if err := s.run(s.program, s.args); err != nil {
		return err
	}
	return s.ready(ctx)
}

// Restart ends kube-apiserver, starts it again after a time without one with what it stored, and waits until it is ready. After an error it is
// gone, and there is only Stop.
func (s *Server) Restart(ctx context.Context, away time.Duration) error {
	last := len(s.running) - 1
	s.running[last].Stop(stopGrace)
	s.running = s.running[:last]
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(away):
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout, fmt.Errorf("the API server was not ready within %s", startTimeout))
	defer cancel()
	if err := s.run(s.program, s.args); err != nil {
		return err
	}
	return s.ready(ctx)
}

func (s *Server) run(program string, args []string) error {
	p, err := process.StartIn(process.Roomy, s.path(filepath.Base(program)+".log"), program, args...)
	if err != nil {
		return err
	}
	s.running = append(s.running, p)
	return nil
}

func (s *Server) path(name string) string { return filepath.Join(s.dir, name) }

func (s *Server) etcdArgs(client, peer *process.Port) []string {
	clientURL, peerURL := "http://"+client.Address(), "http://"+peer.Address()
	return []string{
		"--name=weir", "--data-dir=" + s.path("etcd"), "--unsafe-no-fsync", "--log-level=warn",
		"--socket-reuse-port",
		"--listen-client-urls=" + clientURL, "--advertise-client-urls=" + clientURL,
		"--listen-peer-urls=" + peerURL, "--initial-advertise-peer-urls=" + peerURL, "--initial-cluster=weir=" + peerURL,
	}
}

func (s *Server) apiServerArgs(etcd, secure *process.Port) []string {
	args := []string{
		"--etcd-servers=http://" + etcd.Address(),
		fmt.Sprintf("--secure-port=%d", secure.Number), "--permit-port-sharing",
		"--advertise-address=" + s.address.String(),
		"--service-cluster-ip-range=" + ServiceRange, "--allow-privileged",
		"--tls-cert-file=" + s.path("apiserver.crt"), "--tls-private-key-file=" + s.path("apiserver.key"),
		"--client-ca-file=" + s.path("ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc.cluster.local",
		"--service-account-key-file=" + s.path("sa.crt"), "--service-account-signing-key-file=" + s.path("sa.key"),
		// How extension API servers learn who asks.
		"--proxy-client-cert-file=" + s.path("front-proxy.crt"), "--proxy-client-key-file=" + s.path("front-proxy.key"),
		"--requestheader-client-ca-file=" + s.path("front-proxy-ca.crt"), "--requestheader-allowed-names=front-proxy-client",
		"--requestheader-username-headers=X-Remote-User", "--requestheader-group-headers=X-Remote-Group",
		"--requestheader-extra-headers-prefix=X-Remote-Extra-",
	}
	if s.address.IsLoopback() {
		return append(args,
			"--bind-address=127.0.0.1", "--authorization-mode=RBAC",
			// The Service "kubernetes" cannot have an endpoint on loopback.
			"--endpoint-reconciler-type=none",
			// No controller makes service accounts, which this would wait for.
			"--disable-admission-plugins=ServiceAccount")
	}
	return append(args,
		"--bind-address=0.0.0.0", "--authorization-mode=Node,RBAC", "--enable-admission-plugins=NodeRestriction",
		"--kubelet-client-certificate="+s.path("kubelet-client.crt"), "--kubelet-client-key="+s.path("kubelet-client.key"),
		"--kubelet-certificate-authority="+s.path("ca.crt"), "--kubelet-preferred-address-types=InternalIP")
}

// writeFiles writes certificates, keys and the kubeconfig, and makes the client.
func (s *Server) writeFiles() error {
	ca, err := pki.NewAuthority("weir-test-ca")
	if err != nil {
		return err
	}
	frontProxyCA, err := pki.NewAuthority("weir-test-front-proxy-ca")
	if err != nil {
		return err
	}
	server, serverErr := ca.Issue("kube-apiserver", nil,
		[]string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "kubernetes.default.svc.cluster.local"},
		net.IPv4(127, 0, 0, 1), net.IPv4(10, 96, 0, 1), s.address)
	admin, adminErr := ca.Issue("admin", []string{"system:masters"}, nil)
	frontProxy, frontProxyErr := frontProxyCA.Issue("front-proxy-client", nil, nil)
	kubelets, kubeletsErr := ca.Issue("apiserver-kubelet-client", []string{"system:masters"}, nil)
	tokens, tokensErr := pki.NewKeys()
	if err := errors.Join(serverErr, adminErr, frontProxyErr, kubeletsErr, tokensErr); err != nil {
		return err
	}
	s.authority = ca
	kubeconfig, err := ca.Kubeconfig(s.URL, admin)
	if err != nil {
		return err
	}
	s.Kubeconfig = s.path("kubeconfig")
	for name, content := range map[string][]byte{
		"ca.crt": ca.Certificate(), "front-proxy-ca.crt": frontProxyCA.Certificate(), "kubeconfig": kubeconfig,
		"apiserver.crt": server.Public, "apiserver.key": server.Private,
		"front-proxy.crt": frontProxy.Public, "front-proxy.key": frontProxy.Private,
		"kubelet-client.crt": kubelets.Public, "kubelet-client.key": kubelets.Private,
		"sa.crt": tokens.Public, "sa.key": tokens.Private,
	} {
		if err := os.WriteFile(s.path(name), content, 0o600); err != nil {
			return err
		}
	}
	identity, err := tls.X509KeyPair(admin.Public, admin.Private)
	if err != nil {
		return err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca.Certificate())
	s.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{identity}},
		ForceAttemptHTTP2: true,
	}}
	return nil
}

// ready waits until the server says it is, and has made the namespace that most objects go to.
func (s *Server) ready(ctx context.Context) error {
	retry := time.NewTicker(50 * time.Millisecond)
	defer retry.Stop()
	etcd, server := s.running[0], s.running[1]
	for {
		if s.answers(ctx, "/readyz") && s.answers(ctx, "/api/v1/namespaces/default") {
			return nil
		}
		select {
		case <-etcd.Done():
			return etcd.Failure()
		case <-server.Done():
			return server.Failure()
		case <-ctx.Done():
			return fmt.Errorf("%w; the log of kube-apiserver ends:\n%s", context.Cause(ctx), server.Tail())
		case <-retry.C:
		}
	}
}

func (s *Server) answers(ctx context.Context, path string) bool {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL+path, nil)
	if err != nil {
		return false
	}
	response, err := s.client.Do(request)
	if err != nil {
		return false
	}
	defer response.Body.Close()
	_, err = io.Copy(io.Discard, response.Body)
	return err == nil && response.StatusCode == http.StatusOK
}
