package inspect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/weirmesh/weir/internal/dialect/tlsconfig"
	"github.com/weirmesh/weir/internal/inject"
	"github.com/weirmesh/weir/internal/kube/access"
	"github.com/weirmesh/weir/internal/kube/infra"
	"github.com/weirmesh/weir/internal/kube/replica"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Sidecars is what there is of the injection of sidecars.
type Sidecars struct {
	// Missing are the webhook configurations that should be there, as "Kind name".
	Missing []string
	// Namespaces are those that ask for sidecars, by their label, that of a pod or a TLSConfig, sorted by name.
	Namespaces []*SidecarNamespace
	// Connected are those that are connected to the controller, by pod, "namespace/name", if ConnectedSeen.
	Connected     map[string]replica.Sidecar
	ConnectedSeen bool
	// TLSConfigs say which pods these select.
	TLSConfigs *tlsconfig.Index
	// Whole says that what is in the way of further pods was read, too: webhooks, trust, quotas and ranges.
	Whole bool
}

// SidecarNamespace is a namespace whose pods are to have sidecars.
type SidecarNamespace struct {
	Name string
	// Label is its label that asks, Level what PodSecurity enforces; both are empty if it has none.
	Label, Level string
	// MeshField is by which of its fields it is in another Mesh, too; both are empty if it is not.
	MeshField, Mesh string
	// Selected means that its TLSConfigs ask. Unasked are the webhook configurations by which nobody is asked about its pods for the sake of its TLSConfigs, as "Kind
	// name".
	Selected bool
	Unasked  []string
	Quotas   []corev1.ResourceQuota
	Ranges   []corev1.LimitRange
	// Trust is the labels of its ConfigMap weir-ca; nil if there is none.
	Trust map[string]string
	// Pods are its pods that run, or are to.
	Pods []corev1.Pod
}

// sidecars reads it, if the controller makes any.
func (r *reader) sidecars(ctx context.Context, set *resource.Set) error {
	c := r.out.Controller
	if c == nil || c.Sidecars == nil {
		return nil
	}
	s := &Sidecars{Whole: r.Access, TLSConfigs: tlsconfig.NewIndex(set, nil)}
	connected, err := replica.ReadSidecars(ctx, r.client, c.Namespace)
	if !r.refused("which sidecars are connected (ConfigMaps of namespace "+c.Namespace+")", err) {
		if err != nil {
			return fmt.Errorf("which sidecars are connected: %w", err)
		}
		s.know(connected)
	}
	all := map[string]*SidecarNamespace{}
	for _, n := range set.Namespaces {
		if label := n.Labels[inject.Label]; label != "" && label != inject.Disabled && n.DeletionTimestamp == nil {
			all[n.Name] = &SidecarNamespace{Name: n.Name, Label: label}
		}
	}
	selected := selectedNamespaces(set, c)
	for _, n := range selected {
		if all[n] == nil {
			all[n] = &SidecarNamespace{Name: n}
		}
		all[n].Selected = true
	}
	for _, kind := range []string{"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"} {
		if !s.Whole {
			break
		}
		for _, name := range []string{access.SidecarsWebhook, access.SelectedWebhook} {
			o := &unstructured.Unstructured{}
			o.SetGroupVersionKind(schema.GroupVersionKind{Group: "admissionregistration.k8s.io", Version: "v1", Kind: kind})
			switch err := r.client.Get(ctx, client.ObjectKey{Name: name}, o); {
			case apierrors.IsNotFound(err):
				s.Missing = append(s.Missing, kind+" "+name)
			case r.refused(kind+"s (whether pods are injected)", err):
			case err != nil:
				return fmt.Errorf("%s %s: %w", kind, name, err)
			case name == access.SelectedWebhook:
				asked := namedBy(o)
				for _, n := range selected {
					if !slices.Contains(asked, n) {
						all[n].Unasked = append(all[n].Unasked, kind+" "+name)
					}
				}
			}
		}
	}
	// Pods that ask themselves may be anywhere.
	asking := &corev1.PodList{}
	err = r.pages(ctx, "Pods (whether they have the sidecars that they ask for)", asking, func() {
		for i := range asking.Items {
			if n := asking.Items[i].Namespace; all[n] == nil && asking.Items[i].DeletionTimestamp == nil {
				all[n] = &SidecarNamespace{Name: n}
			}
		}
	}, client.MatchingLabels{inject.Label: inject.Enabled})
	if err != nil {
		return err
	}
	for _, n := range set.Namespaces {
		if of := all[n.Name]; of != nil {
			of.Level = n.Labels["pod-security.kubernetes.io/enforce"]
			of.MeshField, of.Mesh = inject.MeshOf(n)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if err := r.sidecarsOf(ctx, all[name]); err != nil {
			return err
		}
		s.Namespaces = append(s.Namespaces, all[name])
	}
	r.out.Sidecars = s
	return nil
}

// selectedNamespaces are those whose TLSConfigs ask a controller for sidecars.
func selectedNamespaces(set *resource.Set, c *Controller) []string {
	labels := map[string]string{}
	for _, n := range set.Namespaces {
		labels[n.Name] = n.Labels[inject.Label]
	}
	return slices.DeleteFunc(tlsconfig.Namespaces(set), func(n string) bool {
		return slices.Contains(inject.ExcludedNamespaces(c.Namespace), n) || len(c.Namespaces) > 0 && !slices.Contains(c.Namespaces, n) || labels[n] == inject.Enabled || labels[n] == inject.Disabled
	})
}

// namedBy are the namespaces that the webhooks of a configuration name which may refuse pods.
func namedBy(o *unstructured.Unstructured) (all []string) {
	hooks, _, _ := unstructured.NestedSlice(o.Object, "webhooks")
	for _, h := range hooks {
		hook, _ := h.(map[string]any)
		expressions, _, _ := unstructured.NestedSlice(hook, "namespaceSelector", "matchExpressions")
		for _, e := range expressions {
			one, _ := e.(map[string]any)
			if values, _, _ := unstructured.NestedStringSlice(one, "values"); one["operator"] == "In" && one["key"] == corev1.LabelMetadataName && hook["failurePolicy"] == "Fail" {
				all = append(all, values...)
			}
		}
	}
	return all
}

// sidecarsOf reads what there is in a namespace.
func (r *reader) sidecarsOf(ctx context.Context, n *SidecarNamespace) error {
	in := client.InNamespace(n.Name)
	pods := &corev1.PodList{}
	err := r.pages(ctx, "Pods of "+n.Name, pods, func() {
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp == nil && p.Status.Phase != corev1.PodSucceeded && p.Status.Phase != corev1.PodFailed {
				n.Pods = append(n.Pods, *p)
			}
		}
	}, in)
	if err != nil || !r.Access {
		return err
	}
	quotas, ranges := &corev1.ResourceQuotaList{}, &corev1.LimitRangeList{}
	if err := r.pages(ctx, "ResourceQuotas of "+n.Name, quotas, func() { n.Quotas = append(n.Quotas, quotas.Items...) }, in); err != nil {
		return err
	}
	if err := r.pages(ctx, "LimitRanges of "+n.Name, ranges, func() { n.Ranges = append(n.Ranges, ranges.Items...) }, in); err != nil {
		return err
	}
	var trust metav1.PartialObjectMetadata
	trust.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	switch err := r.client.Get(ctx, client.ObjectKey{Namespace: n.Name, Name: inject.CAName}, &trust); {
	case apierrors.IsNotFound(err):
	case r.refused("ConfigMap "+inject.CAName+" of "+n.Name, err):
		n.Trust = map[string]string{managedBy: infra.ManagedBy} // not known
	case err != nil:
		return fmt.Errorf("ConfigMap %s/%s: %w", n.Name, inject.CAName, err)
	default:
		if n.Trust = trust.Labels; n.Trust == nil {
			n.Trust = map[string]string{}
		}
	}
	return nil
}

const managedBy = "app.kubernetes.io/managed-by"

// sidecars reports what keeps pods from their sidecars.
func (j *judge) sidecars(now time.Time) {
	if j.Sidecars == nil {
		return
	}
	for _, what := range j.Sidecars.Missing {
		kind, name, _ := strings.Cut(what, " ")
		j.add(CodeInjection, model.Ref{Kind: kind, Name: name}, "", "it is missing, so pods that ask for sidecars start without", install)
	}
	for _, n := range j.Sidecars.Namespaces {
		j.meshed(n, now)
		j.sidecarsOf(n)
	}
}

func (j *judge) sidecarsOf(n *SidecarNamespace) {
	settings := j.Controller.Sidecars
	ref := model.Ref{Kind: "Namespace", Name: n.Name}
	labels := map[string]string{inject.Label: n.Label}
	field := "metadata.labels[" + inject.Label + "]"
	switch {
	case n.Label != "" && n.Label != inject.Enabled:
		j.add(CodeInjection, ref, field, fmt.Sprintf("%q is no value that the label has, so no pod gets a sidecar", n.Label), "write "+inject.Enabled+" or "+inject.Disabled).Severity = resource.Warning
	case slices.Contains(inject.ExcludedNamespaces(settings.Namespace), n.Name):
		j.add(CodeInjection, ref, field, "pods of namespaces that the cluster or the controller needs get no sidecar", "remove the label; run what is to have sidecars in other namespaces").Severity = resource.Warning
		return
	}
	for _, what := range n.Unasked {
		kind, name, _ := strings.Cut(what, " ")
		j.add(CodeInjection, model.Ref{Kind: kind, Name: name}, "webhooks", fmt.Sprintf("none is about namespace %s, so pods that its TLSConfigs select start without sidecars", n.Name),
			"the controller writes it; if it stays so, see the controller's log")
	}
	var bare, excluded []string
	why := map[string]bool{}
	wanted := n.Label == inject.Enabled || n.Selected
	for i := range n.Pods {
		p := &n.Pods[i]
		asking := labels
		if n.Label == "" && len(j.Sidecars.TLSConfigs.Of(n.Name, p.Labels).Configs) > 0 {
			asking = map[string]string{inject.Label: inject.Enabled}
		}
		switch d := settings.Ask(n.Name, asking, p); d.Outcome {
		case inject.Injected, inject.Refused:
			wanted = true
			if _, has := p.Annotations[inject.Annotation]; !has {
				bare = append(bare, p.Name)
			}
		case inject.Excluded:
			excluded = append(excluded, p.Name)
			for _, r := range d.Reasons {
				why[r] = true
			}
		}
	}
	if !wanted {
		return
	}
	if j.Sidecars.Whole && (n.Level == "baseline" || n.Level == "restricted") {
		j.add(CodeSidecarRefused, ref, "metadata.labels[pod-security.kubernetes.io/enforce]", fmt.Sprintf("PodSecurity's level %s refuses pods with sidecars: a container of theirs needs NET_ADMIN to set the redirect, and then ends", n.Level),
			fmt.Sprintf("kubectl label --overwrite namespace %s pod-security.kubernetes.io/enforce=privileged, and have another policy hold the pods' own containers", n.Name))
	}
	if j.Sidecars.Whole && n.Mesh != "" {
		j.add(CodeSidecarRefused, ref, n.MeshField, fmt.Sprintf("the namespace is in the mesh of %s, too, and a pod can be in one mesh alone: those with the sidecars of both are refused", n.Mesh),
			"remove it when the pods move to Weir's, and create them anew").Severity = resource.Warning
	}
	if len(bare) > 0 {
		j.add(CodeSidecarless, ref, "", fmt.Sprintf("%s: pods that ask for a sidecar and run without, since they were created before that, or not asked about", few(bare)),
			fmt.Sprintf("create them anew: kubectl -n %s rollout restart deployments,statefulsets,daemonsets", n.Name))
	}
	if !j.Sidecars.Whole {
		return
	}
	j.quotas(n, settings)
	j.ranges(n, settings)
	trust := model.Ref{Kind: "ConfigMap", Namespace: n.Name, Name: inject.CAName}
	switch {
	case n.Trust == nil:
		j.add(CodeInjection, trust, "", "it is missing, so pods with sidecars cannot start", "the controller makes it; if it stays away, see the controller's log")
	case n.Trust[managedBy] != infra.ManagedBy:
		j.add(CodeInjection, trust, "metadata.labels", "the controller did not make it, and leaves it alone, so sidecars cannot know the controller", "give it another name")
	}
	if len(excluded) > 0 {
		j.add(CodeSidecarless, ref, "", fmt.Sprintf("%s: pods that run without a sidecar: %s", few(excluded), strings.Join(slices.Sorted(maps.Keys(why)), "; ")),
			"nothing, or label them "+inject.Label+"="+inject.Disabled+" to say that it is meant").Severity = resource.Info
	}
}

// few are the first of some names.
func few(all []string) string {
	slices.Sort(all)
	if n := len(all); n > 3 {
		return strings.Join(all[:3], ", ") + fmt.Sprintf(" and %d more", n-3)
	}
	return strings.Join(all, ", ")
}

// quotas reports those that would refuse a pod for its sidecar: they demand an amount that it has not, or have no room for it.
func (j *judge) quotas(n *SidecarNamespace, s *inject.Settings) {
	for i := range n.Quotas {
		q := &n.Quotas[i]
		if len(q.Spec.Scopes) > 0 || q.Spec.ScopeSelector != nil {
			continue // it may be about other pods
		}
		ref := model.Ref{Kind: "ResourceQuota", Namespace: n.Name, Name: q.Name}
		for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
			for _, of := range []struct {
				keys    []corev1.ResourceName
				amounts inject.Amounts
				what    string
			}{{[]corev1.ResourceName{name, "requests." + name}, s.Requests, "requests"}, {[]corev1.ResourceName{"limits." + name}, s.Limits, "limits"}} {
				for _, key := range of.keys {
					hard, demanded := q.Spec.Hard[key]
					need, has := of.amounts[name]
					if limit, limited := s.Limits[name]; !has && limited {
						need, has = limit, true // of a container without requests, limits count
					}
					field := fmt.Sprintf("spec.hard[%s]", key)
					switch {
					case !demanded:
					case !has && n.fills(name):
					case !has:
						j.add(CodeSidecarRefused, ref, field, fmt.Sprintf("it demands %s of %s of each container, and sidecars have none", of.what, name),
							fmt.Sprintf("set mesh.sidecar.%s.%s of the chart", of.what, name))
					default:
						used := q.Status.Used[key]
						if used.Add(need); used.Cmp(hard) > 0 {
							j.add(CodeSidecarRefused, ref, field, fmt.Sprintf("it has no room for one more sidecar, with %s of %s of %s", of.what, need.String(), name), "raise it, or lower what sidecars take (mesh.sidecar of the chart)").Severity = resource.Warning
						}
					}
				}
			}
		}
	}
}

// fills reports whether a LimitRange gives containers an amount of a resource that have none.
func (n *SidecarNamespace) fills(name corev1.ResourceName) bool {
	return slices.ContainsFunc(n.Ranges, func(r corev1.LimitRange) bool {
		return slices.ContainsFunc(r.Spec.Limits, func(item corev1.LimitRangeItem) bool {
			_, limit := item.Default[name]
			_, request := item.DefaultRequest[name]
			return item.Type == corev1.LimitTypeContainer && (limit || request)
		})
	})
}

// ranges reports LimitRanges that sidecars are outside of.
func (j *judge) ranges(n *SidecarNamespace, s *inject.Settings) {
	for i := range n.Ranges {
		for k, item := range n.Ranges[i].Spec.Limits {
			if item.Type != corev1.LimitTypeContainer {
				continue
			}
			ref := model.Ref{Kind: "LimitRange", Namespace: n.Name, Name: n.Ranges[i].Name}
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage} {
				limit, limited := s.Limits[name]
				request, requested := s.Requests[name]
				most, hasMost := item.Max[name]
				least, hasLeast := item.Min[name]
				ratio, hasRatio := item.MaxLimitRequestRatio[name]
				add := func(field, message string) {
					j.add(CodeSidecarRefused, ref, fmt.Sprintf("spec.limits[%d].%s[%s]", k, field, name), message, "change it, or what sidecars take (mesh.sidecar of the chart)")
				}
				if hasMost && limited && limit.Cmp(most) > 0 {
					add("max", fmt.Sprintf("sidecars may use %s of %s, and the most for a container is %s", limit.String(), name, most.String()))
				}
				if hasLeast && requested && request.Cmp(least) < 0 {
					add("min", fmt.Sprintf("sidecars request %s of %s, and the least for a container is %s", request.String(), name, least.String()))
				}
				if hasRatio && limited && requested && limit.AsApproximateFloat64() > ratio.AsApproximateFloat64()*request.AsApproximateFloat64() {
					add("maxLimitRequestRatio", fmt.Sprintf("sidecars have a limit of %s of %s, more than %s times their request of %s", limit.String(), name, ratio.String(), request.String()))
				}
			}
		}
	}
}
