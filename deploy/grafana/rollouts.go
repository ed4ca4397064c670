package main

// rollouts are releases, as the leader of the controller carries them out.
func rollouts() board {
	const (
		of        = `rollout=~"$rollout"`
		by        = "rollout"
		metric    = "weir_controller_rollout_"
		releasing = " and on (rollout) " + metric + "phase == 2"
	)
	most := func(name string) string { return aggregate("max", by, series(metric+name, of)) }
	passed := func(transition string) query {
		return query{expr: sum("", "increase("+series(metric+"transitions_total", `transition="`+transition+`"`)+"[$__range])"), legend: transition}
	}
	return board{
		name: "rollouts", title: "Weir / Rollouts", help: "Releases in a cluster: which are under way, which share the new version is to get and which it got, how long steps last, and how releases end.",
		variables: []variable{{name: "rollout", label: "Rollout", help: "namespace/name.", query: `label_values(weir_controller_rollout_phase, rollout)`, all: true}},
		rows: []row{
			{title: "Now", panels: []panel{
				{kind: number, title: "Rollouts", unit: count, width: 5, help: "All that the leader carries out, whichever is chosen above.", queries: []query{{expr: sum("", "weir_controller_rollouts")}}},
				{kind: number, title: "Under way", unit: count, width: 5, help: "Rollouts whose phase is Progressing.", queries: []query{{expr: "sum(" + most("phase") + " == bool 2)"}}},
				{kind: number, title: "Oldest step", unit: seconds, width: 5, help: "How long the step that began first has lasted. A step may wait for somebody.", queries: []query{{expr: aggregate("max", "", series(metric+"step_age_seconds", of))}}},
				{kind: number, title: "Without series of their own", unit: count, width: 5, help: "Rollouts beyond the first thousand, which the panels below do not show.", queries: []query{{expr: sum("", "weir_controller_rollouts_unshown")}}},
				{kind: number, title: "Stands back", unit: count, width: 4, help: "1 if the leader carries nothing out, and why (docs/rollouts.md). The other panels are empty then.", queries: []query{{expr: aggregate("max", "reason", "weir_controller_rollouts_away"), legend: "{{reason}}"}}},
			}},
			{title: "Releases", panels: []panel{
				{kind: table, title: "Under way", width: 24, sort: "Step age", down: true, help: "The step of each release, which share routes give the new version, and which it got when that was measured last. Steps of matches have no share.",
					queries: []query{
						{expr: most("step") + releasing, legend: "Step", unit: count},
						{expr: most("steps") + releasing, legend: "Steps", unit: count},
						{expr: most("step_age_seconds"), legend: "Step age", unit: seconds},
						{expr: most("set_ratio"), legend: "Set", unit: ratio},
						{expr: most("measured_ratio"), legend: "Measured", unit: ratio},
					}},
			}},
			{title: "Shares", panels: []panel{
				{kind: graph, title: "Set and measured", unit: ratio, width: 12, help: "Which part of the requests routes give the new version, and which it got when the step was measured last.",
					queries: []query{{expr: most("set_ratio"), legend: "{{rollout}} set"}, {expr: most("measured_ratio"), legend: "{{rollout}} measured"}}},
				{kind: graph, title: "Steps", unit: count, width: 12, help: "The step that each release is at, from 1; 0 without a release.",
					queries: []query{{expr: most("step"), legend: "{{rollout}}"}}},
				{kind: graph, title: "Age of steps", unit: seconds, width: 12, help: "How long the step of each release has lasted.",
					queries: []query{{expr: most("step_age_seconds"), legend: "{{rollout}}"}}},
				{kind: graph, title: "Phases", unit: count, width: 12, help: "0 Initial, 1 Healthy, 2 Progressing, 3 Terminating, 4 Disabling, 5 Disabled.",
					queries: []query{{expr: most("phase"), legend: "{{rollout}}"}}},
			}},
			{title: "How releases end", panels: []panel{
				{kind: number, title: "In the time shown", unit: count, width: 24, help: "Releases of all Rollouts that began, and how they ended.",
					queries: []query{passed("begun"), passed("completed"), passed("rolled_back"), passed("aborted"), passed("stopped")}},
				{kind: graph, title: "Transitions", unit: perSecondOf, width: 12, help: "What happened to releases of all Rollouts (docs/metrics.md).",
					queries: []query{{expr: sum("transition", rate(metric+"transitions_total")), legend: "{{transition}}"}}},
				{kind: graph, title: "Errors", unit: perSecondOf, width: 12, help: "Attempts to carry a Rollout on, or to measure a share, that failed and are made again. The log of the leader says why.",
					queries: []query{{expr: sum("of", rate(metric+"errors_total")), legend: "{{of}}"}}},
			}},
		},
	}
}
