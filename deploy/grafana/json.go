package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
)

// schema is the version of Grafana's model of boards (schemaVersion), of Grafana 12; later ones convert it.
const schema = 42

// object is one of JSON. Its keys are written sorted.
type object = map[string]any

// source is the data source of every query: the variable that each board begins with.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// json is the file that Grafana imports. Equal boards give equal bytes.
func (b board) json() ([]byte, error) {
	var out bytes.Buffer
	e := json.NewEncoder(&out)
	e.SetEscapeHTML(false)
	e.SetIndent("", " ")
	err := e.Encode(object{
		"uid": "weir-" + b.name, "title": b.title, "description": b.help, "tags": []string{"weir"}, "schemaVersion": schema,
		"editable": true, "graphTooltip": 1, "refresh": "30s", "timezone": "browser", "time": object{"from": "now-1h", "to": "now"},
		"annotations": object{"list": []any{}}, "templating": object{"list": b.choices()}, "panels": b.panels(),
		"links": []any{object{
			"type": "dashboards", "title": "Weir", "tags": []string{"weir"}, "asDropdown": true, "includeVars": false, "keepTime": true,
			"targetBlank": false, "icon": "external link", "tooltip": "the other boards", "url": "",
		}},
	})
	return out.Bytes(), err
}

func (b board) choices() []any {
	out := []any{object{"type": "datasource", "name": "datasource", "label": "Prometheus", "query": "prometheus", "refresh": 1, "options": []any{}}}
	for _, v := range b.variables {
		kind := 1 // label_values
		if v.regex != "" {
			kind = 3 // query_result
		}
		c := object{
			"type": "query", "name": v.name, "label": v.label, "description": v.help, "datasource": source, "refresh": 2, "sort": 1, "regex": v.regex,
			"definition": v.query, "query": object{"qryType": kind, "query": v.query, "refId": "PrometheusVariableQueryEditor-VariableQuery"}, "options": []any{},
		}
		if v.all {
			c["multi"], c["includeAll"], c["allValue"], c["current"] = true, true, ".*", object{"selected": true, "text": []string{"All"}, "value": []string{"$__all"}}
		}
		out = append(out, c)
	}
	return out
}

const (
	columns = 24
	// titleHeight and the others are in Grafana's rows of 30 pixels.
	titleHeight = 1
	height      = 8
	lowHeight   = 4
)

// panels puts panels beside each other while there is room, row by row.
func (b board) panels() []any {
	var out []any
	id, y := 0, 0
	for _, r := range b.rows {
		id++
		title := object{"id": id, "type": "row", "title": r.title, "collapsed": r.closed, "gridPos": place(0, y, columns, titleHeight), "panels": []any{}}
		y += titleHeight
		out = append(out, title)
		var inside []any
		x, tallest := 0, 0
		for _, p := range r.panels {
			if x+p.width > columns {
				x, y, tallest = 0, y+tallest, 0
			}
			id++
			h := height
			if p.kind == number {
				h = lowHeight
			}
			inside = append(inside, p.json(id, place(x, y, p.width, h)))
			x, tallest = x+p.width, max(tallest, h)
		}
		y += tallest
		if r.closed {
			title["panels"] = inside
		} else {
			out = append(out, inside...)
		}
	}
	return out
}

func place(x, y, w, h int) object { return object{"x": x, "y": y, "w": w, "h": h} }

func (p panel) json(id int, at object) object {
	defaults := object{"unit": p.unit, "custom": object{}, "mappings": []any{}, "thresholds": steps([]threshold{{"green", nil}})}
	out := object{
		"id": id, "type": p.kind, "title": p.title, "description": p.help, "datasource": source, "gridPos": at, "targets": p.targets(),
		"fieldConfig": object{"defaults": defaults, "overrides": []any{}},
	}
	switch p.kind {
	case graph:
		defaults["min"] = 0
		defaults["custom"] = object{"drawStyle": "line", "fillOpacity": 10, "lineWidth": 1, "showPoints": "never", "spanNulls": false}
		out["options"] = object{
			"legend":  object{"displayMode": "list", "placement": "bottom", "showLegend": true, "calcs": []any{}},
			"tooltip": object{"mode": "multi", "sort": "desc"},
		}
		if p.unit == success {
			delete(defaults, "min") // the last percent is what matters
			defaults["max"] = 1
		}
	case number:
		defaults["noValue"] = "nothing measured"
		if p.unit == success {
			defaults["thresholds"] = steps(colors)
		}
		out["options"] = object{
			"reduceOptions": object{"calcs": []string{"lastNotNull"}, "fields": "", "values": false}, "colorMode": "value", "graphMode": "area",
			"justifyMode": "auto", "orientation": "auto", "textMode": "auto", "wideLayout": true, "showPercentChange": false, "percentChangeColorMode": "standard",
		}
	case table:
		defaults["custom"] = object{"align": "auto", "cellOptions": object{"type": "auto"}, "filterable": true, "inspect": false}
		out["options"] = object{"frameIndex": 0, "showHeader": true, "cellHeight": "sm", "sortBy": []any{object{"displayName": p.sort, "desc": p.down}},
			"footer": object{"show": false, "reducer": []string{"sum"}, "countRows": false, "fields": ""}}
		out["transformations"] = p.joined()
		out["fieldConfig"].(object)["overrides"] = p.columns()
	}
	return out
}

func steps(all []threshold) object {
	var out []any
	for _, t := range all {
		out = append(out, object{"color": t.color, "value": t.from})
	}
	return object{"mode": "absolute", "steps": out}
}

// refID is the name of a panel's query: A, B and so on.
func refID(i int) string { return string(rune('A' + i)) }

func (p panel) targets() (out []any) {
	for i, q := range p.queries {
		t := object{"refId": refID(i), "datasource": source, "editorMode": "code", "expr": q.expr, "legendFormat": q.legend, "range": true, "instant": false}
		if p.kind == table {
			t["range"], t["instant"], t["format"], t["legendFormat"] = false, true, "table", ""
		}
		out = append(out, t)
	}
	return out
}

// joined makes one table of those of all queries, whose labels are the same.
func (p panel) joined() []any {
	names := object{"Value": p.queries[0].legend} // what Grafana calls it if there is one query
	for i, q := range p.queries {
		names["Value #"+refID(i)] = q.legend
	}
	return []any{
		object{"id": "merge", "options": object{}},
		object{"id": "organize", "options": object{"excludeByName": object{"Time": true}, "indexByName": object{}, "renameByName": names}},
	}
}

// columns gives a table's columns their units, colours and links.
func (p panel) columns() (out []any) {
	override := func(column string, properties ...any) {
		out = append(out, object{"matcher": object{"id": "byName", "options": column}, "properties": properties})
	}
	for _, q := range p.queries {
		properties := []any{object{"id": "unit", "value": q.unit}}
		if q.unit == success {
			properties = append(properties, object{"id": "thresholds", "value": steps(colors)},
				object{"id": "custom.cellOptions", "value": object{"type": "color-text"}}, object{"id": "decimals", "value": 2})
		}
		override(q.legend, properties...)
	}
	for _, column := range slices.Sorted(maps.Keys(p.links)) {
		to := p.links[column]
		url := fmt.Sprintf("/d/%s?var-%s=${__value.raw}&${datasource:queryparam}&${__url_time_range}", to.board, to.variable)
		if to.namespace != "" {
			url += "&var-namespace=${__data.fields." + to.namespace + "}"
		}
		override(column, object{"id": "links", "value": []any{object{"title": "look at it", "url": url}}})
	}
	return out
}
