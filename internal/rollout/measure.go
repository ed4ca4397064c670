package rollout

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
)

// Shared is how requests were shared out while a step was in force.
type Shared struct {
	// Stable and Canary are how many requests came to each Service, in a Window that began when the step was in force.
	Stable, Canary uint64
	Window         time.Duration
	// Unknown says why nothing can be said now; empty if the counts hold.
	Unknown string
}

const (
	// fewest is how many requests a share is judged by.
	fewest = 20
	// glance is how long a step with fewer is looked at, and stare how long one that cannot be measured.
	glance, stare = 10 * time.Second, time.Minute
	// measured is how often the proxies' counts are looked at, which change no faster.
	measured = 5 * time.Second
)

// disagree is in the message of a step that waits for its share.
const disagree = "of the requests go to the new version, not "

// measure waits until the new version gets the share of the requests that the step gives it. A step that few requests come
// to is not held up, nor is one that cannot be measured for a minute, but one with another share is. StepReady, written
// into the status, goes on all the same.
func (d *decision) measure(step *rollouts.Step) {
	rel, s := d.status.Release(), d.facts.Traffic.Shared
	want, weighs := ShareOf(step)
	if s == nil || !weighs {
		d.state(rollouts.StepPaused)
		return
	}
	if !d.kept(step) {
		return
	}
	n, total := rel.CurrentStepIndex, s.Stable+s.Canary
	in := d.facts.Now.Sub(rel.LastUpdateTime.Time)
	where := fmt.Sprintf("Step %d of %d", n, len(d.plan.Steps))
	share := 100 * float64(s.Canary) / float64(max(1, total))
	switch {
	case s.Unknown != "" && in >= stare:
		d.tell("ShareUnknown", true, fmt.Sprintf("Step %d: how requests are shared out is not known, and not waited for any longer: %s.", n, s.Unknown))
	case s.Unknown != "":
		d.say(fmt.Sprintf("%s: it is not known yet how requests are shared out: %s.", where, s.Unknown))
		d.wait(measured)
		return
	case total < fewest && s.Window < glance:
		d.say(where + ": requests are being counted.")
		d.wait(measured)
		return
	case total < fewest:
		d.tell("ShareUnknown", false, fmt.Sprintf("Step %d: %d requests came in %.0f s, too few to tell their share.", n, total, s.Window.Seconds()))
	case !agrees(s.Canary, total, float64(want)/100):
		if !strings.Contains(rel.Message, disagree) {
			d.tell("ShareDiffers", true, fmt.Sprintf("Step %d: the new version got %.1f %% of %d requests in %.0f s, and should get %d %%.", n, share, total, s.Window.Seconds(), want))
		}
		d.say(fmt.Sprintf("%s: about %.0f %% %s%d %%. It waits until they agree, or somebody approves the step.", where, share, disagree, want))
		d.wait(measured)
		return
	default:
		d.tell("ShareMeasured", false, fmt.Sprintf("Step %d: the new version got %.1f %% of %d requests in %.0f s.", n, share, total, s.Window.Seconds()))
	}
	d.state(rollouts.StepPaused)
}

// agrees reports whether a share of requests is what it should be, as far as their number can tell: within half a percent
// of all, and four standard deviations of requests that are shared out at random. Each proxy counts exactly, but each
// begins on its own, and requests that began before the step may end in it.
func agrees(part, total uint64, want float64) bool {
	n := float64(total)
	return math.Abs(float64(part)-want*n) <= 0.005*n+4*math.Sqrt(n*want*(1-want))
}
