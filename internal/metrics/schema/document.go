package schema

import (
	"strings"

	api "github.com/weirmesh/weir/api/metrics"
)

// dialect is how a version of OpenAPI writes operations.
type dialect struct {
	refs string
	// response is that of a schema, parameter one of a type.
	response  func(schema object) object
	parameter func(p object, kind string) object
	// nullable lets a schema's value be null.
	nullable func(schema object)
}

var (
	second = dialect{
		refs:     "#/definitions/",
		response: func(schema object) object { return object{"description": "OK", "schema": schema} },
		parameter: func(p object, kind string) object {
			p["type"], p["uniqueItems"] = kind, true
			return p
		},
		// Version 2 has no word for it, and one that it does not know makes an API server answer 503 to everybody who asks for
		// the document of all its APIs as protobuf. What has no type may be null.
		nullable: func(schema object) { delete(schema, "type") },
	}
	third = dialect{
		refs: "#/components/schemas/",
		response: func(schema object) object {
			return object{"description": "OK", "content": object{"application/json": object{"schema": schema}}}
		},
		parameter: func(p object, kind string) object {
			p["schema"] = object{"type": kind, "uniqueItems": true}
			return p
		},
		nullable: func(schema object) { schema["nullable"] = true },
	}
)

// v2 is the document of all groups.
func v2() object {
	paths := object{}
	for _, g := range groups {
		second.paths(paths, g)
	}
	return object{"swagger": "2.0", "info": info, "paths": paths, "definitions": second.schemas(groups...)}
}

// v3 is that of one.
func v3(g group) object {
	paths := object{}
	third.paths(paths, g)
	return object{"openapi": "3.0.0", "info": info, "paths": paths, "components": object{"schemas": third.schemas(g)}}
}

var info = object{"title": "Traffic Metrics", "version": "unversioned"}

// paths adds those of a group.
func (d *dialect) paths(all object, g group) {
	for _, r := range api.Resources() {
		base := "/" + g.path() + "/"
		every := base + r.Plural
		all[every] = d.get(g, r, "list", list, every)
		if r.Namespaced {
			base += "namespaces/{namespace}/"
			all[base+r.Plural] = d.get(g, r, "list", list, base+r.Plural)
		}
		object := base + r.Plural + "/{name}"
		all[object] = d.get(g, r, "get", one, object)
		all[object+"/"+api.SubResource] = d.get(g, r, "get", list, object+"/"+api.SubResource)
	}
}

// get is the only operation of a path.
func (d *dialect) get(g group, r api.Resource, action, schema, path string) object {
	edges := strings.HasSuffix(path, "/"+api.SubResource)
	kind, what := "TrafficMetrics", "the traffic of "+r.Plural
	if edges {
		kind, what = "TrafficMetricsList", "the traffic of one of the "+r.Plural+" with each of the others that it exchanged traffic with"
	}
	var parameters []object
	add := func(in, name, description string) {
		p := object{"in": in, "name": name, "description": description}
		if in == "path" {
			p["required"] = true
		}
		parameters = append(parameters, d.parameter(p, "string"))
	}
	for _, name := range []string{"namespace", "name"} {
		if strings.Contains(path, "{"+name+"}") {
			add("path", name, name+" of the resource")
		}
	}
	if schema == list {
		add("query", "labelSelector", "which items are in the list, by labels of the resources, of edges by those of the others; it restricts nothing that was measured")
	}
	if edges {
		add("query", "kind", "the kind of resources that the others are told as, such as deployments")
	}
	add("query", "window", "how long to look back, from 1s to 1h")
	return object{"get": object{
		"description": what, "operationId": strings.NewReplacer("/", "-", "{", "", "}", "").Replace(path[1:]), "tags": []string{g.name + "_" + g.version},
		"parameters": parameters, "responses": object{"200": d.response(object{"$ref": d.refs + schema})},
		"x-kubernetes-action": action, "x-kubernetes-group-version-kind": gvk(kind, g)[0],
	}}
}
