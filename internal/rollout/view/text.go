package view

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

// icons and colours of states.
var states = map[State]struct{ icon, colour string }{
	Initial: {"◌", screen.Yellow}, Healthy: {"✔", screen.Green}, Progressing: {"◌", screen.Yellow}, Paused: {"‖", screen.Yellow}, Waiting: {"‖", screen.Yellow},
	Aborting: {"✖", screen.Red}, Aborted: {"✖", screen.Red}, Disabled: {"–", screen.Yellow},
	Terminating: {"✖", screen.Yellow},
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
	if r.Routing == nil {
		return "-"
	}
	text := strconv.Itoa(r.Routing.Percent) + " %"
	if len(r.Routing.Matches) > 0 {
		text = "matches"
	}
	if r.Pending {
		text += " next"
	}
	return text
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
	if c := r.Canary; c != nil && (c.Revision != r.Stable.Revision || c.Name != r.Stable.Name) {
		return r.Stable.label() + " to " + c.label()
	}
	return r.Stable.label()
}

// label is the number of a revision, or its name if that is all there is.
func (v *Version) label() string {
	switch {
	case v.Revision == 0 && v.Name == "":
		return "-"
	case v.Revision == 0:
		return visible.Text(v.Name)
	}
	return strconv.Itoa(v.Revision)
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
		rows = append(rows, []string{visible.Text(r.Namespace), visible.Text(r.Name), r.State.word(), r.step(), r.set(), r.measured(), r.revision()})
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
	who := r.Who
	if r.Pending {
		who = "When the pods are there: " + who
	}
	field("Requests:", who)
	if c := r.Status.Condition(rollouts.ConditionAsWritten); c != nil {
		field("Lacks:", c.Message)
	}
	if r.Routing != nil {
		field("Set:", r.set())
		if m := r.Measured; m != nil && m.Stable+m.Canary > 0 {
			field("Measured:", fmt.Sprintf("%s, %d of %d requests in the last %.0f s", r.measured(), m.Canary, m.Stable+m.Canary, m.Seconds))
		} else if m != nil || r.Workload == nil {
			field("Measured:", "no requests yet")
		}
	}
	if w := r.Workload; w != nil {
		field("Workload:", fmt.Sprintf("%s %s, %s", w.Kind, w.Name, screen.Count(int(w.Replicas), "pod")))
		for _, c := range r.Status.Conditions {
			field("Condition:", strings.TrimSpace(fmt.Sprintf("%s %s %s", c.Type, c.Status, c.Reason))+", for "+age(now.Sub(c.LastTransitionTime.Time)))
		}
	}
	for _, u := range r.Unread {
		field("Unread:", u)
	}
	b.WriteString("\n" + s.In(states[r.State].colour, states[r.State].icon) + " " + visible.Text(r.Name) + "\n")
	versions := r.versions()
	for i := range versions {
		versions[i].branch(&b, s, now, r.Workload != nil, i == len(versions)-1)
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

// ranked is a version and what it is to the release.
type ranked struct {
	role string
	Version
}

// versions are those of a Rollout, the newest first.
func (r *Rollout) versions() (all []ranked) {
	if r.Canary != nil {
		role := "canary"
		if r.Canary.Revision == r.Stable.Revision && r.Canary.Name == r.Stable.Name {
			role = "released"
		}
		all = append(all, ranked{role, *r.Canary})
	}
	for _, v := range r.Others {
		all = append(all, ranked{"other", v})
	}
	return append(all, ranked{"stable", r.Stable})
}

// branch draws a version with its pods, or without a cluster its endpoints.
func (v *ranked) branch(b *strings.Builder, s screen.Screen, now time.Time, cluster, last bool) {
	branch, stem := "├─", "│ "
	if last {
		branch, stem = "└─", "  "
	}
	text, leaves := fmt.Sprintf("%s revision %s (%s)", branch, v.label(), v.role), v.Endpoints
	if v.Service != "" {
		text += ", Service " + visible.Text(v.Service)
	}
	if !cluster {
		text += ": " + screen.Count(len(v.Endpoints), "endpoint")
	} else {
		text += fmt.Sprintf(": %d of %s ready", v.ready(), screen.Count(len(v.Pods), "pod"))
		if len(v.Images) > 0 {
			text += ", " + visible.Text(strings.Join(v.Images, ", "))
		}
		leaves = v.leaves(now)
	}
	b.WriteString(s.Fit(text) + "\n")
	for i, leaf := range leaves {
		if i == shown && len(leaves) > shown+1 {
			fmt.Fprintf(b, "%s └─ and %d more\n", stem, len(leaves)-shown)
			break
		}
		twig := "├─"
		if i == len(leaves)-1 {
			twig = "└─"
		}
		b.WriteString(s.Fit(fmt.Sprintf("%s %s %s", stem, twig, visible.Text(leaf))) + "\n")
	}
}

// leaves are the pods in lines. Those that are not ready come first, as not all may be shown.
func (v *Version) leaves(now time.Time) (all []string) {
	pods := slices.Clone(v.Pods)
	slices.SortStableFunc(pods, func(a, b Pod) int {
		switch {
		case a.Ready == b.Ready:
			return strings.Compare(a.Name, b.Name)
		case b.Ready:
			return -1
		}
		return 1
	})
	for _, p := range pods {
		mark := "✔"
		if !p.Ready {
			mark = "◌"
		}
		text := fmt.Sprintf("%s %s  %s, %s old", mark, p.Name, p.Status, age(now.Sub(p.Created)))
		if p.Restarts > 0 {
			text += ", " + screen.Count(int(p.Restarts), "restart")
		}
		all = append(all, text)
	}
	return all
}

// Table lists revisions.
func (l Revisions) Table(s screen.Screen, now time.Time) string {
	rows := [][]string{{"REVISION", "NAME", "ROLE", "PODS", "CREATED", "IMAGES", "CAUSE"}}
	for _, r := range l {
		role, cause := r.Role, r.Cause
		if role == "" {
			role = "-"
		}
		if cause == "" {
			cause = "-"
		}
		rows = append(rows, []string{strconv.Itoa(r.Revision), visible.Text(r.Name), role, strconv.Itoa(r.Pods), age(now.Sub(r.Created)) + " ago", visible.Text(strings.Join(r.Images, ", ")), visible.Text(cause)})
	}
	return s.Table(rows, "CAUSE", "NAME", "CREATED")
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
