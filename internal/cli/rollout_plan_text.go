package cli

import (
	"fmt"
	"io"
	"strings"

	"github.com/pmezard/go-difflib/difflib"
	"sigs.k8s.io/yaml"

	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

// planContext is how many lines a diff shows around those that differ.
const planContext = 3

// print shows the plans to people.
func (r *planReport) print(w io.Writer, on screen.Screen) error {
	var b strings.Builder
	for i, f := range r.Problems {
		if head := (checkReport{}).head(f); i == 0 || head != (checkReport{}).head(r.Problems[i-1]) {
			b.WriteString(on.Fold(head, 2) + "\n")
		}
		b.WriteString(on.Problem(f.Severity.String(), strings.TrimSpace(f.Code+"  "+f.Ref.Field), f.Message, f.Fix))
	}
	for i := range r.Rollouts {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		if err := r.Rollouts[i].print(&b, on); err != nil {
			return err
		}
	}
	return on.Print(w, b.String())
}

func (p *planned) print(b *strings.Builder, on screen.Screen) error {
	head := fmt.Sprintf("Rollout %s/%s: %s of %s, %s", p.Namespace, p.Name, map[bool]string{true: "canary", false: "blue-green"}[p.Strategy == "canary"], p.Workload, screen.Count(p.Of, "step"))
	if p.Disabled {
		head += "; it is disabled, so nothing of it happens"
	}
	b.WriteString(on.Fold(head, 2) + "\n")
	problems(b, on, p.Problems)
	told := map[string]bool{}
	for i := range p.Steps {
		b.WriteByte('\n')
		if err := p.Steps[i].print(b, on, p, told); err != nil {
			return err
		}
	}
	return nil
}

// print shows a step; told are the problems of objects, which are shown once.
func (s *plannedStep) print(b *strings.Builder, on screen.Screen, p *planned, told map[string]bool) error {
	b.WriteString(on.Fold(fmt.Sprintf("Step %d of %d. %s", s.Step, p.Of, s.Who), 2) + "\n")
	lasts := "Somebody has to approve it."
	if s.PauseSeconds != nil {
		lasts = fmt.Sprintf("It lasts %d s.", *s.PauseSeconds)
	}
	switch {
	case strings.HasSuffix(s.Replicas, "%"):
		lasts = fmt.Sprintf("The new version has %s of the pods. %s", s.Replicas, lasts)
	case s.Replicas != "":
		lasts = fmt.Sprintf("Pods of the new version: %s. %s", s.Replicas, lasts)
	}
	b.WriteString(on.Fold("  "+lasts, 0) + "\n")
	problems(b, on, s.Problems)
	for _, o := range s.Objects {
		var list []planProblem
		for _, each := range o.Problems {
			if each.object && told[each.Message] {
				continue
			}
			told[each.Message] = each.object
			list = append(list, each)
		}
		problems(b, on, list)
		if o.After != nil && !o.Changed {
			b.WriteString(on.Fold("  "+nameOf(o.Before)+" stays as it is written.", 2) + "\n")
		}
		if o.Changed {
			if err := unified(b, on, o.Before, o.After, nameOf(o.Before), s.Step); err != nil {
				return err
			}
		}
		for _, owned := range o.Owned {
			if err := unified(b, on, nil, owned, nameOf(owned), s.Step); err != nil {
				return err
			}
		}
	}
	return nil
}

func problems(b *strings.Builder, on screen.Screen, all []planProblem) {
	for _, p := range all {
		b.WriteString(on.Problem(p.Severity.String(), strings.TrimPrefix(p.Code+"  "+p.Field, "  "), p.Message, p.Fix))
	}
}

// unified writes how an object differs, as a unified diff of YAML; before is nil for a new one.
func unified(b *strings.Builder, on screen.Screen, before, after map[string]any, name string, step int) error {
	diff := difflib.UnifiedDiff{Context: planContext, FromFile: name + ", as written", ToFile: fmt.Sprintf("%s, step %d", name, step)}
	for _, side := range []struct {
		of map[string]any
		to *[]string
	}{{before, &diff.A}, {after, &diff.B}} {
		if side.of == nil {
			diff.FromFile = "/dev/null"
			continue
		}
		text, err := yaml.Marshal(side.of)
		if err != nil {
			return err
		}
		*side.to = strings.SplitAfter(strings.TrimSuffix(string(text), "\n"), "\n")
		(*side.to)[len(*side.to)-1] += "\n"
	}
	text, err := difflib.GetUnifiedDiffString(diff)
	if err != nil {
		return err
	}
	for line := range strings.Lines(text) {
		line = on.Fold(strings.TrimSuffix(line, "\n"), 4)
		switch {
		case strings.HasPrefix(line, "-"):
			line = coloured(on, screen.Red, line)
		case strings.HasPrefix(line, "+"):
			line = coloured(on, screen.Green, line)
		}
		b.WriteString(line + "\n")
	}
	return nil
}

// coloured colours each of the lines that one was folded into.
func coloured(on screen.Screen, colour, text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = on.In(colour, lines[i])
	}
	return strings.Join(lines, "\n")
}

// yaml writes the objects of the steps as a stream of documents. Comments say where a step begins and what it lacks.
func (r *planReport) yaml(w io.Writer) error {
	var b strings.Builder
	documents := 0
	comment := func(format string, args ...any) {
		b.WriteString("# " + visible.Text(fmt.Sprintf(format, args...)) + "\n")
	}
	bad := func(all []planProblem) {
		for _, p := range all {
			comment("%s: %s: %s; %s", p.Severity, p.Field, p.Message, p.Fix)
		}
	}
	for _, f := range r.Problems {
		comment("%s", f)
	}
	for _, p := range r.Rollouts {
		var before []map[string]any // owned in the step before
		for _, s := range p.Steps {
			if documents > 0 {
				b.WriteString("---\n")
			}
			comment("Rollout %s/%s, step %d of %d. %s", p.Namespace, p.Name, s.Step, p.Of, s.Who)
			bad(p.Problems)
			bad(s.Problems)
			var objects, owned []map[string]any
			for _, o := range s.Objects {
				bad(o.Problems)
				if o.After != nil {
					objects = append(objects, o.After)
				}
				objects, owned = append(objects, o.Owned...), append(owned, o.Owned...)
			}
			names := map[string]bool{}
			for _, o := range owned {
				names[nameOf(o)] = true
			}
			for _, o := range before {
				if !names[nameOf(o)] {
					comment("%s of the step before is no longer there: delete it", nameOf(o))
				}
			}
			before = owned
			for i, o := range objects {
				text, err := marshalYAML(o)
				if err != nil {
					return err
				}
				if i > 0 {
					b.WriteString("---\n")
				}
				b.Write(text)
				documents++
			}
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}
