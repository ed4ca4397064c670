package telemetry

// MirrorOutcome is the outcome of one copied request. Each request that a mirror selected has exactly one outcome other
// than MirrorPending.
type MirrorOutcome uint8

const (
	// MirrorPending is for the access log only: the copy was accepted and had not ended when the line was written.
	MirrorPending MirrorOutcome = iota
	// MirrorSent: the copy was sent whole and answered; the answer was discarded.
	MirrorSent
	// MirrorDroppedInFlight: as many copies as allowed were in flight.
	MirrorDroppedInFlight
	// MirrorDroppedBytes: as many bytes as allowed were queued for the target.
	MirrorDroppedBytes
	// MirrorDroppedBody: the body outgrew the memory of one copy before the target took it.
	MirrorDroppedBody
	// MirrorDroppedBreaker: the target failed too often and is being left alone.
	MirrorDroppedBreaker
	// MirrorDroppedNoEndpoint: the target has no endpoint.
	MirrorDroppedNoEndpoint
	// MirrorDroppedAborted: the primary's request ended before its body was whole.
	MirrorDroppedAborted
	// MirrorDroppedTime: the primary streamed for longer than a copy may last.
	MirrorDroppedTime
	// MirrorDroppedUpgrade: upgrades and CONNECT are not mirrored.
	MirrorDroppedUpgrade
	// MirrorDroppedDraining: the proxy was shutting down, or the mirror's configuration was gone.
	MirrorDroppedDraining
	// MirrorDroppedMatch: to find out which split takes the copy would have taken too much work.
	MirrorDroppedMatch
	// MirrorFailedConnect: no connection, or no TLS, to the target.
	MirrorFailedConnect
	// MirrorFailedTimeout: the target did not take the copy or answer it in time.
	MirrorFailedTimeout
	// MirrorFailedReset: the target closed the connection before its answer was complete.
	MirrorFailedReset
	// MirrorFailedResponse: the answer was not valid HTTP.
	MirrorFailedResponse

	numMirrorOutcomes
)

var mirrorOutcomes = [numMirrorOutcomes]string{
	MirrorPending:           "pending",
	MirrorSent:              "sent",
	MirrorDroppedInFlight:   "dropped_in_flight",
	MirrorDroppedBytes:      "dropped_bytes",
	MirrorDroppedBody:       "dropped_body",
	MirrorDroppedBreaker:    "dropped_breaker",
	MirrorDroppedNoEndpoint: "dropped_no_endpoint",
	MirrorDroppedAborted:    "dropped_aborted",
	MirrorDroppedTime:       "dropped_time",
	MirrorDroppedUpgrade:    "dropped_upgrade",
	MirrorDroppedDraining:   "dropped_draining",
	MirrorDroppedMatch:      "dropped_match",
	MirrorFailedConnect:     "failed_connect",
	MirrorFailedTimeout:     "failed_timeout",
	MirrorFailedReset:       "failed_reset",
	MirrorFailedResponse:    "failed_response",
}

// String is the label: "sent", "dropped_*", "failed_*".
func (o MirrorOutcome) String() string {
	if o >= numMirrorOutcomes {
		return "unknown"
	}
	return mirrorOutcomes[o]
}

// Dropped is true if the proxy gave up the copy, before or while it was sent.
func (o MirrorOutcome) Dropped() bool {
	return o >= MirrorDroppedInFlight && o <= MirrorDroppedMatch
}

// Failed is true if the target failed the copy.
func (o MirrorOutcome) Failed() bool { return o >= MirrorFailedConnect && o < numMirrorOutcomes }
