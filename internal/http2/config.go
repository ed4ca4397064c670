package http2

import (
	"time"

	"github.com/weirmesh/weir/internal/pace"
)

// Config are the bounds of a connection. Zero fields mean the defaults.
type Config struct {
	// MaxStreams is how many streams the peer may have open at the same time, including reset ones whose handler still
	// runs. A client never lets the peer open any. The default is DefaultMaxStreams.
	MaxStreams uint32
	// MaxHeader is the largest header block in bytes, both as it is coded and, by the count of RFC 9113 §6.5.2, decoded. The
	// default is DefaultMaxHeader.
	MaxHeader int
	// MaxFields is the largest number of field lines in a header block. The default is DefaultMaxFields.
	MaxFields int
	// StreamWindow and ConnWindow are how many unread bytes of bodies the peer may send, on a stream and on all
	// together: they bound the memory. The defaults are DefaultStreamWindow and DefaultConnWindow.
	StreamWindow, ConnWindow int
	// Shared means that the peer is a client that passes on the requests of many others. What some of them give up is not held
	// against it; streams whose handlers still run count among MaxStreams in any case.
	Shared bool
	// MaxOutput is how many bytes may wait to be written before senders of bodies wait; up to twice as many are held.
	// The default is DefaultMaxOutput.
	MaxOutput int

	// HeaderTimeout bounds how long the peer may take to send its preface and settings, and each header block from its first
	// byte. The default is 10 s.
	HeaderTimeout time.Duration
	// IdleTimeout is how long a connection may be without a stream; less than 0 is for ever. The default is 75 s.
	IdleTimeout time.Duration
	// StallTimeout is how long the peer may accept no byte of what is sent: on a stream by giving no window, on the
	// connection by not reading. The default is 30 s.
	StallTimeout time.Duration
	// Pace is how fast the peer must accept what is sent, in addition to StallTimeout. Acked, if not nil, returns how
	// many bytes the peer's system has acknowledged since the connection began, and whether others still wait for that.
	// Without it only the windows of streams are judged, as if none did. A stream's Stream.Patient exempts it.
	Pace  pace.Rule
	Acked func() (bytes uint64, queued bool)
	// PingAfter is the silence after which a connection with streams is asked for a sign of life; PingTimeout how long the answer
	// may take. PingAfter less than 0 asks never. The defaults are 15 s and 15 s.
	PingAfter, PingTimeout time.Duration

	// Memory, if not nil, is the budget for headers and bodies that were not taken yet, and for waiting output.
	Memory Memory
	// Workers, if not nil, runs the streams of a server.
	Workers *Workers
	// Refused is called for each request that never became a stream because its head was malformed or over a bound,
	// which is the peer's fault. It is called by Run's goroutine and must not block. May be nil.
	Refused func(*StreamError)
	// Changed is called when a client may be able to open more streams than before, because of the peer's settings, and
	// when it can open no more: after GOAWAY and when the connection ends. It is called by Run's goroutine, with no
	// lock held, and must not block. May be nil.
	Changed func()
}

// The defaults of Config.
const (
	DefaultMaxStreams   = 250
	DefaultMaxHeader    = 64 << 10
	DefaultMaxFields    = 128
	DefaultStreamWindow = 256 << 10
	DefaultConnWindow   = 1 << 20
	DefaultMaxOutput    = 128 << 10
)

func (c *Config) setDefaults() {
	if c.MaxStreams == 0 {
		c.MaxStreams = DefaultMaxStreams
	}
	for _, n := range []struct {
		value *int
		def   int
	}{
		{&c.MaxHeader, DefaultMaxHeader},
		{&c.MaxFields, DefaultMaxFields},
		{&c.StreamWindow, DefaultStreamWindow},
		{&c.ConnWindow, DefaultConnWindow},
		{&c.MaxOutput, DefaultMaxOutput},
	} {
		if *n.value <= 0 {
			*n.value = n.def
		}
	}
	for _, d := range []struct {
		value *time.Duration
		def   time.Duration
	}{
		{&c.HeaderTimeout, 10 * time.Second},
		{&c.IdleTimeout, 75 * time.Second},
		{&c.StallTimeout, 30 * time.Second},
		{&c.PingAfter, 15 * time.Second},
		{&c.PingTimeout, 15 * time.Second},
	} {
		if *d.value == 0 {
			*d.value = d.def
		}
	}
}
