package workload

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// A custom kind is one that has the scale subresource and whose pods are replaced as those of a StatefulSet: a partition says
// how many of them keep an older revision, its own controller replaces the others, and its status names both revisions.
// Whether these are the last pods or any, nobody knows. Whoever runs Weir's controller names the kind: a Rollout alone does
// not have it touch objects of another.

// ChartValue is the value of Weir's chart that names custom kinds.
const ChartValue = "rollouts.workloads"

// Unlisted says that a Rollout names a kind that is neither released everywhere nor named.
func Unlisted(ref rollouts.Ref) string {
	kind := ref.GroupKind()
	return fmt.Sprintf("Weir's controller may not release objects of the kind %s: if their pods are replaced by a partition, as those of a StatefulSet are, add the kind to %s in the values of Weir's chart (group: %s, kind: %s, resource: its plural).", kind, ChartValue, kind.Group, kind.Kind)
}

// Named returns the fixed kinds with those that texts name (Custom).
func Named(texts []string) (Kinds, error) {
	all := Fixed()
	for _, text := range texts {
		k, err := Custom(text)
		if err != nil {
			return nil, err
		}
		if _, twice := all.For(rollouts.Ref{APIVersion: k.Group + "/v1", Kind: k.Name}); twice {
			return nil, fmt.Errorf("%q: %s of %s is named twice, or released without being named", text, k.Name, k.Group)
		}
		all = append(all, k)
	}
	return all, nil
}

// Custom returns the kind that a text names: KIND:RESOURCE.GROUP, and behind a further colon the label by which its pods tell
// their revision, if that is not controller-revision-hash.
func Custom(text string) (*Kind, error) {
	bad := func(what string, problems ...string) (*Kind, error) {
		return nil, fmt.Errorf("%q: %s: want KIND:RESOURCE.GROUP, such as GameStatefulSet:gamestatefulsets.apps.example.com, or KIND:RESOURCE.GROUP:LABEL", text, strings.Join(append([]string{what}, problems...), "; "))
	}
	kind, rest, _ := strings.Cut(text, ":")
	name, label, labels := strings.Cut(rest, ":")
	plural, group, _ := strings.Cut(name, ".")
	if problems := validation.IsDNS1035Label(strings.ToLower(kind)); len(problems) > 0 {
		return bad(fmt.Sprintf("the kind %q is none", kind), problems...)
	}
	if problems := validation.IsDNS1035Label(plural); len(problems) > 0 {
		return bad(fmt.Sprintf("the resource %q is none", plural), problems...)
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return bad(fmt.Sprintf("the definition %q cannot be", name), problems...)
	}
	if !rollouts.MayBeNamed(schema.GroupKind{Group: group, Kind: kind}) {
		return bad(fmt.Sprintf("the group %q is Kubernetes' own", group))
	}
	if problems := validation.IsQualifiedName(label); labels && len(problems) > 0 {
		return bad(fmt.Sprintf("the label %q is none", label), problems...)
	}
	return custom(group, kind, plural, cmp.Or(label, revisionLabel)), nil
}

// Guess returns how to look at a workload of a kind that is none of the fixed ones, for those who do not know which kinds are
// named: pods have the label whose value is one of the workload's revisions.
func Guess(ref rollouts.Ref, object map[string]any, pods []*corev1.Pod) *Kind {
	kind := ref.GroupKind()
	s := &Seen{Object: object}
	of := func(label string) bool {
		return slices.ContainsFunc(pods, func(p *corev1.Pod) bool {
			v := p.Labels[label]
			return v != "" && slices.ContainsFunc([]string{statusText(s, "updateRevision"), statusText(s, "currentRevision")}, func(r string) bool { return v == r || v == lastPart(r) })
		})
	}
	labels := []string{revisionLabel, templateLabel}
	if len(pods) > 0 {
		var others []string
		for l := range pods[0].Labels {
			others = append(others, l)
		}
		slices.Sort(others)
		labels = append(labels, others...)
	}
	label := revisionLabel
	if i := slices.IndexFunc(labels, of); i >= 0 {
		label = labels[i]
	}
	return custom(kind.Group, kind.Kind, "", label)
}

func custom(group, kind, plural, label string) *Kind {
	k := &Kind{
		Group: group, Name: kind, Plural: plural, Label: label, Pods: true, custom: true,
		lay: func(object map[string]any, r *Record) fields {
			return fields{partitionField: partition(specOf(object), r)}
		},
		admit:    admitCustom,
		admitted: admittedCustom,
		vital:    []string{partitionField},
		defaults: fields{partitionField: int64(0)},
	}
	k.observe, k.tend = k.observeCustom, k.tendCustom
	return k
}

// Definition is the name of the CustomResourceDefinition of a custom kind; empty for others.
func (k *Kind) Definition() string {
	if !k.custom {
		return ""
	}
	return k.Plural + "." + k.Group
}

// lackingPrefix begins a value of HeldLabel that names the field around the partition that a user does not have.
const lackingPrefix = "without-"

func admitCustom(spec map[string]any) (fields, string) {
	before := fieldOf(spec, partitionField)
	if before == int64(all) {
		return nil, "" // no pod is replaced
	}
	hold := fields{partitionField: int64(all)}
	for _, path := range []string{"updateStrategy", "updateStrategy.rollingUpdate"} {
		if fieldOf(spec, path) == nil {
			return hold, lackingPrefix + path
		}
	}
	return hold, sharedLabel(before)
}

func admittedCustom(label string) fields {
	path, lacking := strings.CutPrefix(label, lackingPrefix)
	if !lacking {
		return fields{partitionField: sharedValue(label)}
	}
	out := fields{partitionField: nil, "updateStrategy.rollingUpdate": nil}
	if path == "updateStrategy" {
		out[path] = nil
	}
	return out
}

// needed are fields of a custom kind's status.
var needed = []string{"observedGeneration", "updateRevision", "currentRevision"}

// Lacks says what a workload of a custom kind does not have that a release needs; empty if nothing. Its status is not judged
// while it has none, and its pods are those that are known.
func (k *Kind) Lacks(object map[string]any, pods []*corev1.Pod) string {
	if !k.custom {
		return ""
	}
	name, _ := metaOf(object)["name"].(string)
	called := k.Name + " " + name
	spec := specOf(object)
	if _, ok := spec["template"].(map[string]any); !ok {
		return fmt.Sprintf("%s has no spec.template, and so no versions of its pods that could be released: name another workload.", called)
	}
	if fieldOf(spec, typeField) == string(appsv1.OnDeleteStatefulSetStrategyType) {
		return fmt.Sprintf("%s has spec.%s OnDelete, so its own controller replaces no pods: write another type.", called, typeField)
	}
	status, _ := object["status"].(map[string]any)
	for _, field := range needed {
		v := status[field]
		if text, ok := v.(string); len(status) > 0 && (v == nil || ok && text == "") {
			return fmt.Sprintf("%s has no status.%s, by which Weir tells versions of its pods apart. Its own controller has to write it: use a version that does, or name another workload.", called, field)
		}
	}
	for _, p := range pods {
		if p.Labels[k.Label] == "" {
			return fmt.Sprintf("The pod %s of %s has no label %s, by which Services tell versions apart: write the label that has its revision in %s of Weir's chart.", p.Name, called, k.Label, ChartValue)
		}
	}
	return ""
}

// RevisionsOf says of which revision each pod is, as the Rollout's status names revisions: as its label says, or for a custom
// kind the one among known of which the label has the whole name, or the last part.
func (k *Kind) RevisionsOf(known ...string) func(*corev1.Pod) string {
	label := labelled(k.Label)
	if !k.custom {
		return label
	}
	return func(p *corev1.Pod) string {
		value, of := label(p), ""
		for _, r := range known {
			switch {
			case r == value:
				return value
			case lastPart(r) != value || of == r:
			case of != "": // of more than one
				return value
			default:
				of = r
			}
		}
		return cmp.Or(of, value)
	}
}

// known are the revisions of a workload that have names.
func (k *Kind) known(s *Seen) (all []string) {
	for _, r := range []string{statusText(s, "updateRevision"), statusText(s, "currentRevision"), s.remembered()} {
		if r != "" {
			all = append(all, r)
		}
	}
	return all
}

func (k *Kind) observeCustom(s *Seen, w *rollout.Workload) error {
	observed, found, _ := unstructured.NestedInt64(s.Object, "status", "observedGeneration")
	w.Settled = found && observed >= w.Generation
	w.Replicas = number(specOf(s.Object)["replicas"], 1)
	w.Update = statusText(s, "updateRevision")
	current := statusText(s, "currentRevision")
	if w.Update == "" || current == "" { // it has just been made
		w.Settled = false
		return nil
	}
	known := k.known(s)
	of := k.RevisionsOf(known...)
	w.Stable = stable(s, of, w.Update, current)
	count(s, w, of, current)
	// Labels have whole names, unless a pod says otherwise.
	if slices.ContainsFunc(s.Pods, func(p *corev1.Pod) bool { return p.Labels[k.Label] != of(p) }) {
		w.UpdateHash, w.StableHash = lastPart(w.Update), lastPart(w.Stable)
	}
	return nil
}

func (k *Kind) tendCustom(s *Seen, w *rollout.Workload) ([]Change, error) {
	if len(s.Pods) > int(w.Replicas) { // some are on their way out
		return nil, nil
	}
	return tendShared(s, w, k.RevisionsOf(k.known(s)...), statusText(s, "currentRevision"), last(s.Pods, min(s.Record.Pods, w.Replicas))), nil
}

// last are the last n pods by their numbers; none if one of them has no number. If their own controller goes by numbers, these
// are the pods that it makes anew with the new revision.
func last(pods []*corev1.Pod, n int32) []*corev1.Pod {
	numbers := map[*corev1.Pod]int{}
	for _, p := range pods {
		number, err := ordinal(p.Name)
		if err != nil {
			return nil
		}
		numbers[p] = number
	}
	sorted := slices.SortedFunc(slices.Values(pods), func(a, b *corev1.Pod) int { return cmp.Compare(numbers[a], numbers[b]) })
	return sorted[max(0, len(sorted)-int(n)):]
}
