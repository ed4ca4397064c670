package tlsconfig

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/weirmesh/weir/api/tlsconfig"
	"github.com/weirmesh/weir/internal/resource"
)

// MaxNames is how many names the certificate of a pod has at most; those that come first by the alphabet count.
const MaxNames = 128

// Index answers what TLSConfigs say of pods. It is immutable, and may be used from any goroutine.
type Index struct {
	configs map[string][]*config // by namespace
	// closed select pods of a namespace that refuse plain text for the sake of a TLSConfig that was left out.
	closed map[string][]labels.Selector
}

// config is a TLSConfig that can select pods.
type config struct {
	object     *tlsconfig.TLSConfig
	selector   labels.Selector // nil if it cannot be read, because of err
	err        error
	permissive bool
	names      []string // that the pods may have
	refused    []refusal
}

// refusal is a name, by its place in spec.subjectNames, that pods may not have.
type refusal struct {
	at  int
	err error
}

// Selection is what TLSConfigs say of a pod together.
type Selection struct {
	// Configs are the names of those that select it.
	Configs []string
	// Names are the DNS names of its certificate, sorted, Dropped those beyond MaxNames.
	Names, Dropped []string
	// Strict means that it refuses clients in plain text: some of them is not permissive, or was left out because it is not
	// valid and may have been about the pod.
	Strict bool
}

// NewIndex reads a set. Grants allow names beside those of Services.
func NewIndex(set *resource.Set, grants []Grant) *Index {
	x := &Index{configs: map[string][]*config{}, closed: closed(set)}
	all := Configs.In(set)
	if len(all) == 0 {
		return x
	}
	services := map[string]map[string]bool{}
	for _, s := range set.Services {
		if services[s.Namespace] == nil {
			services[s.Namespace] = map[string]bool{}
		}
		services[s.Namespace][s.Name] = true
	}
	for _, o := range all {
		c := &config{object: o, permissive: o.Annotations[tlsconfig.PermissiveAnnotation] == "true"}
		c.selector, c.err = metav1.LabelSelectorAsSelector(&o.Spec.Selector)
		for i, name := range o.Spec.SubjectNames {
			if err := judge(o.Namespace, name, services[o.Namespace], grants); err != nil {
				c.refused = append(c.refused, refusal{i, err})
			} else {
				c.names = append(c.names, name)
			}
		}
		x.configs[o.Namespace] = append(x.configs[o.Namespace], c)
	}
	for _, list := range x.configs {
		slices.SortFunc(list, func(a, b *config) int { return cmp.Compare(a.object.Name, b.object.Name) })
	}
	return x
}

// Of is what they say of a pod of a namespace with labels; without a config that selects it, and of a nil Index, nothing.
func (x *Index) Of(namespace string, of map[string]string) (s Selection) {
	if x == nil {
		return s
	}
	for _, c := range x.configs[namespace] {
		if c.err != nil || !c.selector.Matches(labels.Set(of)) {
			continue
		}
		s.Configs = append(s.Configs, c.object.Name)
		s.Names = append(s.Names, c.names...)
		s.Strict = s.Strict || !c.permissive
	}
	for _, c := range x.closed[namespace] {
		s.Strict = s.Strict || c.Matches(labels.Set(of))
	}
	slices.Sort(s.Names)
	s.Names = slices.Compact(s.Names)
	if len(s.Names) > MaxNames {
		s.Names, s.Dropped = s.Names[:MaxNames:MaxNames], s.Names[MaxNames:]
	}
	return s
}

// closed are the selectors, by namespace, of TLSConfigs that were left out because they are not valid, and do not say that they
// are permissive. If it cannot be told which pods one was to select, it is all.
func closed(set *resource.Set) map[string][]labels.Selector {
	out := map[string][]labels.Selector{}
	for k := range set.Rejected {
		if k.Group != tlsconfig.Group || k.Kind != kindName {
			continue
		}
		draft := set.Drafts[k]
		metadata, _ := draft["metadata"].(map[string]any)
		annotations, _ := metadata["annotations"].(map[string]any)
		if annotations[tlsconfig.PermissiveAnnotation] == "true" {
			continue
		}
		out[k.Namespace] = append(out[k.Namespace], draftSelector(draft))
	}
	return out
}

// draftSelector is the selector of a TLSConfig that is not valid; everything if it is the selector that is not.
func draftSelector(draft map[string]any) labels.Selector {
	spec, _ := draft["spec"].(map[string]any)
	written, ok := spec["selector"].(map[string]any)
	var s metav1.LabelSelector
	if !ok || runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(written, &s, true) != nil {
		return labels.Everything()
	}
	selector, err := metav1.LabelSelectorAsSelector(&s)
	if err != nil {
		return labels.Everything()
	}
	return selector
}

// Selecting returns the names of those TLSConfigs that select pods with labels, of objects of a namespace as an API server has
// them, sorted. One that cannot be read selects nothing, as in an Index.
func Selecting(objects []map[string]any, of map[string]string) (names []string) {
	for _, o := range objects {
		var c tlsconfig.TLSConfig
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(o, &c); err != nil {
			continue
		}
		if s, err := metav1.LabelSelectorAsSelector(&c.Spec.Selector); err == nil && s.Matches(labels.Set(of)) {
			names = append(names, c.Name)
		}
	}
	slices.Sort(names)
	return names
}

// Namespaces returns those with a TLSConfig that can select pods, sorted.
func Namespaces(set *resource.Set) (all []string) {
	for _, o := range Configs.In(set) {
		if _, err := metav1.LabelSelectorAsSelector(&o.Spec.Selector); err == nil {
			all = append(all, o.Namespace)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}
