package inject

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/pflag"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/weirmesh/weir/internal/probe"
	"github.com/weirmesh/weir/internal/redirect"
)

// Settings are what the sidecars of all pods have in common. Use NewSettings for the defaults of what flags set.
type Settings struct {
	// Image is that of the proxy. PullPolicy is when to pull it.
	Image      string
	PullPolicy corev1.PullPolicy
	// Controller is the address of the feed, HOST:PORT.
	Controller string
	// Audience is that of the token by which a sidecar says who it is.
	Audience string
	// TrustDomain is that of identities; empty is the default of the sidecar.
	TrustDomain string
	// Namespace is the controller's own, whose pods have no sidecars.
	Namespace string
	// LogLevel and LogFormat are the sidecar's; empty is its default.
	LogLevel, LogFormat string
	// Version is written to the pods, for people.
	Version string
	// Secret makes one for the paths of a pod's probes and hooks (probe.Key). With nil there is none: manifests that are
	// injected stay the same each time.
	Secret func() string
	// Requests and Limits are the resources of both containers; annotations of a pod override them.
	Requests, Limits Amounts
	// AccessLog is whether and how a sidecar logs requests; an annotation of a pod overrides it.
	AccessLog AccessLog
}

// NewSettings are Settings with the default resources. Both containers have requests and limits of CPU and memory, since a
// ResourceQuota may demand them. The limit of CPU is far above what a sidecar uses: it also bounds its threads.
func NewSettings() *Settings {
	return &Settings{
		PullPolicy: corev1.PullIfNotPresent,
		AccessLog:  AccessLogOff,
		Requests:   Amounts{corev1.ResourceCPU: resource.MustParse("10m"), corev1.ResourceMemory: resource.MustParse("20Mi")},
		Limits:     Amounts{corev1.ResourceCPU: resource.MustParse("2"), corev1.ResourceMemory: resource.MustParse("128Mi")},
	}
}

// Flags adds the settings that a command line has for all pods.
func (s *Settings) Flags(f *pflag.FlagSet) {
	f.Var(&s.Requests, "sidecar-requests", "`resources` that a sidecar requests; the annotation "+RequestsAnnotation+" of a pod overrides each")
	f.Var(&s.AccessLog, "sidecar-access-log", "`format` in which sidecars write a line for each request to their standard output: json, text, text-extended, or off; the annotation "+AccessLogAnnotation+" of a pod overrides it")
	f.Var(&s.Limits, "sidecar-limits", "`resources` that a sidecar may use; none is no limit of one; the annotation "+LimitsAnnotation+" of a pod overrides each")
}

// AccessLog is the format of a sidecar's access log (--access-log-format), or AccessLogOff.
type AccessLog string

// AccessLogOff is no access log.
const AccessLogOff AccessLog = "off"

var accessLogs = []AccessLog{AccessLogOff, "json", "text", "text-extended"}

// String implements pflag.Value.
func (a *AccessLog) String() string { return string(*a) }

// Type implements pflag.Value.
func (a *AccessLog) Type() string { return "format" }

// Set implements pflag.Value.
func (a *AccessLog) Set(text string) error {
	if !slices.Contains(accessLogs, AccessLog(text)) {
		return fmt.Errorf("there is no format %q; write off, json, text or text-extended", shortened(text))
	}
	*a = AccessLog(text)
	return nil
}

// args are the sidecar's arguments.
func (a AccessLog) args() []string {
	if a == AccessLogOff || a == "" {
		return nil
	}
	return []string{"--access-log=stdout", "--access-log-format=" + string(a)}
}

// Validate says what is wrong with settings.
func (s *Settings) Validate() error {
	if s.Image == "" {
		return errors.New("the image of the proxy is missing")
	}
	if _, port, err := net.SplitHostPort(s.Controller); err != nil {
		return fmt.Errorf("the controller's address %q: want HOST:PORT", s.Controller)
	} else if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 {
		return fmt.Errorf("the controller's address %q: %q is no port", s.Controller, port)
	}
	return within(s.Requests, s.Limits)
}

// Amounts are quantities of resources, such as "cpu=10m,memory=20Mi". As a flag, what is set is added to what is there.
type Amounts corev1.ResourceList

// resources are those that an Amounts may have.
var resources = []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage}

// none as the amount of a resource takes the resource away.
const none = "none"

// String implements pflag.Value.
func (a *Amounts) String() string {
	var out []string
	for _, name := range resources {
		if q, ok := (*a)[name]; ok {
			out = append(out, string(name)+"="+q.String())
		}
	}
	return strings.Join(out, ",")
}

// Type implements pflag.Value.
func (a *Amounts) Type() string { return "resources" }

// Set implements pflag.Value.
func (a *Amounts) Set(text string) error {
	set, err := a.with(text)
	if err == nil {
		*a = set
	}
	return err
}

// maxAmounts bounds the text of an Amounts, in bytes.
const maxAmounts = 256

// with returns the amounts with those of a text in place of its own.
func (a *Amounts) with(text string) (Amounts, error) {
	if len(text) > maxAmounts {
		return nil, fmt.Errorf("it has more than %d bytes; shorten it", maxAmounts)
	}
	out := Amounts{}
	for name, q := range *a {
		out[name] = q
	}
	for part := range strings.SplitSeq(text, ",") {
		name, amount, ok := strings.Cut(strings.TrimSpace(part), "=")
		resourceName := corev1.ResourceName(name)
		if !ok || !slices.Contains(resources, resourceName) {
			return nil, fmt.Errorf("%q is no resource with an amount; write such as cpu=100m,memory=64Mi, of cpu, memory and ephemeral-storage", part)
		}
		if amount == none {
			delete(out, resourceName)
			continue
		}
		q, err := resource.ParseQuantity(amount)
		if err != nil || q.Sign() <= 0 {
			return nil, fmt.Errorf("%q is no amount of %s; write one above 0, such as %s, or %s", amount, name, example(resourceName), none)
		}
		out[resourceName] = q
	}
	return out, nil
}

func example(name corev1.ResourceName) string {
	if name == corev1.ResourceCPU {
		return "100m"
	}
	return "64Mi"
}

// within says that a request is above its limit, which the API server refuses.
func within(requests, limits Amounts) error {
	for _, name := range resources {
		request, limit := requests[name], limits[name]
		if _, limited := limits[name]; limited && request.Cmp(limit) > 0 {
			return fmt.Errorf("the request of %s, %s, is above its limit, %s: raise the limit or lower the request", name, request.String(), limit.String())
		}
	}
	return nil
}

// resources are the container's, with what annotations of the pod override.
func (s *Settings) resources(annotations map[string]string) (out corev1.ResourceRequirements, problem string) {
	requests, limits := s.Requests, s.Limits
	for _, of := range []struct {
		name string
		to   *Amounts
	}{{RequestsAnnotation, &requests}, {LimitsAnnotation, &limits}} {
		text, ok := annotations[of.name]
		if !ok {
			continue
		}
		set, err := of.to.with(text)
		if err != nil {
			return out, fmt.Sprintf("annotation %s %q: %v", of.name, shortened(text), err)
		}
		*of.to = set
	}
	if err := within(requests, limits); err != nil {
		return out, fmt.Sprintf("annotations %s and %s: %v", RequestsAnnotation, LimitsAnnotation, err)
	}
	return corev1.ResourceRequirements{Requests: list(requests), Limits: list(limits)}, ""
}

// secret is the one of the pod's probes: as it was, or a new one.
func (s *Settings) secret(before probe.Table) string {
	if len(before) > 0 || s.Secret == nil {
		return before.Secret()
	}
	return s.Secret()
}

func list(a Amounts) corev1.ResourceList {
	if len(a) == 0 {
		return nil
	}
	return corev1.ResourceList(a)
}

// plan is what of the pod's traffic is redirected. The sidecar's own ports of HTTP are left alone beside the user's.
func plan(annotations map[string]string) (redirect.Plan, string) {
	p, err := redirect.Parse(annotations, redirect.Default())
	if err != nil {
		return p, err.Error()
	}
	for _, own := range []struct {
		name string
		span redirect.Ports
	}{{redirect.InboundPorts, p.Inbound}, {redirect.OutboundPorts, p.Outbound}} {
		if own.span.Has(ProbePort) || own.span.Has(AdminPort) {
			return p, fmt.Sprintf("annotation %s%s %q: ports %d and %d are the sidecar's for probes and its admin endpoint; write others", redirect.Prefix, own.name, own.span, ProbePort, AdminPort)
		}
	}
	if len(p.SkipInbound) >= redirect.MaxListed {
		return p, fmt.Sprintf("annotation %s%s: the list has %d elements, and the sidecar's own ports make one more than %d; join them to ranges", redirect.Prefix, redirect.SkipInboundPorts, len(p.SkipInbound), redirect.MaxListed)
	}
	p.SkipInbound = append(p.SkipInbound, redirect.Ports{First: ProbePort, Last: AdminPort})
	slices.SortFunc(p.SkipInbound, func(a, b redirect.Ports) int {
		return cmp.Or(cmp.Compare(a.First, b.First), cmp.Compare(a.Last, b.Last))
	})
	p.SkipInbound = slices.Compact(p.SkipInbound)
	return p, ""
}

// shortened is a text that a message quotes.
func shortened(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}
