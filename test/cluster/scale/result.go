package scale

import (
	"fmt"
	"io"
	"slices"
)

// Result is what was measured. Times are in seconds, memory is in MB (10^6 bytes).
type Result struct {
	Routes, Services, Endpoints int
	// Served is how many routes were asked for and answered by their own Service.
	Served int
	// Sync is the time from the controller's start until it knows all objects; FirstPublished from then until the first
	// configuration is published, StatusesWritten until all routes have their status.
	Sync, FirstPublished, StatusesWritten float64
	// FirstTranslate and FirstPublish are the parts of FirstPublished that the controller tells of.
	FirstTranslate, FirstPublish float64
	// ProxyReady is the time from the proxy's start until it serves, FirstSend what it was sent for that.
	ProxyReady      float64
	FirstSend       Sent
	RouteChanges    Changes
	EndpointChanges Changes
	Controller      Memory
	Proxy           Memory
	Phases          []Phase
	// Mesh is all that was measured of a mesh, beside Sync, FirstPublished and Phases; nil if none was.
	Mesh *Mesh `json:",omitempty"`
}

// Sent is what the feed sent.
type Sent struct{ Bytes, Parts, Responses float64 }

// Change is one: how long the API server took to accept it, and how long it took, that included, until the proxy served it.
type Change struct {
	Write, Served float64
	Sent          Sent
}

// Changes of one kind.
type Changes struct {
	// What was changed.
	What string
	All  []Change
	// Cost is that of one change, on average.
	Cost Cost
	// Load is the machine's load average as they began.
	Load float64
}

// Cost of one change. CPU is all that the program did meanwhile; a change may be translated together with others.
type Cost struct{ ControllerCPU, ProxyCPU, Translate, Publish float64 }

// Memory of a process that is resident: at most, and after a rest.
type Memory struct{ Peak, Now float64 }

// Phase of the measurement, and the machine's load average at its end.
type Phase struct {
	What          string
	Seconds, Load float64
}

// Goals, of the sizes that they are set for: 10,000 routes, 2,000 Services, 20,000 endpoints.
const (
	goalFirst  = 10.0 // seconds
	goalChange = 1.0  // seconds, 99th percentile
	goalMemory = 500  // MB
	goalParts  = 1
)

// served returns a quantile of how long changes took.
func (c *Changes) served(q float64) float64 {
	var all []float64
	for _, x := range c.All {
		all = append(all, x.Served)
	}
	return quantile(all, q)
}

// quantile of figures, 0 without any.
func quantile(all []float64, q float64) float64 {
	if len(all) == 0 {
		return 0
	}
	all = slices.Sorted(slices.Values(all))
	return all[min(len(all)-1, int(q*float64(len(all))))]
}

// most is the largest of what a change made the feed send.
func (c *Changes) most() (s Sent) {
	for _, x := range c.All {
		s.Bytes, s.Parts, s.Responses = max(s.Bytes, x.Sent.Bytes), max(s.Parts, x.Sent.Parts), max(s.Responses, x.Sent.Responses)
	}
	return s
}

// Print writes the table and tells whether all goals are met.
func (r *Result) Print(w io.Writer) (met bool) {
	t := table{w: w, met: true}
	if r.Mesh != nil {
		r.printMesh(&t)
	} else {
		r.printGateway(&t)
	}
	fmt.Fprintln(w, "\n| phase | took | load average |\n|---|---|---|")
	for _, p := range r.Phases {
		fmt.Fprintf(w, "| %s | %s | %.1f |\n", p.What, seconds(p.Seconds), p.Load)
	}
	return t.met
}

// table is one of figures, some of which have goals.
type table struct {
	w   io.Writer
	met bool // all goals
}

func (t *table) begin(format string, args ...any) {
	fmt.Fprintf(t.w, "\n"+format+"\n\n| figure | is | goal | |\n|---|---|---|---|\n", args...)
}

func (t *table) row(figure, is, goal string, met bool) {
	verdict := "met"
	if !met {
		verdict, t.met = "MISSED", false
	}
	fmt.Fprintf(t.w, "| %s | %s | %s | %s |\n", figure, is, goal, verdict)
}

func (t *table) plain(figure, is string) { fmt.Fprintf(t.w, "| %s | %s | | |\n", figure, is) }

// printMesh writes what is about a mesh.
func (r *Result) printMesh(t *table) {
	m := r.Mesh
	t.begin("%d Services, %d pods, %d of them with a sidecar that is connected", r.Services, m.Pods, m.Sidecars)
	t.plain("controller's start to all objects known", seconds(r.Sync))
	t.plain("from there to the first configuration published", seconds(r.FirstPublished))
	t.plain("all sidecars connected, and each with a configuration", seconds(m.Connected))
	t.plain("a new destination known, p50", seconds(quantile(m.Asked, 0.5)))
	t.row("a new destination known, p99", seconds(quantile(m.Asked, 0.99)), "at most "+seconds(goalMeshAsked), quantile(m.Asked, 0.99) <= goalMeshAsked)
	t.plain("sent for that, for each sidecar", fmt.Sprintf("%.0f bytes, %.1f parts", m.Sent.Bytes/float64(m.Sidecars), m.Sent.Parts/float64(m.Sidecars)))
	var served []float64
	users, others, bytes := 0, 0, 0.0
	for _, c := range m.Changes {
		served = append(served, c.Served)
		users, others, bytes = users+c.Users, others+c.Told-c.Users, bytes+c.Sent.Bytes
	}
	name := fmt.Sprintf("changed endpoint (of %d)", len(m.Changes))
	t.plain(name+" at all sidecars that use it, p50", seconds(quantile(served, 0.5)))
	t.row(name+" at all sidecars that use it, at most", seconds(quantile(served, 1)), "at most "+seconds(goalMeshChange), quantile(served, 1) <= goalMeshChange)
	t.row(name+": other sidecars that were sent anything", fmt.Sprint(others), "0", others == 0)
	t.plain(name+": sent to each that uses it", fmt.Sprintf("%.0f bytes", bytes/float64(max(1, users))))
	t.plain(name+": processor time of the controller", seconds(m.CPU))
	t.row("controller's memory, peak", megabytes(m.Controller.Peak), "at most "+megabytes(goalMeshMemory), m.Controller.Peak <= goalMeshMemory)
	t.plain("controller's memory, at rest", megabytes(m.Controller.Now))
}

// printGateway writes what is about Gateways.
func (r *Result) printGateway(t *table) {
	t.begin("%d HTTPRoutes, %d Services, %d endpoints; all %d routes asked for were served", r.Routes, r.Services, r.Endpoints, r.Served)
	row, plain := t.row, t.plain
	plain("controller's start to all objects known", seconds(r.Sync))
	row("from there to the first configuration published", seconds(r.FirstPublished), "at most "+seconds(goalFirst), r.FirstPublished <= goalFirst)
	plain("of that, one translation", seconds(r.FirstTranslate))
	plain("of that, encoding and publishing", seconds(r.FirstPublish))
	plain("objects known to all statuses written", seconds(r.StatusesWritten))
	plain("proxy's start to ready", seconds(r.ProxyReady))
	plain("sent to it for that", fmt.Sprintf("%.0f parts, %.1f MB, %.0f responses", r.FirstSend.Parts, r.FirstSend.Bytes/1e6, r.FirstSend.Responses))
	for _, c := range []*Changes{&r.RouteChanges, &r.EndpointChanges} {
		name := fmt.Sprintf("changed %s (of %d)", c.What, len(c.All))
		plain(name+" served, p50", seconds(c.served(0.5)))
		row(name+" served, p99", seconds(c.served(0.99)), "at most "+seconds(goalChange), c.served(0.99) <= goalChange)
		most := c.most()
		row(name+": parts sent, at most", fmt.Sprintf("%.0f", most.Parts), fmt.Sprint(goalParts), most.Parts <= goalParts)
		plain(name+": sent, at most", fmt.Sprintf("%.0f bytes in %.0f responses", most.Bytes, most.Responses))
		plain(name+": translation, publishing", seconds(c.Cost.Translate)+", "+seconds(c.Cost.Publish))
		plain(name+": processor time of controller, proxy", seconds(c.Cost.ControllerCPU)+", "+seconds(c.Cost.ProxyCPU))
	}
	row("controller's memory, peak", megabytes(r.Controller.Peak), "below "+megabytes(goalMemory), r.Controller.Peak < goalMemory)
	plain("controller's memory, at rest", megabytes(r.Controller.Now))
	plain("proxy's memory, peak", megabytes(r.Proxy.Peak))
	plain("proxy's memory, at rest", megabytes(r.Proxy.Now))
}

func seconds(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.0f ms", s*1000)
	}
	return fmt.Sprintf("%.1f s", s)
}

func megabytes(m float64) string { return fmt.Sprintf("%.0f MB", m) }
