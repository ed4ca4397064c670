package access_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/dialect"
	"github.com/weirmesh/weir/internal/dialect/access"
	"github.com/weirmesh/weir/internal/model"
)

// join joins documents of YAML.
func join(documents ...string) string { return strings.Join(documents, "\n---\n") }

const (
	aRole       = "{apiVersion: access.smi-spec.io/v1beta1, kind: TrafficRole, metadata: {name: r, namespace: shop}, rules: [{methods: [GET]}]}"
	aTarget     = "{apiVersion: access.smi-spec.io/v1alpha4, kind: TrafficTarget, metadata: {name: t, namespace: shop}, spec: {destination: {kind: IdentityBinding, name: i}, rules: [{kind: TCPRoute, name: all}], sources: [{kind: ServiceAccount, name: default}]}}"
	aRoute      = "{apiVersion: specs.smi-spec.io/v1alpha4, kind: TCPRoute, metadata: {name: all, namespace: shop}, spec: {}}"
	badIdentity = "{apiVersion: access.smi-spec.io/v1alpha4, kind: IdentityBinding, metadata: {name: i, namespace: shop}, spec: {schemes: {serviceAccount: 7}}}"
	badTarget   = "{apiVersion: access.smi-spec.io/v1alpha4, kind: TrafficTarget, metadata: {name: u, namespace: shop}, spec: {destination: {kind: IdentityBinding, name: i}, rules: 7}}"
)

// closing are the policies that allow nothing, as "Kind name: target".
func closing(config model.Config) (out []string) {
	for _, p := range config.Policies {
		if p.Void != "" {
			out = append(out, fmt.Sprintf("%s %s: %s", p.Ref.Kind, p.Ref.Name, p.Targets[0].String()))
		}
	}
	return out
}

// TestAnIdentityBindingThatIsLeftOutClosesItsNamespaceAsADestination: it cannot be told which pods it means.
func TestAnIdentityBindingThatIsLeftOutClosesItsNamespaceAsADestination(t *testing.T) {
	elsewhere := strings.NewReplacer("name: i,", "name: j,").Replace(badIdentity)
	other := strings.NewReplacer("namespace: shop", "namespace: other").Replace(badIdentity)
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"of a target":                   {join(aTarget, aRoute, badIdentity, elsewhere, other), []string{"IdentityBinding i: * shop/*"}},
		"of a target that is not valid": {join(badTarget, badIdentity), []string{"IdentityBinding i: * shop/*", "TrafficTarget u: IdentityBinding shop/i"}},
		"of nothing":                    {join(aRole, badIdentity, elsewhere), nil},
		"of a target, but not left out": {join(aTarget, aRoute, elsewhere, other), nil},
	} {
		for range 20 { // the order of what was left out is not fixed
			config, _, _, _ := access.Translate(loadKinds(t, dialect.Kinds(), c.text), access.Options{})
			if got := closing(config); !reflect.DeepEqual(got, c.want) {
				t.Fatalf("%s: closed by %q, want %q", name, got, c.want)
			}
		}
	}
}
