package telemetry

import (
	"sync/atomic"
	"time"
)

// ExchangeLabels names a series of exchanges. Requests that reached no rule use Registry.Unrouted.
type ExchangeLabels struct {
	// Route is "namespace/name".
	Route string
	// Rule is the rule's name, or its index.
	Rule string
	// Backend is "namespace/name:port"; empty for rules that answer by themselves, such as redirects.
	Backend string
}

// Exchange counts the exchanges of one series. It is valid for ever; after its configuration is gone it counts unseen.
type Exchange struct {
	shards shards[exchangeShard]
	labels ExchangeLabels
	life   life
}

// exchangeShard is one shard of an Exchange, allocated on its first use. It is small, and the fields that Observe
// usually counts are in its first cache line: with ten thousand series in use, the cost of a request here is cache
// misses.
type exchangeShard struct {
	nanos    atomic.Uint64
	in, out  atomic.Uint64
	first    codeSlot // the first status that was seen
	latency  latencyCounts
	codes    codeCounts // the others
	retries  atomic.Uint64
	failures atomic.Pointer[[len(reasons)]atomic.Uint64]
	_        [cacheLine]byte
}

// Labels returns the labels the series is shown under.
func (x *Exchange) Labels() ExchangeLabels { return x.labels }

// Observe counts one finished exchange: the status of the answer (0 if there was none), the time from the request's
// head to the response's end, and the bytes of the two bodies. It does not allocate and takes no lock.
func (x *Exchange) Observe(shard uint32, status int, d time.Duration, in, out int64) {
	s := x.shards.get(shard)
	bucket := s.latency.bucket(d) // read before the first atomic addition, which waits for all reads
	if status < 0 || status > maxCode {
		status = 0
	}
	if !s.first.add(status) {
		s.codes.add(status)
	}
	bucket.Add(1)
	if d > 0 {
		s.nanos.Add(uint64(d))
	}
	if in > 0 {
		s.in.Add(uint64(in))
	}
	if out > 0 {
		s.out.Add(uint64(out))
	}
}

// Fail counts why an exchange failed, in addition to Observe. The empty Reason counts nothing.
func (x *Exchange) Fail(shard uint32, reason Reason) {
	if reason == "" {
		return
	}
	load(&x.shards.get(shard).failures)[reasonIndex[reason]].Add(1)
}

// Retry counts an attempt beyond the first.
func (x *Exchange) Retry(shard uint32) { x.shards.get(shard).retries.Add(1) }
