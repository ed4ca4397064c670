package telemetry

import "github.com/prometheus/client_golang/prometheus"

// Memory is the memory that a proxy now uses for data that it cannot pass on yet, and what it dropped because there was
// not enough memory.
type Memory struct {
	// Drawn are the bytes that are kept, Limit how many may be; 0 is no bound.
	Drawn, Limit int64
	// Ended are the connections that were ended to make room for others.
	Ended uint64
	// Refused counts what was dropped, by the purpose of the memory.
	Refused []LimitCount
}

var (
	descBuffered = desc("weir_buffered_bytes",
		"Bytes buffered until they can be forwarded, beyond the fixed buffers of connections and requests.")
	descBufferedMax = desc("weir_buffered_bytes_limit",
		"Maximum buffered bytes; 0 is no limit.")
	descBufferedEnded = desc("weir_buffered_ended_total",
		"Client connections closed to make room for others: unfinished heads and handshakes, and HTTP/2 with much unread data.")
	descBufferedRefused = desc("weir_buffered_refused_total",
		"Operations given up because the memory limit was reached, by purpose.", "use")
)

var memoryDescs = []*prometheus.Desc{descBuffered, descBufferedMax, descBufferedEnded, descBufferedRefused}

// WatchMemory shows this memory: memory is called at each scrape.
func (r *Registry) WatchMemory(memory func() Memory) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.memory = memory
}

func (r *Registry) collectMemory(ch chan<- prometheus.Metric) {
	r.mu.Lock()
	memory := r.memory
	r.mu.Unlock()
	if memory == nil {
		return
	}
	m := memory()
	ch <- gauge(descBuffered, float64(m.Drawn))
	ch <- gauge(descBufferedMax, float64(m.Limit))
	ch <- counter(descBufferedEnded, m.Ended)
	for _, u := range m.Refused {
		ch <- counter(descBufferedRefused, u.Count, u.Limit)
	}
}
