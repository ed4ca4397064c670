package resource

import (
	"slices"
	"strings"
	"testing"

	structuralschema "k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
)

// noEffect are optional fields without which nothing that is served is otherwise: names, descriptions, and what Weir does not apply.
var noEffect = map[string]bool{"name": true, "description": true, "options": true, "group": true, "externalAuth": true, "extensionRef": true}

// TestEveryOptionalFieldSaysWhatItsLackComesTo holds that the table of effects is complete, and that no entry is for a field that is gone.
func TestEveryOptionalFieldSaysWhatItsLackComesTo(t *testing.T) {
	used := map[string]bool{}
	for _, k := range everything {
		if !k.Custom() || k.Group == "specs.smi-spec.io" && k.Name != "HTTPRouteGroup" {
			continue // routes of ports have no effect at all
		}
		for _, version := range []string{k.Versions[0]} {
			s := schemaOf(k, version).structural
			var walk func(s *structuralschema.Structural, path string)
			walk = func(s *structuralschema.Structural, path string) {
				for s.Items != nil {
					s, path = s.Items, path+"[0]"
				}
				for name, p := range s.Properties {
					at := path + "." + name
					if name == "externalAuth" || name == "extensionRef" {
						continue
					}
					required := s.ValueValidation != nil && slices.Contains(s.ValueValidation.Required, name)
					text := k.effect(path+".misspelt", name)
					if text == "" && !required && (!noEffect[name] || k.Name == "ReferenceGrant") {
						t.Errorf("%s %s: nothing says what its lack comes to", k.Name, at)
					}
					used[text] = true
					walk(&p, at)
				}
			}
			spec := s.Properties["spec"]
			walk(&spec, "spec")
		}
	}
	for end, text := range FieldEffects {
		name := lastName(end)
		if !strings.HasPrefix(end, "Service.") && !strings.HasPrefix(end, "EndpointSlice.") && !used[": without "+name+" "+text] {
			t.Errorf("no field has the effect of %s", end)
		}
	}
}

func TestEffectsAreThoseOfTheLongestPathThatFits(t *testing.T) {
	for _, c := range []struct{ kind, path, meant, want string }{
		{"HTTPRoute", "spec.rules[0].filters[1].requestMirror.fraktion", "fraction", ": without fraction the mirror copies 100 % of the requests"},
		{"HTTPRoute", "spec.rules[0].backendRefs[1].filters[1].requestMirror.precent", "percent", ": without percent the mirror copies 100 % of the requests"},
		{"HTTPRoute", "spec.rules[0].backendRef", "backendRefs", ": without backendRefs the rule answers every request 500"},
		{"TCPRoute", "spec.rules[0].backendRef", "backendRefs", ": without backendRefs connections are reset"},
		{"HTTPRoute", "spec.rules[0].filters[0].percent", "requestMirror.percent", ": without percent the mirror copies 100 % of the requests"},
		{"HTTPRoute", "spec.rules[0].matches[0].methd", "method", ": without method the match takes every method"},
		{"GRPCRoute", "spec.rules[0].matches[0].methd", "method", ": without method the match takes every method of every service"},
		{"HTTPRouteGroup", "matches[0].pathRegx", "pathRegex", ": without pathRegex the match takes every path"},
		{"HTTPRoute", "metadata.nmae", "name", ""},
		{"", "metadata.label", "labels", ""},
		{"Gateway", "spec.listeners[0].hostnam", "hostname", ": without hostname the listener takes every host"},
		{"Service", "spec.ports[0].targetport", "targetPort", ": without targetPort pods are reached on the Service's port"},
	} {
		var k *Kind
		if named := everything.named(c.kind); len(named) > 0 {
			k = named[0]
		}
		if got := k.effect(c.path, c.meant); got != c.want {
			t.Errorf("%s %s: %q, want %q", c.kind, c.path, got, c.want)
		}
	}
}
