package main

// board is a page of Grafana.
type board struct {
	// name is of the file; with "weir-" before it, it is the board's UID, which links of others use.
	name, title, help string
	variables         []variable
	rows              []row
}

// variable is a choice at the top of a board, beside that of the Prometheus.
type variable struct {
	name, label, help string
	// query is a query as Grafana's Prometheus data source has it for variables: label_values or query_result.
	query string
	// regex takes the values from the result of query_result; empty for label_values.
	regex string
	// all is whether several can be chosen, and all of them, which also means series without the label.
	all bool
}

// row is a group of panels. One that is closed runs its queries when somebody opens it.
type row struct {
	title  string
	closed bool
	panels []panel
}

// kind is how a panel shows its queries.
type kind string

const (
	graph  kind = "timeseries"
	number kind = "stat"
	table  kind = "table"
)

// panel is a picture.
type panel struct {
	kind        kind
	title, help string
	// unit is one of Grafana's, of all values; a table's columns have their own.
	unit unit
	// width is a part of 24.
	width   int
	queries []query
	// sort is the column that a table is sorted by, smallest first, or largest first if down.
	sort string
	down bool
	// links are where a value of a table's column leads, by column.
	links map[string]link
}

// link leads to a board, with the value of the column for one of its variables, and with that of the column namespace, if
// set, for its namespace.
type link struct{ board, variable, namespace string }

// query is a line or lines of a graph, a number, or a column of a table.
type query struct {
	expr string
	// legend names the lines, with labels as {{label}}; of a table it is the column's name.
	legend string
	// unit is a column's.
	unit unit
}

// unit is a unit as Grafana names them.
type unit string

const (
	perSecond      unit = "reqps"
	perSecondOf    unit = "cps"
	bytesPerSecond unit = "Bps"
	ratio          unit = "percentunit"
	success        unit = "success" // a ratio, with colours
	seconds        unit = "s"
	size           unit = "bytes"
	count          unit = "short"
)

// MarshalText is what Grafana calls the unit.
func (u unit) MarshalText() ([]byte, error) {
	if u == success {
		u = ratio
	}
	return []byte(u), nil
}

// colors are those of success.
var colors = []threshold{{"red", nil}, {"orange", ptr(.95)}, {"green", ptr(.99)}}

type threshold struct {
	color string
	from  *float64 // nil is from the beginning
}

func ptr[T any](v T) *T { return &v }
