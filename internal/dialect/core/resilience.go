package core

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/weirmesh/weir/internal/model"
)

// Annotations of a Service; they are for all of its ports. No kind of Gateway API has these settings yet.
const (
	annotations = "weirmesh.github.io/"

	maxRequests         = annotations + "max-requests"
	maxEndpointRequests = annotations + "max-requests-per-endpoint"
	maxConnecting       = annotations + "max-connecting-per-endpoint"
	retryBudget         = annotations + "retry-budget"

	ejectFailures = annotations + "eject-after-failures"
	ejectErrors   = annotations + "eject-after-gateway-errors"
	maxEjected    = annotations + "max-ejected"

	proxyProtocol = annotations + "proxy-protocol"

	healthCheck          = annotations + "health-check"
	healthCheckPath      = healthCheck + "-path"
	healthCheckHost      = healthCheck + "-host"
	healthCheckService   = healthCheck + "-grpc-service"
	healthCheckStatuses  = healthCheck + "-statuses"
	healthCheckInterval  = healthCheck + "-interval"
	healthCheckTimeout   = healthCheck + "-timeout"
	healthCheckHealthy   = healthCheck + "-healthy-threshold"
	healthCheckUnhealthy = healthCheck + "-unhealthy-threshold"
)

// Bounds and defaults of health checks.
const (
	checkInterval, checkTimeout = 5 * time.Second, time.Second
	leastInterval, mostInterval = 100 * time.Millisecond, time.Hour
	leastTimeout, mostTimeout   = 10 * time.Millisecond, time.Minute
	checkHealthy, checkSick     = 2, 3
)

// resilience is the settings in a Service's annotations.
type resilience struct {
	limits   *model.Limits
	ejection *model.Ejection
	check    *model.HealthCheck
	// header is the version of the PROXY header; 0 means no header.
	header int
}

// settings are those of a Service, and those of the stable one for the Service of a release that has none of its own.
func (t *translator) settings(s *corev1.Service) resilience {
	stable := t.set.StableOf(s)
	if stable == nil || slices.ContainsFunc(slices.Collect(maps.Keys(s.Annotations)), func(name string) bool { return strings.HasPrefix(name, annotations) }) {
		return t.annotated(s)
	}
	apart := translator{Options: t.Options, set: t.set} // what is wrong with them is told of the stable Service
	return apart.annotated(stable)
}

// annotated reads the annotations of a Service and reports invalid ones.
func (t *translator) annotated(s *corev1.Service) resilience {
	r := reader{t: t, service: s, left: map[string]bool{}}
	for name := range s.Annotations {
		if strings.HasPrefix(name, annotations) {
			r.left[name] = true
		}
	}
	if len(r.left) == 0 {
		return resilience{}
	}
	var out resilience
	limits := model.Limits{
		Requests: r.count(maxRequests), EndpointRequests: r.count(maxEndpointRequests), Connecting: r.count(maxConnecting),
		RetryPercent: r.percent(retryBudget),
	}
	if limits != (model.Limits{}) {
		out.limits = &limits
	}
	ejection := model.Ejection{Failures: r.countOrOff(ejectFailures, -1), GatewayErrors: r.countOrOff(ejectErrors, 0), MaxPercent: r.percent(maxEjected)}
	if ejection != (model.Ejection{}) {
		out.ejection = &ejection
	}
	out.check = r.check()
	out.header = r.proxyProtocol()
	for _, name := range slices.Sorted(maps.Keys(r.left)) {
		if strings.HasPrefix(name, healthCheck+"-") && out.check == nil && slices.Contains(known, name) {
			t.report(codeAnnotation, r.ref(name), "there is no "+healthCheck+" to go with, so it has no effect",
				"add "+healthCheck+" with http, grpc or tcp")
			continue
		}
		if slices.Contains(known, name) {
			t.report(codeAnnotation, r.ref(name), "it does not apply to health checks of the type "+string(out.check.Type)+", so it has no effect",
				"remove it, or change "+healthCheck)
			continue
		}
		t.report(codeUnknownAnnotation, r.ref(name), "unknown annotation", "use one of "+strings.Join(known, ", "))
	}
	return out
}

var known = []string{
	maxRequests, maxEndpointRequests, maxConnecting, retryBudget, ejectFailures, ejectErrors, maxEjected, healthCheck, healthCheckPath, healthCheckHost,
	healthCheckService, healthCheckStatuses, healthCheckInterval, healthCheckTimeout, healthCheckHealthy, healthCheckUnhealthy, proxyProtocol,
}

// reader takes annotations off a Service one by one.
type reader struct {
	t       *translator
	service *corev1.Service
	left    map[string]bool // Weir's annotations that were not read yet
}

func (r *reader) ref(name string) model.Ref {
	return model.Ref{Kind: "Service", Namespace: r.service.Namespace, Name: r.service.Name, Field: "metadata.annotations[" + name + "]"}
}

// value returns an annotation's text; ok is false if there is none.
func (r *reader) value(name string) (text string, ok bool) {
	text, ok = r.service.Annotations[name]
	delete(r.left, name)
	return strings.TrimSpace(text), ok
}

// wrong reports an invalid value: the default stays.
func (r *reader) wrong(name, want string) {
	r.t.report(codeAnnotation, r.ref(name), fmt.Sprintf("%q is not %s, so the annotation is ignored", r.service.Annotations[name], want), "write "+want)
}

const mostCount = 1_000_000

// proxyProtocol is the version of the PROXY protocol that endpoints expect; 0 means none.
func (r *reader) proxyProtocol() int {
	text, ok := r.value(proxyProtocol)
	switch {
	case text == "v1":
		return 1
	case text == "v2":
		return 2
	case ok && text != "none":
		r.wrong(proxyProtocol, "v1, v2 or none")
	}
	return 0
}

func (r *reader) count(name string) int {
	text, ok := r.value(name)
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostCount {
		r.wrong(name, fmt.Sprintf("a whole number from 1 to %d", mostCount))
		return 0
	}
	return n
}

func (r *reader) countOrOff(name string, off int) int {
	text, ok := r.value(name)
	if !ok {
		return 0
	}
	if text == "off" {
		return off
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > mostCount {
		r.wrong(name, fmt.Sprintf("off or a whole number from 1 to %d", mostCount))
		return 0
	}
	return n
}

func (r *reader) percent(name string) *int {
	text, ok := r.value(name)
	if !ok {
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(text, "%"))
	if err != nil || n < 0 || n > 100 || strings.HasPrefix(text, "+") {
		r.wrong(name, "a percentage from 0% to 100%")
		return nil
	}
	return &n
}

func (r *reader) duration(name string, def, least, most time.Duration) model.Duration {
	text, ok := r.value(name)
	if !ok {
		return model.Duration(def)
	}
	d, err := time.ParseDuration(text)
	if err != nil || d < least || d > most {
		r.wrong(name, fmt.Sprintf("a duration from %v to %v, such as %v", least, most, def))
		return model.Duration(def)
	}
	return model.Duration(d)
}

func (r *reader) threshold(name string, def int) int {
	text, ok := r.value(name)
	if !ok {
		return def
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > 100 {
		r.wrong(name, "a whole number from 1 to 100")
		return def
	}
	return n
}

// check is the health check; nil means none.
func (r *reader) check() *model.HealthCheck {
	text, ok := r.value(healthCheck)
	if !ok || text == "off" {
		for name := range r.left {
			if text == "off" && strings.HasPrefix(name, healthCheck+"-") && slices.Contains(known, name) {
				delete(r.left, name) // switched off for a while
			}
		}
		return nil
	}
	h := &model.HealthCheck{Type: model.HealthCheckType(text)}
	switch h.Type {
	case model.CheckHTTP:
		h.Path = "/"
		if path, ok := r.value(healthCheckPath); ok {
			if model.ValidCheckPath(path) {
				h.Path = path
			} else {
				r.wrong(healthCheckPath, "a path that begins with /, without spaces and fragments")
			}
		}
		if host, ok := r.value(healthCheckHost); ok {
			if model.CheckHostname(host, true) == nil {
				h.Host = host
			} else {
				r.wrong(healthCheckHost, "a host name, optionally with a port")
			}
		}
		if text, ok := r.value(healthCheckStatuses); ok {
			var err error
			if h.Statuses, err = statuses(text); err != nil {
				r.wrong(healthCheckStatuses, "a list of status codes and ranges, such as 200-299,401")
			}
		}
	case model.CheckGRPC:
		h.Service, _ = r.value(healthCheckService)
	case model.CheckTCP:
	default:
		r.wrong(healthCheck, "http, grpc, tcp or off")
		for name := range r.left {
			if strings.HasPrefix(name, healthCheck+"-") && slices.Contains(known, name) {
				delete(r.left, name) // one finding is enough
			}
		}
		return nil
	}
	h.Interval = r.duration(healthCheckInterval, checkInterval, leastInterval, mostInterval)
	h.Timeout = r.duration(healthCheckTimeout, checkTimeout, leastTimeout, mostTimeout)
	h.Healthy = r.threshold(healthCheckHealthy, checkHealthy)
	h.Unhealthy = r.threshold(healthCheckUnhealthy, checkSick)
	return h
}

var errStatuses = errors.New("not a list of statuses")

// statuses reads "200-299,401".
func statuses(text string) ([]model.StatusRange, error) {
	var out []model.StatusRange
	for part := range strings.SplitSeq(text, ",") {
		low, high, isRange := strings.Cut(strings.TrimSpace(part), "-")
		from, err := strconv.Atoi(low)
		to := from
		if isRange && err == nil {
			to, err = strconv.Atoi(high)
		}
		if err != nil || from < 100 || to > 599 || from > to {
			return nil, errStatuses
		}
		out = append(out, model.StatusRange{From: from, To: to})
	}
	return out, nil
}
