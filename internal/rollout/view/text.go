package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

// icons and colours of states.
var states = map[State]struct{ icon, colour string }{
	Initial: {"◌", screen.Yellow}, Healthy: {"✔", screen.Green}, Progressing: {"◌", screen.Yellow}, Paused: {"‖", screen.Yellow}, Waiting: {"‖", screen.Yellow},
	Aborting: {"✖", screen.Red}, Aborted: {"✖", screen.Red}, Disabled: {"–", screen.Yellow},
}

// word is the state with its icon.
func (s State) word() string { return strings.TrimSpace(states[s].icon + " " + string(s)) }

// Line says in a line how a Rollout stands.
func (r *Rollout) Line() string { return visible.Text(string(r.State) + ": " + r.Message) }

func (r *Rollout) step() string {
	if r.Step == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", r.Step, r.Steps)
}

// set is the share that the canary should get: a percentage, or "matches".
func (r *Rollout) set() string {
	switch {
	case r.Routing == nil:
		return "-"
	case len(r.Routing.Matches) > 0:
		return "matches"
	}
	return strconv.Itoa(r.Routing.Percent) + " %"
}

// measured is the share that it got.
func (r *Rollout) measured() string {
	m := r.Measured
	if m == nil || m.Stable+m.Canary == 0 {
		return "-"
	}
	return strconv.FormatFloat(100*float64(m.Canary)/float64(m.Stable+m.Canary), 'f', 1, 64) + " %"
}

func (r *Rollout) revision() string {
	if r.Canary != nil && r.Canary.Revision != r.Stable.Revision {
		return fmt.Sprintf("%d to %d", r.Stable.Revision, r.Canary.Revision)
	}
	return strconv.Itoa(r.Stable.Revision)
}

// Short is how far a Rollout is, in a few words.
func (r *Rollout) Short() string {
	text := fmt.Sprintf("%s %s", r.Name, r.State.word())
	if r.Step > 0 {
		text += ", step " + r.step()
	}
	if r.Routing != nil {
		text += fmt.Sprintf(", set %s, measured %s", r.set(), r.measured())
	}
	return text
}

// Table lists Rollouts.
func (l List) Table(s screen.Screen) string {
	rows := [][]string{{"NAMESPACE", "NAME", "STATUS", "STEP", "SET", "MEASURED", "REVISION"}}
	for i := range l.Rollouts {
		r := &l.Rollouts[i]
		rows = append(rows, []string{r.Namespace, r.Name, r.State.word(), r.step(), r.set(), r.measured(), r.revision()})
	}
	return s.Table(rows, "REVISION", "MEASURED", "SET")
}

// shown bounds the endpoints and events of a Tree.
const shown = 8

// Tree shows a Rollout with its versions.
func (r *Rollout) Tree(s screen.Screen, now time.Time) string {
	var b strings.Builder
	field := func(name, value string) {
		if value != "" {
			b.WriteString(s.Fold(fmt.Sprintf("%-10s %s", name, visible.Text(value)), 11) + "\n")
		}
	}
	field("Rollout:", r.Namespace+"/"+r.Name)
	b.WriteString(fmt.Sprintf("%-10s ", "Status:") + s.In(states[r.State].colour, r.State.word()) + "\n")
	field("Message:", r.Message)
	strategy := r.Strategy
	if len(r.Objects) > 0 {
		strategy += ", by " + strings.Join(r.Objects, ", ")
	}
	field("Strategy:", strategy)
	if r.Step > 0 {
		step := r.step()
		if r.Until != nil {
			step += ", for " + age(r.Until.Sub(now)) + " more"
		}
		field("Step:", step)
	}
	field("Requests:", r.Who)
	if r.Routing != nil {
		field("Set:", r.set())
		if m := r.Measured; m != nil && m.Stable+m.Canary > 0 {
			field("Measured:", fmt.Sprintf("%s, %d of %d requests in the last %.0f s", r.measured(), m.Canary, m.Stable+m.Canary, m.Seconds))
		} else {
			field("Measured:", "no requests yet")
		}
	}
	b.WriteString("\n" + s.In(states[r.State].colour, states[r.State].icon) + " " + visible.Text(r.Name) + "\n")
	versions := []struct {
		role string
		v    Version
	}{{"stable", r.Stable}}
	if r.Canary != nil {
		canary := "canary"
		if r.Canary.Revision == r.Stable.Revision {
			canary = "released"
		}
		versions = slices.Insert(versions, 0, struct {
			role string
			v    Version
		}{canary, *r.Canary})
	}
	for i, v := range versions {
		branch, stem := "├─", "│ "
		if i == len(versions)-1 {
			branch, stem = "└─", "  "
		}
		b.WriteString(s.Fit(fmt.Sprintf("%s revision %d (%s), Service %s: %s", branch, v.v.Revision, v.role, visible.Text(v.v.Service), screen.Count(len(v.v.Endpoints), "endpoint"))) + "\n")
		for j, e := range v.v.Endpoints {
			if j == shown && len(v.v.Endpoints) > shown+1 {
				fmt.Fprintf(&b, "%s └─ and %d more\n", stem, len(v.v.Endpoints)-shown)
				break
			}
			twig := "├─"
			if j == len(v.v.Endpoints)-1 {
				twig = "└─"
			}
			b.WriteString(s.Fit(fmt.Sprintf("%s %s %s", stem, twig, visible.Text(e))) + "\n")
		}
	}
	if n := len(r.Events); n > 0 {
		b.WriteString("\nLast events:\n")
		for _, e := range r.Events[max(0, n-shown):] {
			mark := " "
			if e.Warning {
				mark = "!"
			}
			b.WriteString(s.Fold(fmt.Sprintf("%5s %s %s", age(now.Sub(e.Time)), mark, visible.Text(e.Message)), 3) + "\n")
		}
	}
	return b.String()
}

// History lists releases, the newest first.
func (r *Rollout) History(s screen.Screen, now time.Time) string {
	rows := [][]string{{"REVISION", "OUTCOME", "BEGUN", "TOOK", "ENDPOINTS"}}
	for _, p := range slices.Backward(r.Releases) {
		outcome, took := string(p.Outcome), "-"
		if p.Ended != nil {
			took = age(p.Ended.Sub(p.Begun))
		} else {
			outcome = "under way"
		}
		endpoints := strings.Join(p.Endpoints[:min(len(p.Endpoints), 3)], ", ")
		if n := len(p.Endpoints) - 3; n > 0 {
			endpoints += fmt.Sprintf(" and %d more", n)
		}
		rows = append(rows, []string{strconv.Itoa(p.Revision), outcome, age(now.Sub(p.Begun)) + " ago", took, endpoints})
	}
	return s.Table(rows, "ENDPOINTS", "TOOK")
}

// age is a time in its greatest unit: "42s", "3m", "5h", "2d".
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < 2*time.Minute:
		return strconv.Itoa(int(d/time.Second)) + "s"
	case d < 2*time.Hour:
		return strconv.Itoa(int(d/time.Minute)) + "m"
	case d < 48*time.Hour:
		return strconv.Itoa(int(d/time.Hour)) + "h"
	}
	return strconv.Itoa(int(d/(24*time.Hour))) + "d"
}
