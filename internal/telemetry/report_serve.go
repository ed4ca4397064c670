package telemetry

import (
	"bufio"
	"encoding/json"
	"net/http"
	"time"
)

// ReportPath is the page of an admin endpoint with what its proxy counted (ServeReport).
const ReportPath = "/edges"

// reportTimeout bounds how long the client of a report may take to read it.
const reportTimeout = 10 * time.Second

// ServeReport answers with a Report as JSON. It writes edge by edge, so that a slow client costs no memory for what it has
// not read.
func (r *Registry) ServeReport(w http.ResponseWriter, _ *http.Request) {
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(reportTimeout)) // a recorder of tests has none
	w.Header().Set("Content-Type", "application/json")
	out := bufio.NewWriterSize(w, 16<<10)
	head, err := json.Marshal(Report{Began: r.began, Time: time.Now(), Edges: []EdgeSnapshot{}})
	if err != nil {
		panic("telemetry: a report cannot be written as JSON: " + err.Error()) // there is nothing in it that cannot
	}
	_, err = out.Write(head[:len(head)-len("]}")])
	for i, e := range r.edges() {
		if err != nil {
			return // who has left needs no answer
		}
		if i > 0 {
			_ = out.WriteByte(',')
		}
		edge, _ := json.Marshal(e.Snapshot()) // numbers and texts
		_, err = out.Write(edge)
	}
	_, _ = out.WriteString("]}\n")
	_ = out.Flush()
}
