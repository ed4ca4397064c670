// Package schema describes the API of Traffic Metrics (metrics/rest) in documents of OpenAPI, which "kubectl explain" reads
// by way of an API server: version 2 for all groups, and version 3 for each. The documents do not change while a process
// runs.
package schema

import (
	api "github.com/weirmesh/weir/api/metrics"
)

// object is one of JSON.
type object = map[string]any

// The names of the schemas.
const (
	one  = "weir.metrics.TrafficMetrics"
	list = "weir.metrics.TrafficMetricsList"
)

// group is a version of a group.
type group struct{ name, version string }

func (g group) path() string { return "apis/" + g.name + "/" + g.version }

var groups = []group{{api.DraftGroup, api.Draft}, {api.DraftAlias, api.Draft}, {api.Group, api.Version}}

// gvk is a kind of the groups as documents name it.
func gvk(kind string, of ...group) []object {
	var all []object
	for _, g := range of {
		all = append(all, object{"group": g.name, "version": g.version, "kind": kind})
	}
	return all
}

func described(description, kind string) object {
	return object{"type": kind, "description": description}
}

func with(o object, properties object, required ...string) object {
	o["properties"] = properties
	if required != nil {
		o["required"] = required
	}
	return o
}

func arrayOf(description string, items object) object {
	return object{"type": "array", "description": description, "items": items}
}

// reference describes one to an object of Kubernetes.
func reference(description string) object {
	return with(described(description, "object"), object{
		"apiVersion": described("the object's group and version", "string"),
		"kind":       described("the object's kind, such as Pod", "string"),
		"namespace":  described("the object's namespace", "string"),
		"name":       described("the object's name", "string"),
	})
}

// schemas are those of the groups.
func (d *dialect) schemas(of ...group) object {
	typed := func(o object, properties object, required ...string) object {
		properties["apiVersion"] = described("the group and version of this form", "string")
		properties["kind"] = described("the kind of this object", "string")
		return with(o, properties, required...)
	}
	metric := with(object{"type": "object"}, object{
		"name": described("p99_response_latency, p90_response_latency, p50_response_latency, success_count or failure_count. "+
			"There are latencies only if there were requests.", "string"),
		"unit":  described("the unit of a latency: seconds, in the released form ms", "string"),
		"value": described("a quantity, such as 100 or 10m", "string"),
	}, "name", "value")
	other := reference("The other. It is empty for everybody and for who is unknown or may not be told; in the released form it is null.")
	d.nullable(other)
	edge := with(described("The other side of what was measured.", "object"), object{
		"direction": described("to: sent to the other, or, if there is none, received from everybody; from: received from the other", "string"),
		"resource":  other,
	}, "direction")
	item := typed(described("What was measured of a resource's traffic in a window of time. A request succeeded if its answer has a status below 500.", "object"), object{
		"metadata":  object{"type": "object", "description": "The resource's name and namespace."},
		"resource":  reference("Where it was measured."),
		"edge":      edge,
		"timestamp": object{"type": "string", "format": "date-time", "description": "The end of the window."},
		"window":    described("The length of the window, such as 30s.", "string"),
		"metrics":   arrayOf("What was measured.", metric),
	}, "resource", "edge", "timestamp", "window", "metrics")
	items := typed(described("What was measured of several resources, or of one with all that it exchanged traffic with.", "object"), object{
		"metadata": object{"type": "object", "description": "How many items are left out, if any are."},
		"resource": reference("What the items are of: a kind, or the resource whose edges they are."),
		"selector": described("The selector that chose the items. It restricts nothing that was measured.", "object"),
		"items":    arrayOf("The items, in the order of their names.", object{"$ref": d.refs + one}),
	}, "resource", "items")
	item["x-kubernetes-group-version-kind"] = gvk("TrafficMetrics", of...)
	items["x-kubernetes-group-version-kind"] = gvk("TrafficMetricsList", of...)
	return object{one: item, list: items}
}
