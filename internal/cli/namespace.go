package cli

import (
	"maps"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/finding"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/resource"
)

// maxListed is how many namespaces a message lists.
const maxListed = 20

// knows fails for a namespace in which there is nothing, and names those there are.
func (l *look) knows(namespace string) error {
	if namespace == "" || l.client != nil && !l.input().Complete { // a user who may not read everything cannot know
		return nil
	}
	all := namespaces(l.set)
	for _, f := range l.Findings {
		all[f.Ref.Namespace] = true
	}
	delete(all, "")
	if all[namespace] {
		return nil
	}
	if len(all) == 0 {
		return flags.Errorf("--namespace %q: nothing is in that namespace, nor in any other", namespace)
	}
	return flags.Errorf("--namespace %q: nothing is in that namespace; there is: %s", namespace, strings.Join(finding.First(slices.Sorted(maps.Keys(all)), maxListed), ", "))
}

// namespaces are the namespaces of objects, and those that are objects themselves.
func namespaces(s *resource.Set) map[string]bool {
	all := map[string]bool{}
	for _, o := range s.Namespaces {
		all[o.Name] = true
	}
	for k := range s.Origins {
		all[k.Namespace] = true
	}
	for k, o := range s.Objects() {
		if !k.OnReference {
			all[o.GetNamespace()] = true
		}
	}
	return all
}
