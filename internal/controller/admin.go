package controller

import (
	"cmp"
	"context"
	"net/http"
	"sync/atomic"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/feed"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/task"
)

const controllerIndex = `weir controller

/metrics       Prometheus metrics
/healthz       200 as long as the process runs
/readyz        200 once the cluster is known, proxies are fed and versions converted, 503 before and while ending
/config        the routing model of all Gateways, private keys redacted
/status        generation, findings, conditions of every resource, what proxies run, and how the controller's tasks stand
/debug/pprof/  profiles of the process
`

// controllerStatus is the JSON form of the controller's /status.
type controllerStatus struct {
	control.Status
	// Leader is the name of the replica that leads, as far as this one knows.
	Leader string `json:"leader,omitempty"`
	// Proxies are the connected proxies and what they run, by Gateway.
	Proxies map[model.Owner][]feed.Proxy `json:"proxies"`
	// Versions of the configurations that they are to run, by Gateway.
	Versions map[model.Owner]string `json:"versions"`
	// Sidecars are those connected to this replica; nil without --mesh.
	Sidecars *sidecarStatus `json:"sidecars,omitempty"`
	// Traffic is how the reading of proxies stands; nil if Traffic Metrics are not served.
	Traffic *trafficStatus `json:"traffic,omitempty"`
	// Tasks are what this replica does, or would do if it led.
	Tasks []task.Status `json:"tasks"`
}

// adminHandler answers as asked lasts.
func (c *controlPlane) adminHandler(asked context.Context) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /{$}", func(w http.ResponseWriter, _ *http.Request) { process.Text(w, http.StatusOK, controllerIndex) })
	mux.Handle("GET /metrics", c.metrics.handler())
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { process.Text(w, http.StatusOK, "ok\n") })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		ok, why := c.group.Ready()
		switch {
		case asked.Err() != nil:
			process.Text(w, http.StatusServiceUnavailable, "ending\n")
		case !ok:
			process.Text(w, http.StatusServiceUnavailable, why+"\n")
		default:
			process.Text(w, http.StatusOK, cmp.Or(why, "ready")+"\n")
		}
	})
	mux.Handle("GET /config", c.access.Restrict(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		if r := c.latest.Load(); r != nil && r.Config != nil {
			process.Reply(w, r.Config)
			return
		}
		process.Text(w, http.StatusServiceUnavailable, "no configuration yet\n")
	})))
	mux.Handle("GET /status", c.access.Restrict(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { process.Reply(w, c.status()) })))
	mux.Handle("GET /debug/pprof/", c.access.Restrict(process.Profiles()))
	return mux
}

func (c *controlPlane) status() controllerStatus {
	out := controllerStatus{
		Status: c.latest.Load().Status(), Leader: value(&c.leads), Proxies: map[model.Owner][]feed.Proxy{}, Versions: map[model.Owner]string{}, Sidecars: c.sidecars.status(), Traffic: c.trafficStatus(), Tasks: c.group.Status(),
	}
	if statuses := c.leader.statuses.Load(); statuses != nil {
		out.Statuses = *statuses
	}
	if accounts := c.accounts.Load(); accounts != nil {
		for _, g := range *accounts {
			out.Proxies[g] = replica.Newest(c.feeds.Running(g), c.board.Others(g))
			out.Versions[g] = c.feeds.Version(g)
		}
	}
	return out
}

func value(p *atomic.Pointer[string]) string {
	if s := p.Load(); s != nil {
		return *s
	}
	return ""
}
