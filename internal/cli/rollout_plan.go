package cli

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/spf13/cobra"

	api "github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/dialect/rollouts"
	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/resource"
	"github.com/weirmesh/weir/internal/rollout"
	"github.com/weirmesh/weir/internal/rollout/provider"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

func newRolloutPlan(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "plan PATH...",
		Short: "Show what each step of a Rollout makes of the objects that route requests",
		Long: `Plan lays every step of the Rollouts in files over the objects that they name, and
prints per step who is sent where, how the objects differ from what you wrote, as
unified diffs, which objects come beside them, and what cannot be expressed, with
a fix. Nothing is sent or changed, and no cluster is needed.

-o yaml prints the objects of the steps, to be applied; -o json everything as
data: steps, objects before and after, problems.

The exit code is 1 if a step cannot be carried out as it is written, an object is
missing, or a Rollout is not valid.`,
		Example: `  weir rollout plan shop/
  weir rollout plan --step 2 shop/
  weir rollout plan --rollout store/shop .
  weir rollout plan --step 2 -o yaml shop/ | kubectl diff -f -`,
		Args: atLeastOnePath,
	}
	output := outputFlag(cmd, "text", "yaml", "json")
	step := cmd.Flags().Int("step", 0, "show the step of this `number` alone, from 1; 0 is all")
	name := cmd.Flags().String("rollout", "", "show this Rollout alone, by `NAME` or NAMESPACE/NAME")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		set, err := resource.Load(s.dialects.Kinds(), args, s.in)
		if err != nil {
			return &exitError{exitUsage, err}
		}
		plans, err := planAll(set, *name)
		if err != nil {
			return err
		}
		if cmd.Flags().Changed("step") {
			if err := plans.only(*step); err != nil {
				return err
			}
		}
		switch output.Value {
		case "json":
			err = process.WriteJSON(s.out, plans)
		case "yaml":
			err = plans.yaml(s.out)
		default:
			err = plans.print(s.out, screen.Of(s.out))
		}
		if err == nil && plans.fail() {
			return &exitError{code: exitFailed}
		}
		return err
	}
	return cmd
}

// planReport is what "weir rollout plan" says; this is its JSON form.
type planReport struct {
	// Problems are those of files, and of Rollouts that cannot be read.
	Problems []resource.Finding `json:"problems,omitempty"`
	Rollouts []planned          `json:"rollouts"`
}

// planned is a Rollout with its steps.
type planned struct {
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Strategy is "canary" or "blueGreen"; Workload is "Deployment shop".
	Strategy string `json:"strategy"`
	Workload string `json:"workload"`
	Disabled bool   `json:"disabled,omitempty"`
	// Of is how many steps the Rollout has.
	Of       int           `json:"of"`
	Problems []planProblem `json:"problems,omitempty"`
	Steps    []plannedStep `json:"steps"`
}

type plannedStep struct {
	// Step counts from 1.
	Step int    `json:"step"`
	Who  string `json:"who"`
	// Replicas of the new version, as they are written.
	Replicas string `json:"replicas,omitempty"`
	// PauseSeconds is how long the step lasts; without it somebody has to approve.
	PauseSeconds *int32          `json:"pauseSeconds,omitempty"`
	Problems     []planProblem   `json:"problems,omitempty"`
	Objects      []plannedObject `json:"objects"`
}

// plannedObject is what a step makes of an object.
type plannedObject struct {
	Group string `json:"group,omitempty"`
	Kind  string `json:"kind"`
	Name  string `json:"name"`
	// Provider is empty if there is none for the kind.
	Provider string        `json:"provider,omitempty"`
	Problems []planProblem `json:"problems,omitempty"`
	Changed  bool          `json:"changed"`
	// Before is the object as its user wrote it, After what it is in the step. Both are left out if it is missing.
	Before map[string]any `json:"before,omitempty"`
	After  map[string]any `json:"after,omitempty"`
	// Owned are objects that exist beside it in the step.
	Owned []map[string]any `json:"owned,omitempty"`
}

// planProblem is a finding inside of a Rollout.
type planProblem struct {
	Code     string           `json:"code,omitempty"`
	Severity finding.Severity `json:"severity"`
	Field    string           `json:"field"`
	Message  string           `json:"message"`
	Fix      string           `json:"fix,omitempty"`
	// object means that each step of the object has it.
	object bool
}

// planAll plans the Rollouts of a set, or the one of a name.
func planAll(set *resource.Set, name string) (*planReport, error) {
	all := &planReport{Rollouts: []planned{}}
	meant := func(namespace, rollout string) bool {
		return name == "" || name == rollout || name == namespace+"/"+rollout
	}
	invalid, there := false, []string{}
	for _, f := range set.Findings {
		if f.Severity != finding.Error {
			continue
		}
		switch {
		case f.Ref.Kind == "Rollout" && meant(f.Ref.Namespace, f.Ref.Name) && !hasRollout(set, f.Ref.Namespace, f.Ref.Name):
			all.Problems, invalid = append(all.Problems, f), true
		case f.Ref.Kind == "":
			all.Problems = append(all.Problems, f)
		}
	}
	for _, r := range rollouts.List.In(set) {
		there = append(there, r.Namespace+"/"+r.Name)
		if meant(r.Namespace, r.Name) {
			all.Rollouts = append(all.Rollouts, planOne(set, r))
		}
	}
	switch {
	case name == "" || len(all.Rollouts) == 1 || len(all.Rollouts) == 0 && invalid:
	case len(all.Rollouts) > 1:
		return nil, flags.Errorf("--rollout %s: several namespaces have one of that name; write NAMESPACE/NAME", name)
	case len(there) == 0:
		return nil, flags.Errorf("--rollout %s: the files have no Rollout that is valid", name)
	default:
		return nil, &listed{flags.Errorf("--rollout %s: the files have no Rollout of that name; there is", name), there}
	}
	if len(all.Rollouts) == 0 && len(all.Problems) == 0 {
		return nil, flags.Errorf("the files have no Rollout (%s)", api.Group)
	}
	return all, nil
}

func hasRollout(set *resource.Set, namespace, name string) bool {
	for _, r := range rollouts.List.In(set) {
		if r.Namespace == namespace && r.Name == name {
			return true
		}
	}
	return false
}

func planOne(set *resource.Set, r *api.Rollout) planned {
	plan, field := r.Spec.Strategy.Plan(), r.Spec.Strategy.Field()
	out := planned{
		Namespace: r.Namespace, Name: r.Name, Strategy: strings.TrimPrefix(field, "spec.strategy."), Workload: r.Spec.WorkloadRef.Kind + " " + r.Spec.WorkloadRef.Name,
		Disabled: r.Spec.Disabled, Of: len(plan.Steps),
	}
	for _, stage := range provider.All().Plan(r, rollouts.Written(set, r.Namespace)) {
		s := &plan.Steps[stage.Step]
		step := plannedStep{Step: stage.Step + 1, Who: stage.Who, PauseSeconds: s.Pause.Duration, Objects: []plannedObject{}}
		if s.Replicas != nil {
			step.Replicas = s.Replicas.String()
		}
		for _, part := range stage.Parts {
			step.Objects = append(step.Objects, planObject(set, r.Namespace, fmt.Sprintf("%s.steps[%d]", field, stage.Step), part))
		}
		out.Steps = append(out.Steps, step)
	}
	about := rollouts.Steps(set, rollouts.Version(set, r), r)
	for _, f := range set.Findings {
		if f.Ref.Kind == "Rollout" && f.Ref.Namespace == r.Namespace && f.Ref.Name == r.Name {
			about = append(about, f)
		}
	}
	for _, f := range about {
		p, to := planProblem{Code: f.Code, Severity: f.Severity, Field: f.Ref.Field, Message: f.Message, Fix: f.Fix}, &out.Problems
		for i := range out.Steps {
			if at := fmt.Sprintf("%s.steps[%d]", field, i); p.Field == at || strings.HasPrefix(p.Field, at+".") {
				to = &out.Steps[i].Problems
			}
		}
		*to = append(*to, p)
	}
	return out
}

// planObject is what a step makes of one of its targets.
func planObject(set *resource.Set, namespace, field string, part rollout.Part) plannedObject {
	t := part.Target
	out := plannedObject{Group: t.Group, Kind: t.Kind, Name: t.Name, Provider: part.Provider, Before: part.Before, After: part.Laid.Object, Owned: part.Laid.Owned}
	out.Changed = part.Laid.Object != nil && !reflect.DeepEqual(part.Before, part.Laid.Object)
	switch {
	case part.Provider == "":
		out.After = nil
		out.Problems = append(out.Problems, planProblem{Severity: finding.Error, Field: t.Field, object: true,
			Message: fmt.Sprintf("%s (%s) is no kind that steps can be laid over", t.Kind, strings.TrimPrefix(t.Group+"/"+t.Version, "/")), Fix: "name an object of a kind that docs/rollouts.md lists"})
	case part.Before == nil:
		why, fix := set.Missing(resource.Key{Group: t.Group, Kind: t.Kind, Namespace: namespace, Name: t.Name})
		out.Problems = append(out.Problems, planProblem{Severity: finding.Error, Field: t.Field, object: true,
			Message: fmt.Sprintf("%s %s/%s %s", t.Kind, namespace, t.Name, why), Fix: fix})
	}
	for _, told := range part.Laid.Told {
		p := planProblem{Severity: finding.Info, Field: told.At(t, field), Message: told.Message, Fix: told.Fix, object: told.Object}
		if told.Short {
			p.Severity = finding.Error
		}
		out.Problems = append(out.Problems, p)
	}
	return out
}

// only leaves a single step of each Rollout.
func (r *planReport) only(step int) error {
	for i := range r.Rollouts {
		p := &r.Rollouts[i]
		if step < 1 || step > p.Of {
			return flags.Errorf("--step %d: Rollout %s/%s has the steps 1 to %d", step, p.Namespace, p.Name, p.Of)
		}
		p.Steps = p.Steps[step-1 : step]
	}
	return nil
}

// fail reports whether something shown cannot be as it is written.
func (r *planReport) fail() bool {
	bad := func(all []planProblem) bool {
		for _, p := range all {
			if p.Severity == finding.Error {
				return true
			}
		}
		return false
	}
	for _, p := range r.Rollouts {
		if bad(p.Problems) {
			return true
		}
		for _, s := range p.Steps {
			if bad(s.Problems) {
				return true
			}
			for _, o := range s.Objects {
				if bad(o.Problems) {
					return true
				}
			}
		}
	}
	return len(r.Problems) > 0
}

// nameOf is "HTTPRoute default/shop".
func nameOf(u map[string]any) string {
	meta, _ := u["metadata"].(map[string]any)
	return visible.Text(fmt.Sprintf("%v %v/%v", u["kind"], meta["namespace"], meta["name"]))
}
