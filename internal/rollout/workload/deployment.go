package workload

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apiequality "k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/rand"

	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout"
)

// A Deployment is held by being paused: its controller makes no ReplicaSet then, and replaces no pods. It would still keep
// the pods of all ReplicaSets together at replicas plus maxSurge, but not if the strategy is Recreate
// (pkg/controller/deployment/sync.go of Kubernetes, scale). The ReplicaSet of the new version is made here, and so is
// what both have: the Deployment's controller takes them over at the end as if it had made them.
var deployment = Kind{
	Group: "apps", Name: "Deployment", Plural: "deployments", Label: appsv1.DefaultDeploymentUniqueLabelKey, Sets: true, Beside: true,
	lay: func(map[string]any, *Record) fields {
		return fields{"paused": true, "strategy.type": string(appsv1.RecreateDeploymentStrategyType), "strategy.rollingUpdate": nil}
	},
	admit: func(spec map[string]any) (fields, string) {
		if spec["paused"] == true { // by its user, or since an earlier admission
			return nil, ""
		}
		return fields{"paused": true}, "unpaused"
	},
	admitted: func(string) fields { return fields{"paused": nil} },
	vital:    []string{"paused"},
	defaults: fields{"paused": nil, "strategy.type": string(appsv1.RollingUpdateDeploymentStrategyType), "strategy.rollingUpdate": nil},
	observe:  observeDeployment,
	tend:     tendDeployment,
}

// Extra pods that have metadata of their own are of a further ReplicaSet, whose template has it. To the Deployment's controller
// that is one of an older revision: it lets it be while the Deployment is held, and takes its pods away at the end, as those of
// the ReplicaSet of the Deployment's own template come.

// ExtraAnnotation of a ReplicaSet says that it is such a further one, and of which revision.
const ExtraAnnotation = "rollouts.weirmesh.github.io/extra-pods-of"

// numberAnnotation of a ReplicaSet has the number of its revision. A Deployment's controller writes it to the one of the
// Deployment's template.
const numberAnnotation = "deployment.kubernetes.io/revision"

// ExtraOf is the revision whose extra pods a ReplicaSet has; empty if it is a revision by itself, as one becomes whose template
// the Deployment gets later.
func ExtraOf(rs metav1.Object) string {
	if a := rs.GetAnnotations(); a[numberAnnotation] == "" {
		return a[ExtraAnnotation]
	}
	return ""
}

// DesiredAnnotation of a ReplicaSet is how many pods its Deployment was to have when that told it to have some.
const DesiredAnnotation = "deployment.kubernetes.io/desired-replicas"

// sets are a Deployment's ReplicaSets by what they are to a release.
type sets struct {
	d *appsv1.Deployment
	// update is the one of the Deployment's template, stable the one that served before; nil if there is none. They may be
	// one.
	update, stable *appsv1.ReplicaSet
	// name is the revision of the Deployment's template, whether or not it has a ReplicaSet.
	name string
	// template is that of extra pods which have metadata of their own; nil if there are none such. Then extra is their
	// ReplicaSet, nil if there is none, and extraName its name.
	template  *corev1.PodTemplateSpec
	extra     *appsv1.ReplicaSet
	extraName string
}

// canary is the ReplicaSet of the pods that steps count; nil if there is none.
func (all *sets) canary() *appsv1.ReplicaSet {
	if all.template != nil {
		return all.extra
	}
	return all.update
}

func setsOf(s *Seen) (*sets, error) {
	all := &sets{d: &appsv1.Deployment{}}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(s.Object, all.d); err != nil {
		return nil, fmt.Errorf("the Deployment cannot be read: %w", err)
	}
	for _, rs := range s.Sets {
		if sameTemplate(&rs.Spec.Template, &all.d.Spec.Template) && (all.update == nil || older(rs, all.update)) {
			all.update = rs
		}
	}
	if all.update != nil {
		all.name = hashLabel(all.update)
	} else {
		var err error
		if all.name, err = nameOf(&all.d.Spec.Template, ""); err != nil {
			return nil, err
		}
	}
	if err := all.setExtra(s); err != nil {
		return nil, err
	}
	remembered := s.remembered()
	for _, rs := range s.Sets {
		if remembered != "" && hashLabel(rs) == remembered && pods(rs) > 0 {
			all.stable = rs
			return all, nil
		}
	}
	for _, rs := range s.Sets {
		if rs == all.update || pods(rs) == 0 || ExtraOf(rs) != "" {
			continue
		}
		if all.stable == nil || rs.Status.AvailableReplicas > all.stable.Status.AvailableReplicas ||
			rs.Status.AvailableReplicas == all.stable.Status.AvailableReplicas && older(rs, all.stable) {
			all.stable = rs
		}
	}
	if all.stable == nil && remembered != "" {
		// The Deployment's controller has replaced all pods before it was held: the stable version gets some again.
		for _, rs := range s.Sets {
			if rs != all.update && hashLabel(rs) == remembered {
				all.stable = rs
			}
		}
	}
	return all, nil
}

// nameOf is the revision of a template without a ReplicaSet; that of extra pods differs from any revision by whose they are.
func nameOf(template *corev1.PodTemplateSpec, extraOf string) (string, error) {
	text, err := json.Marshal(template)
	if err != nil {
		return "", err
	}
	sum := sha256.Sum256(append(text, extraOf...))
	return rand.SafeEncodeString(fmt.Sprint(binary.BigEndian.Uint32(sum[:]))), nil
}

// setExtra finds the ReplicaSet of extra pods with metadata of their own. One that has pods stays the one when somebody changes
// that metadata midway: the next release has it.
func (all *sets) setExtra(s *Seen) (err error) {
	if s.Metadata == nil || s.Style != rollouts.ExtraPods {
		return nil
	}
	template := all.d.Spec.Template.DeepCopy()
	template.Labels, template.Annotations = merged(template.Labels, s.Metadata.Labels), merged(template.Annotations, s.Metadata.Annotations)
	if sameTemplate(template, &all.d.Spec.Template) {
		return nil
	}
	all.template = template
	for _, rs := range s.Sets {
		if rs != all.update && ExtraOf(rs) == all.name && (pods(rs) > 0 || sameTemplate(&rs.Spec.Template, template)) && (all.extra == nil || pods(rs) > pods(all.extra)) {
			all.extra = rs
		}
	}
	if all.extra != nil {
		all.extraName = hashLabel(all.extra)
		return nil
	}
	all.extraName, err = nameOf(template, all.name)
	return err
}

// merged is a with what b has beside or otherwise; nil if that is nothing.
func merged(a, b map[string]string) map[string]string {
	if len(b) == 0 {
		return a
	}
	out := make(map[string]string, len(a)+len(b))
	maps.Copy(out, a)
	maps.Copy(out, b)
	return out
}

func observeDeployment(s *Seen, w *rollout.Workload) error {
	all, err := setsOf(s)
	if err != nil {
		return err
	}
	d := all.d
	w.Replicas = replicas(d.Spec.Replicas)
	w.Settled = d.Status.ObservedGeneration >= d.Generation
	w.Update, w.UpdateHash, w.Stable = all.name, all.name, all.name
	var others int32
	for _, rs := range s.Sets {
		w.Settled = w.Settled && rs.Status.ObservedGeneration >= rs.Generation
		if rs != all.update {
			others += max(pods(rs), rs.Status.Replicas)
		}
	}
	if u := all.update; u != nil {
		w.Updated, w.Ready = u.Status.Replicas, u.Status.AvailableReplicas
		w.Complete = others == 0 && pods(u) == w.Replicas && w.Ready == w.Replicas && w.Updated == w.Replicas
	}
	switch {
	case all.stable != nil:
		w.Stable, w.StableReady = hashLabel(all.stable), all.stable.Status.AvailableReplicas
	case s.remembered() != "": // it has no pods any more
		w.Stable = s.remembered()
	case all.update != nil:
		w.StableReady = w.Ready
	}
	if w.StableHash = w.Stable; all.template != nil && w.Update != w.Stable {
		w.UpdateHash, w.Updated, w.Ready = all.extraName, 0, 0
		for _, rs := range []*appsv1.ReplicaSet{all.update, all.extra} {
			if rs == nil {
				continue
			}
			w.Updated += rs.Status.Replicas
			if rs == all.extra || s.Record == nil || s.Record.Was == nil { // the others are none that steps count
				w.Ready += rs.Status.AvailableReplicas
			}
		}
	}
	return nil
}

// tendDeployment makes the ReplicaSet of the new version and says how many pods each has, as far as the release has told.
func tendDeployment(s *Seen, w *rollout.Workload) ([]Change, error) {
	rec := s.Record
	all, err := setsOf(s)
	if err != nil {
		return nil, err
	}
	want := min(rec.Pods, w.Replicas)
	switch {
	case all.update == nil && rec.Pods > 0: // first, so that the revision keeps its name to the end
		return []Change{{Create: newSet(s, all, nil, 0)}}, nil
	case all.update == nil || all.stable == nil || all.update == all.stable:
		return nil, nil
	case all.canary() == nil && want > 0: // with its pods: the Deployment's controller may delete one of an older revision without
		return []Change{{Create: newSet(s, all, s.Metadata, want)}}, nil
	}
	list := make([]set, len(s.Sets))
	var most int32
	for i, rs := range s.Sets {
		list[i] = set{pods: pods(rs), ready: rs.Status.AvailableReplicas}
		switch rs {
		case all.canary():
			list[i].goal = want
		case all.stable:
			if list[i].goal = w.Replicas; s.Style == rollouts.Partition {
				list[i].goal -= want
			}
		}
		most += list[i].goal
	}
	surge, unavailable := bounds(rec, w.Replicas)
	least := w.Replicas
	if surge == 0 {
		least -= unavailable
	}
	var changes []Change
	for i, n := range next(list, most+surge, least) {
		// Where both versions are to have all pods, or the newer one has more than it should, the Deployment's controller would
		// take the older one's away as soon as the newer one is complete, which it finds by an annotation (IsSaturated in
		// pkg/controller/deployment/util).
		_, known := s.Sets[i].Annotations[DesiredAnnotation]
		if n != list[i].pods || known && s.Sets[i] == all.update && (s.Style != rollouts.Partition || list[i].pods > list[i].goal) {
			changes = append(changes, Change{Scale: &Scale{Set: s.Sets[i], Replicas: n}})
		}
	}
	// While one ReplicaSet alone has pods, and fewer than the Deployment should have, the Deployment's controller gives it the rest,
	// although the Deployment is paused (scale in pkg/controller/deployment/sync.go). So another one gets its pods first.
	slices.SortStableFunc(changes, func(a, b Change) int { return cmp.Compare(a.Scale.fewer(), b.Scale.fewer()) })
	return changes, nil
}

// fewer is by how many pods it makes a ReplicaSet smaller.
func (s *Scale) fewer() int32 { return pods(s.Set) - s.Replicas }

// bounds are maxSurge and maxUnavailable as the user has them, 25 % by default (apps/v1, RollingUpdateDeployment).
func bounds(rec *Record, all int32) (surge, unavailable int32) {
	scaled := func(name string, up bool) int32 {
		v := intstr.FromString("25%")
		switch t := asMap(rec.Was["strategy.rollingUpdate"])[name].(type) {
		case int64:
			v = intstr.FromInt32(int32(t))
		case string:
			v = intstr.FromString(t)
		}
		n, err := intstr.GetScaledValueFromIntOrPercent(&v, int(all), up)
		if err != nil || n < 0 {
			return 1
		}
		return int32(min(n, int(all)))
	}
	surge, unavailable = scaled("maxSurge", true), scaled("maxUnavailable", false)
	if surge == 0 && unavailable == 0 {
		unavailable = 1
	}
	return surge, unavailable
}

func asMap(v any) map[string]any {
	m, _ := v.(map[string]any)
	return m
}

// newSet is the ReplicaSet of a Deployment's template, as the Deployment's own controller would make it, with so many pods; with
// metadata it is that of extra pods which have it.
func newSet(s *Seen, all *sets, m *rollouts.PodTemplateMetadata, pods int32) map[string]any {
	d, name := all.d, all.name
	labels, annotations := maps.Clone(d.Spec.Template.Labels), maps.Clone(d.Annotations)
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	template := runtime.DeepCopyJSON(asMap(specOf(s.Object)["template"]))
	meta := asMap(template["metadata"])
	if meta == nil {
		meta = map[string]any{}
		template["metadata"] = meta
	}
	if m != nil {
		name, labels = all.extraName, all.template.Labels
		annotations = merged(annotations, map[string]string{ExtraAnnotation: all.name})
		delete(annotations, numberAnnotation)
		if len(all.template.Annotations) > 0 {
			meta["annotations"] = texts(all.template.Annotations)
		}
	}
	labels = merged(labels, map[string]string{appsv1.DefaultDeploymentUniqueLabelKey: name})
	meta["labels"] = texts(labels)
	selector := runtime.DeepCopyJSON(asMap(specOf(s.Object)["selector"]))
	match := asMap(selector["matchLabels"])
	if match == nil {
		match = map[string]any{}
		selector["matchLabels"] = match
	}
	match[appsv1.DefaultDeploymentUniqueLabelKey] = name
	owner := metav1.NewControllerRef(d, appsv1.SchemeGroupVersion.WithKind("Deployment"))
	return map[string]any{
		"apiVersion": "apps/v1", "kind": "ReplicaSet",
		"metadata": map[string]any{
			"name": d.Name + "-" + name, "namespace": d.Namespace, "labels": texts(labels), "annotations": texts(annotations),
			"ownerReferences": []any{map[string]any{
				"apiVersion": owner.APIVersion, "kind": owner.Kind, "name": owner.Name, "uid": string(owner.UID), "controller": true, "blockOwnerDeletion": true,
			}},
		},
		"spec": map[string]any{
			"replicas": int64(pods), "minReadySeconds": int64(d.Spec.MinReadySeconds), "selector": selector, "template": template,
		},
	}
}

func texts(m map[string]string) map[string]any {
	out := make(map[string]any, len(m))
	for k, v := range m {
		out[k] = v
	}
	return out
}

func hashLabel(rs *appsv1.ReplicaSet) string {
	return rs.Labels[appsv1.DefaultDeploymentUniqueLabelKey]
}

func pods(rs *appsv1.ReplicaSet) int32 { return replicas(rs.Spec.Replicas) }

func replicas(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func older(a, b *appsv1.ReplicaSet) bool {
	if !a.CreationTimestamp.Equal(&b.CreationTimestamp) {
		return a.CreationTimestamp.Before(&b.CreationTimestamp)
	}
	return a.Name < b.Name
}

// sameTemplate compares as a Deployment's controller does, without the label that ReplicaSets add.
func sameTemplate(a, b *corev1.PodTemplateSpec) bool {
	x, y := *a, *b
	x.Labels, y.Labels = maps.Clone(a.Labels), maps.Clone(b.Labels)
	delete(x.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	delete(y.Labels, appsv1.DefaultDeploymentUniqueLabelKey)
	return apiequality.Semantic.DeepEqual(&x, &y)
}
