package control

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

const (
	codeModel       = "WR801"
	codeUnpublished = "WR489"
)

var codes = []resource.Code{
	{ID: codeUnpublished, Severity: resource.Error, Title: "configuration cannot be sent",
		Meaning: "The configuration made from a Gateway and its routes is valid, but cannot be sent to the Gateway's proxies, for example because a part of it is too large. " +
			"The proxies keep the last good configuration, Programmed says so, and other Gateways are not affected.",
		Fix: "Correct what the message names. A part holds one listener, route, service or certificate, and may take up to 12 MiB."},
	{ID: codeModel, Severity: resource.Error, Title: "configuration not valid",
		Meaning: "Weir made an invalid configuration from a Gateway and its routes. This is a bug in Weir, whatever the objects say. " +
			"The Gateway's proxies keep the last good configuration, Programmed says so, and other Gateways are not affected.",
		Fix: "Please report it with the message and the objects it names. Until then, undo the last change to them."},
	{ID: finding.CodePort, Severity: resource.Error, Title: "port cannot be bound",
		Meaning: "A listener's port is taken by another process, or needs a privilege that Weir does not have. The listener is not served, its Programmed condition is False (PortUnavailable), " +
			"and /readyz says degraded. All other listeners are served, and changes apply. The port is tried again every second.",
		Fix: "Free the port, use another, or give Weir the privilege (CAP_NET_BIND_SERVICE, or --port-offset)."},
	{ID: finding.CodeDropped, Severity: resource.Warning, Title: "copies dropped",
		Meaning: "Copies of requests to a mirror's service exceed a limit and are dropped; the requests themselves are served normally. The finding appears with the first such drop " +
			"and clears after a minute without one. It names the flag and a value with which that copy would have been sent.",
		Fix: "Set the flag that the message names, mirror a smaller fraction, or make the mirror's service faster."},
	{ID: finding.CodeFailing, Severity: resource.Warning, Title: "mirror paused",
		Meaning: "The mirror's service failed several times in a row, so Weir sends it nothing for 1 s to 30 s before it tries again. Copies are dropped meanwhile; requests are served normally. " +
			"The finding clears after a minute without such drops.",
		Fix: "Repair the service, or remove the mirror."},
	{ID: finding.CodeLeftOut, Severity: resource.Error, Title: "part not served",
		Meaning: "A part of the configuration passed all checks but cannot be served: a bug in Weir, or a configuration made by a newer release. " +
			"It is left out or answers 500, as the message says; everything else is served.",
		Fix: "Please report it with the message and the object it names. Until then, change the field that the message names."},
}

// maxReason bounds the text of a condition or finding about an invalid configuration, in bytes.
const maxReason = 1 << 10

// leaveOut removes the Gateways that make a result's configuration invalid. It returns false, and changes nothing, if
// the rest is not valid either.
func (r *Result) leaveOut(set *resource.Set) bool {
	invalid := map[model.Owner]error{}
	for owner, part := range r.Config.ByOwner() {
		if err := part.Validate(); err != nil {
			invalid[owner] = err
		}
	}
	rest := r.Config.Without(func(owner model.Owner) bool { return invalid[owner] != nil })
	if rest.Validate() != nil {
		return false
	}
	r.Config, r.Invalid = rest, invalid
	for _, owner := range slices.Sorted(maps.Keys(invalid)) {
		r.Findings = append(r.Findings, resource.Finding{
			Code: codeModel, Severity: resource.Error, Ref: owner.Ref(),
			Message: "its configuration is not valid, and its proxies keep the last good one: " + brief(invalid[owner]),
			Fix:     "please report this; until then, undo the last change to the named objects",
		})
	}
	resource.SortFindings(r.Findings)
	verdicts := map[model.Owner]resource.Verdict{}
	for owner, err := range invalid {
		verdicts[owner] = notProgrammed("the configuration made from it is not valid (please report this), and its proxies keep the last good one: " + brief(err))
	}
	r.Statuses = judge(set, r.Statuses, verdicts)
	return true
}

// brief is an error in one line that is not too long.
func brief(err error) string {
	text := strings.ReplaceAll(err.Error(), "\n", "; ")
	if len(text) > maxReason {
		text = strings.ToValidUTF8(text[:maxReason], "") + "..."
	}
	return text
}
