package resource

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weirmesh/weir/api/specs"
	"github.com/weirmesh/weir/api/split"
)

// versioned decodes an object whose versions differ in more than name: first by the definition's schema for the
// version, then by the conversion to the one type.
func versioned[T any](convert func(version string, u map[string]any) (*T, field.ErrorList)) func(*kind, string, map[string]any, admission) (any, []Finding) {
	return func(k *kind, version string, u map[string]any, admit admission) (any, []Finding) {
		findings, ok := admit(k, version, u)
		if !ok {
			return nil, findings
		}
		object, errs := convert(version, u)
		for _, err := range errs {
			findings = append(findings, schemaFinding(err, u))
		}
		if len(errs) > 0 {
			return nil, findings
		}
		if spec, _ := u["spec"].(map[string]any); k.name == "TrafficSplit" && version == "v1alpha2" && spec["matches"] != nil {
			findings = append(findings, finding(CodeMatchesEarly, "spec.matches",
				"v1alpha2 has no matches: they are applied here, but other readers of that version split all requests"))
		}
		return object, findings
	}
}

// completeSMI gives SMI objects the apiVersion and kind that they would have in a cluster. The specification's own
// examples leave out the apiVersion, or its group, and its first draft once calls a TrafficSplit a Canary. It returns
// false for everything else.
func completeSMI(apiVersion, kindName string, u map[string]any) (fullVersion, fullKind string, note Finding, ok bool) {
	switch {
	case kindName == "TrafficSplit" && apiVersion == "":
		fullVersion = split.Group + "/" + split.Versions[0]
	case (kindName == "TrafficSplit" || kindName == "Canary") && apiVersion == split.Draft:
		kindName, fullVersion = "TrafficSplit", split.Group+"/"+split.Draft
	case kindName == "HTTPRouteGroup" && apiVersion == "":
		fullVersion = specs.Group + "/" + specs.Versions[0]
		if u["spec"] == nil && u["matches"] != nil {
			fullVersion = specs.Group + "/v1alpha2"
		}
	default:
		return "", "", Finding{}, false
	}
	msg := fmt.Sprintf("%q is no full apiVersion: the object is read as %s of %s, but an API server rejects it", apiVersion, kindName, fullVersion)
	note = finding(CodeNoGroup, "apiVersion", msg)
	note.Fix = "write apiVersion: " + fullVersion
	return fullVersion, kindName, note, true
}
