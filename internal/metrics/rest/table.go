package rest

import (
	"encoding/json"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	api "github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/traffic"
)

// column is one of a table; those with a priority are kubectl's for "-o wide".
type column struct {
	metav1.TableColumnDefinition
	cell func(r *traffic.Row) string
}

func text(name, description string, priority int32, cell func(r *traffic.Row) string) column {
	return column{metav1.TableColumnDefinition{Name: name, Type: "string", Description: description, Priority: priority}, cell}
}

// ofObjects are the columns that say of what a row is, those of edges with whom.
var (
	ofObjects = func() []column {
		name := text("Name", "the object's name", 0, func(r *traffic.Row) string { return r.Of.Name })
		name.Format = "name"
		return []column{name}
	}()
	ofEdges = append(ofObjects[:1:1],
		text("Direction", "to or from the other", 0, func(r *traffic.Row) string { return string(r.Edge.Direction) }),
		text("Peer", "the other", 0, func(r *traffic.Row) string { return traffic.Side(r.Edge.Resource) }),
	)
	ofTraffic = []column{
		text("Success", "share of the requests whose answer has a status below 500", 0, func(r *traffic.Row) string { return api.Percent(r.Measured) }),
		text("RPS", "requests a second", 0, func(r *traffic.Row) string { return traffic.RPS(r.Measured.Rate(r.Window)) }),
		text("P50", "half of the requests took at most as long", 0, func(r *traffic.Row) string { return latency(r.Measured.P50) }),
		text("P90", "90 % of the requests took at most as long", 0, func(r *traffic.Row) string { return latency(r.Measured.P90) }),
		text("P99", "99 % of the requests took at most as long", 0, func(r *traffic.Row) string { return latency(r.Measured.P99) }),
		text("Requests", "how many there were", 1, func(r *traffic.Row) string { return strconv.FormatUint(r.Measured.Success+r.Measured.Failure, 10) }),
		text("Failures", "how many of them failed", 1, func(r *traffic.Row) string { return strconv.FormatUint(r.Measured.Failure, 10) }),
		text("Window", "how long was measured", 1, func(r *traffic.Row) string { return r.Window.String() }),
	}
)

// latency is one that was measured; what was took some time.
func latency(d time.Duration) string {
	if d == 0 {
		return "-"
	}
	return traffic.Latency(d)
}

// tabled is an object or a list as a Table, with as much of the objects as include says.
func tabled(object any, edges bool, include metav1.IncludeObjectPolicy) (*metav1.Table, error) {
	t := &metav1.Table{TypeMeta: metav1.TypeMeta{Kind: table.as, APIVersion: table.group + "/" + table.version}, Rows: []metav1.TableRow{}}
	var items []api.TrafficMetrics
	switch o := object.(type) {
	case *api.TrafficMetricsList:
		t.ListMeta, items = o.ListMeta, o.Items
	case *api.TrafficMetrics:
		items = []api.TrafficMetrics{*o}
	}
	columns := append(ofObjects[:len(ofObjects):len(ofObjects)], ofTraffic...)
	if edges {
		columns = append(ofEdges[:len(ofEdges):len(ofEdges)], ofTraffic...)
	}
	for _, c := range columns {
		t.ColumnDefinitions = append(t.ColumnDefinitions, c.TableColumnDefinition)
	}
	for i := range items {
		item := &items[i]
		m, _ := item.Measured()
		row := traffic.Row{Of: item.Resource, Edge: item.Edge, Measured: m, Window: item.Window.Duration}
		out := metav1.TableRow{}
		for _, c := range columns {
			out.Cells = append(out.Cells, c.cell(&row))
		}
		var of any
		switch include {
		case metav1.IncludeObject:
			of = item
		case metav1.IncludeMetadata:
			of = &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{Kind: "PartialObjectMetadata", APIVersion: "meta.k8s.io/v1"}, ObjectMeta: item.ObjectMeta}
		}
		if of != nil {
			raw, err := json.Marshal(of)
			if err != nil {
				return nil, err
			}
			out.Object = runtime.RawExtension{Raw: raw}
		}
		t.Rows = append(t.Rows, out)
	}
	return t, nil
}

// parseInclude reads the parameter includeObject, which says how much of the objects is in a Table.
func parseInclude(text string) (metav1.IncludeObjectPolicy, *fault) {
	switch p := metav1.IncludeObjectPolicy(text); p {
	case "":
		return metav1.IncludeMetadata, nil
	case metav1.IncludeNone, metav1.IncludeMetadata, metav1.IncludeObject:
		return p, nil
	}
	return "", &fault{"includeObject", quoted(text) + " is none of None, Metadata, Object"}
}
