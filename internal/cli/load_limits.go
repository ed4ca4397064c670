package cli

import (
	"bytes"
	"log/slog"
	"math"
	"os"
	"runtime/debug"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/proxy"
)

// loadFlags bound what the proxy takes on at once; see docs/resilience.md.
type loadFlags struct {
	inFlight, connections bound
	buffered              memoryBound
	delay                 time.Duration
}

func (l *loadFlags) flags(f *pflag.FlagSet) {
	l.inFlight, l.connections, l.buffered = automatic, automatic, memoryBound(automatic)
	f.Var(&l.inFlight, "max-in-flight", "requests in flight beyond which others are answered 503; auto goes by memory and descriptors, 0 is no bound")
	f.Var(&l.connections, "max-connections", "client connections beyond which others are refused; auto goes by memory and descriptors, 0 is no bound")
	f.Var(&l.buffered, "max-buffered", "most memory for what cannot be passed on yet, such as unfinished heads; auto is an eighth of the memory, 0 is no bound")
	f.DurationVar(&l.delay, "max-queue-delay", time.Second, "how long a request may wait for the processor before it is refused; 0 for ever")
}

// apply fills in the server's options.
func (l *loadFlags) apply(o *proxy.Options, m machine, log *slog.Logger) error {
	if l.delay < 0 {
		return usageError("--max-queue-delay is below zero")
	}
	auto := m.bounds()
	o.MaxInFlight, o.MaxConnections, o.MaxQueueDelay = auto.inFlight, auto.connections, l.delay
	if l.inFlight != automatic {
		o.MaxInFlight = int(l.inFlight)
	}
	if l.connections != automatic {
		o.MaxConnections = int(l.connections)
	}
	if o.MaxBuffered = auto.buffered; l.buffered != memoryBound(automatic) {
		o.MaxBuffered = int64(l.buffered)
	}
	o.Upstream.MaxConnections = int64(auto.endpoints)
	if m.files > 0 && (o.MaxConnections == 0 || o.MaxConnections > m.files-auto.endpoints) {
		// Connections to endpoints come out of what is left.
		log.Warn("--max-connections leaves too few descriptors for endpoints", "connections", o.MaxConnections, "descriptors", m.files)
	}
	log.Info("limits", "in_flight", o.MaxInFlight, "connections", o.MaxConnections, "endpoint_connections", auto.endpoints,
		"buffered", o.MaxBuffered, "descriptors", m.files, "memory", m.memory)
	return nil
}

// machine is what the process may use.
type machine struct {
	memory int64 // bytes
	files  int   // descriptors; 0 if there is no bound, or none that is known
}

// What the bounds are reckoned with.
const (
	exchangeMemory   = 128 << 10 // of one request in flight, with both its connections' buffers and a piece of a body
	connectionMemory = 32 << 10  // of a client connection, most of the time idle
	fewestFiles      = 64
	fewestBuffered   = 1 << 20
	mostLines        = 4 << 20 // of the access log
	fewestLines      = 256 << 10
)

// bounds are the limits that suit the machine.
type bounds struct {
	inFlight, connections, endpoints int
	buffered                         int64 // bytes that are kept until they can be passed on
	lines                            int   // bytes of the access log's lines that wait
}

// bounds is where the memory is divided, see docs/limits.md: half is for connections and a quarter for requests, by what each needs anyway; an eighth is for
// what some of them have kept beyond that; the rest is for everything else and for the collector.
// Of the descriptors an eighth is left for listeners, files and health checks; half of the others are for clients, half for endpoints and mirrors.
func (m machine) bounds() bounds {
	usable := math.MaxInt32
	if m.files > 0 {
		usable = max(m.files-max(m.files/8, fewestFiles), fewestFiles)
	}
	b := bounds{endpoints: usable / 5 * 2} // mirrors have a quarter as many
	b.connections = int(min(int64(usable/2), max(m.memory/2/connectionMemory, fewestFiles)))
	b.inFlight = int(min(int64(b.endpoints), max(m.memory/4/exchangeMemory, fewestFiles)))
	b.buffered = max(m.memory/8, fewestBuffered)
	b.lines = int(min(max(m.memory/64, fewestLines), mostLines))
	return b
}

// thisMachine is what the process finds: the least of the machine's memory, its control group's and GOMEMLIMIT.
func thisMachine() machine {
	m := machine{memory: debug.SetMemoryLimit(-1), files: fileLimit()}
	if total, ok := memoryTotal("/proc/meminfo"); ok {
		m.memory = min(m.memory, total)
	}
	m.memory = min(m.memory, groupMemory())
	return m
}

// groupMemory is how much memory the control group may use, in bytes; math.MaxInt64 if there is no bound.
func groupMemory() int64 {
	least := int64(math.MaxInt64)
	for _, file := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if data, err := os.ReadFile(file); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64); err == nil && n > 0 {
				least = min(least, n)
			}
		}
	}
	return least
}

// collectWithin has the collector work harder before the control group's memory is used up, as the process would be killed
// then. A GOMEMLIMIT goes first.
func collectWithin(group int64) {
	if debug.SetMemoryLimit(-1) == math.MaxInt64 && group < math.MaxInt64 {
		debug.SetMemoryLimit(group / 10 * 9) // the rest is for what is not on the heap
	}
}

// memoryTotal reads MemTotal, in kB, of a file like /proc/meminfo.
func memoryTotal(file string) (int64, bool) {
	data, err := os.ReadFile(file)
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(data) {
		if f := strings.Fields(string(line)); len(f) == 3 && f[0] == "MemTotal:" {
			n, err := strconv.ParseInt(f[1], 10, 64)
			return n << 10, err == nil
		}
	}
	return 0, false
}
