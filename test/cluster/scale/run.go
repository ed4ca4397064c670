package scale

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/kube"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/test/cluster/apiserver"
	"github.com/weirmesh/weir/test/cluster/process"
)

const (
	// patience bounds each thing that is waited for.
	patience = 5 * time.Minute
	// changeLimit bounds the wait for one change.
	changeLimit = 30 * time.Second
	stopGrace   = 5 * time.Second

	feedPort        = 18000
	controllerAdmin = "127.0.0.1:19081"
	proxyAdmin      = "127.0.0.1:19080"
)

// run is one measurement.
type run struct {
	Options
	dir    string
	began  time.Time
	result *Result

	server     *apiserver.Server
	api        *kube.Client
	controller *process.Process
	// controllerBegan is when it was started.
	controllerBegan time.Time
	proxy           *process.Process
	backend         *http.Server
	http            *http.Client
	fresh           int // addresses given out

	// Of a mesh.
	pods         []*corev1.Pod
	sidecars     []*sidecar
	running      sync.WaitGroup // of sidecars
	stopSidecars func()
}

// step is a part of a measurement.
type step struct {
	what string
	do   func(context.Context) error
}

func (r *run) path(name string) string { return filepath.Join(r.dir, name) }

func (r *run) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%s  "+format+"\n", append([]any{time.Now().Format("15:04:05")}, args...)...)
}

// all measures one thing after the other.
func (r *run) all(ctx context.Context) error {
	r.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 4}, Timeout: 10 * time.Second}
	steps := r.gateway()
	if r.Sidecars > 0 {
		steps = r.mesh()
	}
	for _, step := range steps {
		r.say("%s", step.what)
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, errors.Join(err, r.tails()))
		}
		r.result.Phases = append(r.result.Phases, Phase{What: step.what, Seconds: time.Since(began).Seconds(), Load: loadAverage()})
	}
	return nil
}

// gateway measures the control plane of Gateways.
func (r *run) gateway() []step {
	r.result.RouteChanges.What, r.result.EndpointChanges.What = "route", "endpoint"
	r.result.Endpoints = r.Services * EndpointsOf
	return []step{
		{"starting an API server", r.startServer},
		{"creating the objects", r.create},
		{"starting the backend", r.startBackend},
		{"starting the controller", r.startController},
		{"waiting for the statuses", r.awaitStatuses},
		{"starting the proxy", r.startProxy},
		{"asking for every route", r.askAll},
		{"changing routes", func(ctx context.Context) error { return r.change(ctx, &r.result.RouteChanges, r.changeRoute, 2) }},
		{"changing endpoints", func(ctx context.Context) error { return r.change(ctx, &r.result.EndpointChanges, r.changeEndpoint, 1) }},
		{"looking at memory", r.memory},
	}
}

// tails are the ends of the logs.
func (r *run) tails() error {
	var all error
	for name, p := range map[string]*process.Process{"controller": r.controller, "proxy": r.proxy} {
		if p != nil {
			all = errors.Join(all, fmt.Errorf("the log of the %s ends:\n%s", name, p.Tail()))
		}
	}
	return all
}

func (r *run) stop() {
	if r.stopSidecars != nil {
		r.stopSidecars()
		r.running.Wait()
	}
	for _, p := range []*process.Process{r.proxy, r.controller} {
		if p != nil {
			p.Stop(stopGrace)
		}
	}
	if r.backend != nil {
		r.backend.Close()
	}
	if r.http != nil {
		r.http.CloseIdleConnections()
	}
	if r.api != nil {
		r.api.Close()
	}
	if r.server != nil {
		if err := r.server.Stop(); err != nil {
			r.say("stopping the API server: %v", err)
		}
	}
}

func (r *run) startServer(ctx context.Context) (err error) {
	folder := r.path("apiserver")
	if err := os.Mkdir(folder, 0o700); err != nil {
		return err
	}
	if r.server, err = apiserver.Start(ctx, apiserver.Options{Cache: r.Cache, Dir: folder}); err != nil {
		return err
	}
	config, err := clientcmd.BuildConfigFromFlags("", r.server.Kubeconfig)
	if err != nil {
		return err
	}
	config.QPS = -1
	r.api, err = kube.NewClient(config)
	return err
}

// startBackend serves all endpoints: it answers with the address that it was asked at.
func (r *run) startBackend(context.Context) error {
	l, err := net.Listen("tcp4", net.JoinHostPort("0.0.0.0", strconv.Itoa(backendPort)))
	if err != nil {
		return err
	}
	r.backend = &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, q *http.Request) {
		address, _ := q.Context().Value(http.LocalAddrContextKey).(net.Addr)
		io.WriteString(w, address.String())
	})}
	go r.backend.Serve(l) // ends with Close
	return nil
}

func (r *run) startController(ctx context.Context) (err error) {
	r.controllerBegan = time.Now()
	args := []string{"controller",
		"--kubeconfig", r.server.Kubeconfig, "--namespace", system, "--name", "controller-0",
		// The certificate is for the Service's name, so this is how a proxy on this machine reaches it.
		"--controller-service", "localhost", "--feed-address", fmt.Sprintf("127.0.0.1:%d", feedPort), "--conversion-address", "off",
		"--proxy-image", "weir:dev", "--admin", controllerAdmin, "--log-format", "json"}
	if r.Sidecars > 0 {
		args = append(args, "--mesh")
	}
	if r.controller, err = process.Start(r.path("controller.log"), r.Weir, args...); err != nil {
		return err
	}
	if err := r.await(ctx, "the controller", func() error {
		return errors.Join(ended(r.controller), ready(ctx, r.http, "http://"+controllerAdmin+"/readyz"))
	}); err != nil {
		return err
	}
	return r.readStart()
}

// startProxy plays the Gateway's Deployment: its pod, and the process in it.
func (r *run) startProxy(ctx context.Context) error {
	account := &corev1.ServiceAccount{ObjectMeta: named(system, infra.Name(gateway, class))}
	authorities := &corev1.ConfigMap{ObjectMeta: account.ObjectMeta}
	if err := r.await(ctx, "what a proxy needs", func() error {
		return errors.Join(r.api.Get(ctx, client.ObjectKeyFromObject(account), account), r.api.Get(ctx, client.ObjectKeyFromObject(authorities), authorities))
	}); err != nil {
		return err
	}
	pod := &corev1.Pod{ObjectMeta: named(system, "proxy-0"), Spec: corev1.PodSpec{
		ServiceAccountName: account.Name, Containers: []corev1.Container{{Name: "proxy", Image: "weir:dev"}},
	}}
	if err := r.api.Create(ctx, pod); err != nil {
		return err
	}
	request := &authenticationv1.TokenRequest{Spec: authenticationv1.TokenRequestSpec{
		Audiences: []string{infra.Audience}, ExpirationSeconds: ptr(int64(3600)),
		BoundObjectRef: &authenticationv1.BoundObjectReference{Kind: "Pod", APIVersion: "v1", Name: pod.Name, UID: pod.UID},
	}}
	if err := r.api.SubResource("token").Create(ctx, account, request); err != nil {
		return fmt.Errorf("token: %w", err)
	}
	state := r.path("state")
	if err := errors.Join(
		os.Mkdir(state, 0o700),
		os.WriteFile(r.path("token"), []byte(request.Status.Token), 0o600),
		os.WriteFile(r.path("ca.crt"), []byte(authorities.Data[infra.CAKey]), 0o600)); err != nil {
		return err
	}
	began := time.Now()
	var err error
	r.proxy, err = process.Start(r.path("proxy.log"), r.Weir, "proxy",
		"--gateway", system+"/"+gateway, "--controller", fmt.Sprintf("localhost:%d", feedPort),
		"--ca-file", r.path("ca.crt"), "--token-file", r.path("token"), "--state-dir", state,
		"--admin", proxyAdmin, "--log-format", "json", "--reach", "any") // the endpoints are this machine's own
	if err != nil {
		return err
	}
	if err := r.await(ctx, "the proxy", func() error {
		return errors.Join(ended(r.proxy), ready(ctx, r.http, "http://"+proxyAdmin+"/readyz"))
	}); err != nil {
		return err
	}
	r.result.ProxyReady = time.Since(began).Seconds()
	sent, err := r.sent(ctx)
	r.result.FirstSend = sent
	return err
}

// ended says how a program ended that should not have.
func ended(p *process.Process) error {
	select {
	case <-p.Done():
		return p.Failure()
	default:
		return nil
	}
}

func ready(ctx context.Context, c *http.Client, url string) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	response, err := c.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	if err == nil && response.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s: %s", url, response.Status, text)
	}
	return err
}

// await tries until it succeeds, and fails with the last error when patience is over.
func (r *run) await(ctx context.Context, what string, try func() error) error {
	if err := process.Within(ctx, patience, try); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	return nil
}
