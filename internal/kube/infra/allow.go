package infra

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weirmesh/weir/internal/resource"
	gatewayv1 "sigs.k8s.io/gateway-api/apis/v1"
)

// GatewayFields say which parameters the Gateways of a class may set. They are for the parameters of a GatewayClass alone.
type GatewayFields struct {
	// Allow names guarded fields (image, env) that Gateways may also set. If it is empty, they may set none of them.
	Allow []string `json:"allow,omitempty"`
	// Deny names fields that Gateways may not set, such as "tolerations" or "service.type".
	Deny []string `json:"deny,omitempty"`
}

// guarded are the fields that Gateways may set only if their class allows it.
//
//   - env, image: a user who sets them can run any program as the proxies' ServiceAccount. So he gets the keys of all
//     certificates that the Gateway refers to, including those that a ReferenceGrant gave it from other namespaces.
//   - tracing: a user who sets it has proxies connect to any address that they reach, around NetworkPolicies that let
//     proxies in. A class that leaves the share to its Gateways, and not the endpoint, allows tracing and denies
//     tracing.endpoint.
var guarded = []string{"env", "image", "tracing"}

// free are the fields that Gateways may set unless their class denies it. A field in neither list is guarded.
var free = []string{
	"accessLog", "accessLogOptions", "affinity", "disruptionBudget", "drain", "imagePullPolicy", "imagePullSecrets", "logFormat", "logLevel", "nodeSelector",
	"priorityClassName", "replicas", "requestID", "resources", "service", "tolerations", "topologySpreadConstraints",
}

// classOnly is the field of a class's parameters that a Gateway's can never have.
const classOnly = "gateways"

// forbidden returns the first field of a Gateway's document that the class does not let it set, and why; both empty if
// there is none. A field that is null counts as set: it removes the class's value.
func (f GatewayFields) forbidden(document map[string]any) (field, why string) {
	for _, name := range slices.Sorted(maps.Keys(document)) {
		switch {
		case name == classOnly:
			return name, "only the parameters of a GatewayClass may have it"
		case slices.Contains(f.Deny, name):
			return name, "GatewayClass %s denies it to Gateways (gateways.deny)"
		case !slices.Contains(free, name) && !slices.Contains(f.Allow, name):
			return name, "GatewayClass %s does not let Gateways set it (gateways.allow: [" + strings.Join(f.Allow, ", ") + "])"
		}
	}
	for _, path := range f.Deny {
		outer, inner, nested := strings.Cut(path, ".")
		if !nested {
			continue
		}
		value, set := document[outer]
		below, mapping := value.(map[string]any)
		if _, there := below[inner]; there || set && !mapping {
			return path, "GatewayClass %s denies it to Gateways (gateways.deny)"
		}
	}
	return "", ""
}

// check says why the document of a Gateway, found at a place, may not be used with its class; nil if it may.
func (f GatewayFields) check(document map[string]any, at string, class *gatewayv1.GatewayClass) *resource.Finding {
	field, why := f.forbidden(document)
	if field == "" {
		return nil
	}
	if field == classOnly {
		return new(resource.Problem("", "", at+" "+field, why, "remove it, or write it to the parameters of the class"))
	}
	fix := fmt.Sprintf("remove it from gateways.deny of the class, or remove %s here", field)
	if !slices.Contains(f.Deny, field) {
		where := "spec.parametersRef of the class to a ConfigMap"
		if at, ok := resource.ClassParameters(class); ok && at.Namespace != "" {
			where = fmt.Sprintf("ConfigMap %s/%s", at.Namespace, at.Name)
		}
		allow := strings.Join(append(slices.Clone(f.Allow), field), ", ")
		fix = fmt.Sprintf("let the class allow it (%s with gateways: {allow: [%s]} in %s), or remove %s here", where, allow, ParametersKey, field)
	}
	return new(resource.Problem("", "", at+" "+field, fmt.Sprintf(why, class.Name), fix))
}

// unknown returns the names that are not fields of Parameters, or cannot be allowed.
func (f GatewayFields) unknown() (allow, deny []string) {
	for _, name := range f.Allow {
		if !slices.Contains(guarded, name) {
			allow = append(allow, name)
		}
	}
	known := fieldsOf("", reflect.TypeFor[Parameters](), 2)
	for _, path := range f.Deny {
		if path == classOnly || strings.HasPrefix(path, classOnly+".") || !slices.Contains(known, path) {
			deny = append(deny, path)
		}
	}
	return allow, deny
}

// fieldsOf returns the fields of a type of this package as they are written, with those of mappings below them, to a
// depth.
func fieldsOf(prefix string, t reflect.Type, depth int) (out []string) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		out = append(out, prefix+name)
		if depth > 1 && f.Type.Kind() == reflect.Struct && f.Type.PkgPath() == t.PkgPath() {
			out = append(out, fieldsOf(prefix+name+".", f.Type, depth-1)...)
		}
	}
	return out
}
