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
	if len(c.All) == 0 {
		return 0
	}
	var all []float64
	for _, x := range c.All {
		all = append(all, x.Served)
	}
	slices.Sort(all)
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
	fmt.Fprintf(w, "\n%d HTTPRoutes, %d Services, %d endpoints; all %d routes asked for were served\n\n", r.Routes, r.Services, r.Endpoints, r.Served)
	fmt.Fprintln(w, "| figure | is | goal | |\n|---|---|---|---|")
	met = true
	row := func(figure, is, goal string, ok bool) {
		verdict := ""
		if goal != "" {
			if verdict = "met"; !ok {
				verdict, met = "MISSED", false
			}
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s |\n", figure, is, goal, verdict)
	}
	plain := func(figure, is string) { row(figure, is, "", true) }
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
	fmt.Fprintln(w, "\n| phase | took | load average |\n|---|---|---|")
	for _, p := range r.Phases {
		fmt.Fprintf(w, "| %s | %s | %.1f |\n", p.What, seconds(p.Seconds), p.Load)
	}
	return met
}

func seconds(s float64) string {
	if s < 1 {
		return fmt.Sprintf("%.0f ms", s*1000)
	}
	return fmt.Sprintf("%.1f s", s)
}

func megabytes(m float64) string { return fmt.Sprintf("%.0f MB", m) }
