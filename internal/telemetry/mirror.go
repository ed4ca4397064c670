package telemetry

import "sync/atomic"

// MirrorLabels names a series of mirrored requests.
type MirrorLabels struct {
	// Route is "namespace/name".
	Route string
	// Rule is the rule's name, or its index.
	Rule string
	// Mirror is the service copies go to, "namespace/name:port".
	Mirror string
}

// Mirror counts the copies of one mirror filter. It stays valid for ever; after its configuration is gone its counts
// are not shown.
type Mirror struct {
	labels MirrorLabels
	shards shards[mirrorShard]
	life   life
}

type mirrorShard struct {
	considered atomic.Uint64
	selected   atomic.Uint64
	outcomes   [numMirrorOutcomes]atomic.Uint64
	_          [cacheLine]byte
}

// Labels returns the labels the series is shown under.
func (m *Mirror) Labels() MirrorLabels { return m.labels }

// Consider counts a request that met the filter, and whether the fraction selected it to be copied.
func (m *Mirror) Consider(shard uint32, selected bool) {
	s := m.shards.get(shard)
	s.considered.Add(1)
	if selected {
		s.selected.Add(1)
	}
}

// Count counts the outcome of a copy: once for each selected request. MirrorPending counts nothing.
func (m *Mirror) Count(shard uint32, o MirrorOutcome) {
	if o == MirrorPending || o >= numMirrorOutcomes {
		return
	}
	m.shards.get(shard).outcomes[o].Add(1)
}

// MirrorState is the current state of a mirror's target.
type MirrorState struct {
	// Service is "namespace/name:port".
	Service     string
	InFlight    int64
	QueuedBytes int64
	// BreakerOpen means that the target gets no copies for a while.
	BreakerOpen bool
}
