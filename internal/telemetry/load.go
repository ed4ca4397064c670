package telemetry

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// Load is the current load of a proxy, its limits, and the number of refused requests and connections.
type Load struct {
	// InFlight are the exchanges, MaxInFlight how many there may be; 0 is no bound.
	InFlight, MaxInFlight int64
	// Connections are the clients', MaxConnections how many there may be; 0 is no bound.
	Connections, MaxConnections int64
	// RefusedRequests exceeded MaxInFlight, ShedRequests had waited too long for the proxy, RefusedConnections exceeded MaxConnections.
	RefusedRequests, ShedRequests, RefusedConnections uint64
	// SharedRequests exceeded their client's part of the requests in flight, SilencedRequests ended because their client
	// was silent and others needed the place.
	SharedRequests, SilencedRequests uint64
	// Clients are the addresses that have requests in flight.
	Clients int64
	// QueueDelay is how long a request of late had waited for the proxy, Strained that others may be waiting too long.
	QueueDelay time.Duration
	Strained   bool
}

// ServiceState is the current state of a service.
type ServiceState struct {
	// Service is "namespace/name:port".
	Service string `json:"service"`
	// Full means that no request can begin.
	Full bool `json:"full"`
	// Rejected are the requests that limits kept from it.
	Rejected []LimitCount `json:"rejected,omitempty"`
	// Endpoints are in the model's order.
	Endpoints []EndpointState `json:"endpoints"`
}

// LimitCount is how often a limit was reached.
type LimitCount struct {
	Limit string `json:"limit"`
	Count uint64 `json:"count"`
}

// EndpointState is the current state of an endpoint.
type EndpointState struct {
	Address string `json:"address"`
	// Healthy is false while the endpoint is ejected or fails its active check.
	Healthy bool `json:"healthy"`
	Ejected bool `json:"ejected"`
	// Failing means that it fails its active check; CheckError is the error of the last one.
	Failing    bool   `json:"failing"`
	CheckError string `json:"checkError,omitempty"`
	InFlight   int    `json:"inFlight"`
	// Failures are the failures that the passive check noted. Ejections are the ejections because of them.
	// EjectionsDenied are ejections that did not happen because too many endpoints were ejected.
	Failures        uint64 `json:"failures"`
	Ejections       uint64 `json:"ejections"`
	EjectionsDenied uint64 `json:"ejectionsDenied"`
	// ChecksPassed and ChecksFailed are active checks.
	ChecksPassed uint64 `json:"checksPassed"`
	ChecksFailed uint64 `json:"checksFailed"`
}

// The families of load and health.
var (
	descInFlight = desc("weir_requests_in_flight",
		"Requests in flight.")
	descInFlightMax = desc("weir_requests_in_flight_limit",
		"Maximum requests in flight; 0 is no limit.")
	descClients = desc("weir_clients_in_flight",
		"Client addresses with requests in flight.")
	descConnsNow = desc("weir_client_connections",
		"Open client connections of all listeners.")
	descConnsMax = desc("weir_client_connections_limit",
		"Maximum open client connections; 0 is no limit.")
	descRefused = desc("weir_refused_total",
		"Requests and connections that the proxy refused, by the limit that was reached.", "limit")
	descQueueDelay = desc("weir_queue_delay_seconds",
		"Time that the last sampled request waited for the proxy, about one in 32.")
	descStrained = desc("weir_overloaded",
		"1 while requests wait too long for the proxy.")

	descServiceFull = desc("weir_service_circuit_open",
		"1 while the service or all its endpoints are at their limits, so no request can begin.", "service")
	descServiceRejected = desc("weir_service_rejected_total",
		"Requests and retries that a limit of the service refused.", "service", "limit")

	descEndpointHealthy = desc("weir_endpoint_healthy",
		"1 unless the endpoint is ejected or fails its health check.", "service", "endpoint")
	descEndpointInFlight = desc("weir_endpoint_requests_in_flight",
		"Exchanges and connects in flight at the endpoint, over all services.", "service", "endpoint")
	descEndpointFailures = desc("weir_endpoint_failures_total",
		"Failures that passive health checks counted.", "service", "endpoint")
	descEndpointEjections = desc("weir_endpoint_ejections_total",
		"Ejections: carried out, or denied because too many endpoints were ejected.", "service", "endpoint", "result")
	descEndpointChecks = desc("weir_endpoint_health_checks_total",
		"Active health checks, by result.", "service", "endpoint", "result")
)

var loadDescs = []*prometheus.Desc{
	descInFlight, descInFlightMax, descClients, descConnsNow, descConnsMax, descRefused, descQueueDelay, descStrained,
	descServiceFull, descServiceRejected,
	descEndpointHealthy, descEndpointInFlight, descEndpointFailures, descEndpointEjections, descEndpointChecks,
}

// WatchLoad shows the proxy's load, and the services and endpoints of the current configuration. load and services are
// called at each scrape, services with each service's name once.
func (r *Registry) WatchLoad(load func() Load, services func(yield func(ServiceState) bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.load, r.services = load, services
}

func (r *Registry) collectLoad(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	load, services := r.load, r.services
	r.mu.Unlock()
	if load == nil {
		return
	}
	l := load()
	strained := 0.0
	if l.Strained {
		strained = 1
	}
	ch <- gauge(descInFlight, float64(l.InFlight))
	ch <- gauge(descInFlightMax, float64(l.MaxInFlight))
	ch <- gauge(descClients, float64(l.Clients))
	ch <- gauge(descConnsNow, float64(l.Connections))
	ch <- gauge(descConnsMax, float64(l.MaxConnections))
	ch <- counter(descRefused, l.RefusedRequests, "requests")
	ch <- counter(descRefused, l.ShedRequests, "queue_delay")
	ch <- counter(descRefused, l.SharedRequests, "client_share")
	ch <- counter(descRefused, l.SilencedRequests, "silent_client")
	ch <- counter(descRefused, l.RefusedConnections, "connections")
	ch <- gauge(descQueueDelay, l.QueueDelay.Seconds())
	ch <- gauge(descStrained, strained)
	left := r.options.MaxSeries
	for s := range services {
		if left -= 1 + len(s.Endpoints); left < 0 {
			break
		}
		collectService(ch, s)
	}
}

func collectService(ch chan<- prometheus.Metric, s ServiceState) {
	name := valid(s.Service)
	ch <- gauge(descServiceFull, boolean(s.Full), name)
	for _, l := range s.Rejected {
		ch <- counter(descServiceRejected, l.Count, name, l.Limit)
	}
	for _, e := range s.Endpoints {
		address := valid(e.Address)
		ch <- gauge(descEndpointHealthy, boolean(e.Healthy), name, address)
		ch <- gauge(descEndpointInFlight, float64(e.InFlight), name, address)
		ch <- counter(descEndpointFailures, e.Failures, name, address)
		ch <- counter(descEndpointEjections, e.Ejections, name, address, "ejected")
		ch <- counter(descEndpointEjections, e.EjectionsDenied, name, address, "denied")
		if e.ChecksPassed+e.ChecksFailed > 0 {
			ch <- counter(descEndpointChecks, e.ChecksPassed, name, address, "passed")
			ch <- counter(descEndpointChecks, e.ChecksFailed, name, address, "failed")
		}
	}
}
