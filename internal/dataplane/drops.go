package dataplane

import (
	"fmt"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/telemetry"
)

// dropped returns the findings about dropped copies, with the flag that would have helped. Their text does not change
// while copies are dropped: a finding with another text would be reported again.
func (m *mirrorFlags) dropped(drops []proxy.MirrorDrop) (out []finding.Finding) {
	for _, d := range drops {
		f := finding.Finding{Code: finding.CodeDropped, Severity: finding.Warning, Ref: d.Ref}
		why := ""
		bound, enough := flags.Size(d.Bound), flags.Size(d.Enough)
		switch d.Cause {
		case proxy.DropInFlight:
			why = fmt.Sprintf("more than %d would be in flight at once (dropped_in_flight)", d.Bound)
			f.Fix = fmt.Sprintf("set --mirror-max-in-flight %d, mirror a smaller fraction, or make the service answer faster", d.Enough)
		case proxy.DropBytes:
			why = fmt.Sprintf("more than %s would wait to be sent (dropped_bytes)", &bound)
			f.Fix = fmt.Sprintf("set --mirror-max-bytes %s, or mirror a smaller fraction", &enough)
		case proxy.DropBuffered:
			why = fmt.Sprintf("the buffers for all peers would exceed %s, of which copies get half at most (dropped_bytes)", &bound)
			f.Fix = fmt.Sprintf("set --max-buffered %s if the process may have as much memory, or mirror a smaller fraction", &enough)
		case proxy.DropBody:
			why = fmt.Sprintf("one fell more than %s behind its request (dropped_body)", &bound)
			f.Fix = fmt.Sprintf("set --mirror-max-copy-bytes %s", &enough)
			if whole := 2 * enough; whole > m.bytes {
				f.Fix += fmt.Sprintf(" and --mirror-max-bytes %s", &whole)
			}
		case proxy.DropFailing:
			f.Code = finding.CodeFailing
			f.Message = fmt.Sprintf("mirror %s failed %d times in a row (%s) and is paused for a while", d.Service, d.Bound, d.Failure)
			f.Fix = failingFix(d.Failure, m)
		default:
			continue
		}
		if f.Message == "" {
			f.Message = fmt.Sprintf("copies to %s are dropped: %s", d.Service, why)
		}
		out = append(out, f)
	}
	return out
}

func failingFix(o telemetry.MirrorOutcome, m *mirrorFlags) string {
	switch o {
	case telemetry.MirrorFailedConnect:
		return "make sure that its endpoints accept connections (and speak TLS, if a policy says so), or remove the mirror"
	case telemetry.MirrorFailedTimeout:
		return fmt.Sprintf("see why it does not answer in time, set --mirror-timeout to more than %s, or remove the mirror", m.timeout)
	case telemetry.MirrorFailedResponse:
		return "make sure that it speaks the protocol of its port's appProtocol, or remove the mirror"
	}
	return "see why it ends connections without an answer, or remove the mirror"
}
