package gateway

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/resource"
)

// Annotations of Gateways, ListenerSets and routes, for settings that the API has no field for.
const (
	annotations = "weirmesh.github.io/"

	// pathPolicy is a model.PathPolicy.
	pathPolicy = annotations + "path-policy"
)

// known returns the annotations of a kind.
func known(kind string) []string {
	if kind == "Gateway" {
		return append([]string{pathPolicy}, frontAnnotations...)
	}
	return []string{pathPolicy}
}

func annotationField(name string) string { return "metadata.annotations[" + name + "]" }

// annotated reads the path policy in the annotations of an object, and reports invalid annotations. An unknown policy
// is taken for the strict one: its author cannot have meant that nothing is refused.
func (t *translator) annotated(ref model.Ref, meta *metav1.ObjectMeta) (policy model.PathPolicy) {
	for _, name := range slices.Sorted(maps.Keys(meta.Annotations)) {
		if !strings.HasPrefix(name, annotations) {
			continue
		}
		field := annotationField(name)
		switch known := known(ref.Kind); {
		case !slices.Contains(known, name):
			t.report(ref, resource.Problem(codeUnknownAnnotation, "", field, "unknown annotation for a "+ref.Kind,
				"use "+strings.Join(known, " or ")+", or remove it"))
		case name != pathPolicy: // see readFront
		case ref.Kind == "TCPRoute":
			t.report(ref, resource.Problem(codeUnknownAnnotation, "", field, "connections have no paths, so it has no effect", "remove it"))
		default:
			if policy = model.PathPolicy(strings.TrimSpace(meta.Annotations[name])); !policy.Valid() {
				t.report(ref, resource.Problem(codePathPolicy, "", field,
					fmt.Sprintf("%q is neither %s nor %s, so %[3]s applies", meta.Annotations[name], model.PathAsWritten, model.PathStrict),
					fmt.Sprintf("write %s or %s", model.PathStrict, model.PathAsWritten)))
				policy = model.PathStrict
			}
		}
	}
	return policy
}
