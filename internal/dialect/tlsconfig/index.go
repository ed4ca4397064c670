package tlsconfig

import (
	"cmp"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/weirmesh/weir/api/tlsconfig"
	"github.com/weirmesh/weir/internal/resource"
)

// MaxNames is how many names the certificate of a pod has at most; those that come first by the alphabet count.
const MaxNames = 128

// Index answers what TLSConfigs say of pods. It is immutable, and may be used from any goroutine.
type Index struct {
	configs map[string][]*config // by namespace
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
	// Names are the DNS names of its certificate, sorted.
	Names []string
	// Strict means that it refuses clients in plain text: some of them is not permissive.
	Strict bool
}

// NewIndex reads a set. Grants allow names beside those of Services.
func NewIndex(set *resource.Set, grants []Grant) *Index {
	x := &Index{configs: map[string][]*config{}}
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

// Of is what they say of a pod of a namespace with labels; without a config that selects it, nothing.
func (x *Index) Of(namespace string, of map[string]string) (s Selection) {
	for _, c := range x.configs[namespace] {
		if c.err != nil || !c.selector.Matches(labels.Set(of)) {
			continue
		}
		s.Configs = append(s.Configs, c.object.Name)
		s.Names = append(s.Names, c.names...)
		s.Strict = s.Strict || !c.permissive
	}
	slices.Sort(s.Names)
	s.Names = slices.Compact(s.Names)
	s.Names = s.Names[:min(len(s.Names), MaxNames)]
	return s
}
