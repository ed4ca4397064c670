package control

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const codeModel = "WR801"

var codes = []resource.Code{
	{ID: codeModel, Severity: resource.Error, Title: "configuration not valid",
		Meaning: "What the translation made of a Gateway and its routes is not valid, which nothing that can be written may bring about: a fault of Weir. " +
			"The Gateway's proxies keep the last good configuration, Programmed says so, and other Gateways are not affected.",
		Fix: "Please report it with the message and the objects it names. Until then, undo the last change to these."},
	{ID: finding.CodePort, Severity: resource.Error, Title: "port cannot be bound",
		Meaning: "A listener's port is taken by another process, or needs a privilege that Weir does not have. The listener is not served, its Programmed condition is False (PortUnavailable), " +
			"and /readyz says degraded. All other listeners are served, and changes apply. The port is tried again every second.",
		Fix: "Free the port, use another, or give Weir the privilege (CAP_NET_BIND_SERVICE, or --port-offset)."},
	{ID: finding.CodeDropped, Severity: resource.Warning, Title: "copies dropped",
		Meaning: "Copies of requests to a mirror's service are dropped, since they exceed a bound; requests themselves are served as ever. The finding comes with the first copy that is dropped for a bound, " +
			"and goes when none was for a minute. It names the flag and a value by which that copy would have been sent.",
		Fix: "Set the flag that it names, mirror a smaller fraction, or make the service that copies go to faster."},
	{ID: finding.CodeFailing, Severity: resource.Warning, Title: "mirror left alone",
		Meaning: "The service that copies go to failed so many times in a row that it is left alone for a while, from 1 s to 30 s, before it is tried again. Copies are dropped meanwhile; requests are served as ever. " +
			"The finding goes when no copy was dropped for that for a minute.",
		Fix: "Mend the service, or remove the mirror."},
	{ID: finding.CodeLeftOut, Severity: resource.Error, Title: "part not served",
		Meaning: "A part of the configuration cannot be served, although nothing was found wrong with what is written: a fault of Weir, or what a newer release made. " +
			"It is left out, or answers 500 in the stead of what cannot be done, as the message says; everything else is served.",
		Fix: "Please report it with the message and the object it names. Until then, change the field that it names."},
}

// maxReason bounds what a condition or finding says of a configuration that is not valid, in bytes.
const maxReason = 1 << 10

// leaveOut takes from a result whose configuration is not valid the Gateways that make it so. It fails, and does nothing, if
// the rest is not valid either.
func (r *Result) leaveOut() bool {
	invalid := map[model.GatewayKey]error{}
	for gateway, part := range r.Config.Split() {
		if err := part.Validate(); err != nil {
			invalid[gateway] = err
		}
	}
	rest := r.Config.Without(func(gateway model.GatewayKey) bool { return invalid[gateway] != nil })
	if rest.Validate() != nil {
		return false
	}
	r.Config, r.Invalid = rest, invalid
	for _, gateway := range slices.Sorted(maps.Keys(invalid)) {
		r.Findings = append(r.Findings, resource.Finding{
			Code: codeModel, Severity: resource.Error, Ref: gateway.Ref(),
			Message: "its configuration is not valid, and its proxies keep the last good one: " + brief(invalid[gateway]),
			Fix:     "please report this; until then, undo the last change to the objects that are named",
		})
	}
	resource.SortFindings(r.Findings)
	r.Statuses = slices.Clone(r.Statuses)
	for i := range r.Statuses {
		s := &r.Statuses[i]
		if err := invalid[model.GatewayOf(s.Ref.Namespace, s.Ref.Name)]; s.Ref.Kind == "Gateway" && err != nil {
			*s = notProgrammed(*s, brief(err))
		}
	}
	return true
}

// notProgrammed is the status of a Gateway whose configuration is not valid.
func notProgrammed(s resource.Status, reason string) resource.Status {
	change := func(conditions []resource.Condition, message string) []resource.Condition {
		out := slices.Clone(conditions)
		for i := range out {
			if c := &out[i]; c.Type == "Programmed" && c.Status == "True" {
				c.Status, c.Reason, c.Message = "False", "Invalid", message
			}
		}
		return out
	}
	s.Conditions = change(s.Conditions, "the configuration made of it is not valid (please report this), and its proxies keep the last good one: "+reason)
	s.Listeners = slices.Clone(s.Listeners)
	for i := range s.Listeners {
		s.Listeners[i].Conditions = change(s.Listeners[i].Conditions, "the Gateway is not programmed; see its condition")
	}
	return s
}

// brief is an error in one line that is not too long.
func brief(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "..."
	}
	return text
}
