package dataplane

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/mirror"
)

// mirrorFlags are the bounds of mirrors; see docs/mirroring.md.
type mirrorFlags struct {
	header                  string
	inFlight                int
	bytes, copyBytes        flags.Size
	timeout, connectTimeout time.Duration
}

func (m *mirrorFlags) flags(f *pflag.FlagSet) {
	m.bytes, m.copyBytes = 64<<20, 8<<20
	f.StringVar(&m.header, "mirror-header", mirror.DefaultHeader, "`name` of the header field that marks mirrored requests, or off")
	f.Bool("mirror-forwarded", false, "no longer has an effect: mirrored requests have the same X-Forwarded-* as the primary's")
	_ = f.MarkDeprecated("mirror-forwarded", "mirrored requests always have the same X-Forwarded-* as the primary's")
	f.IntVar(&m.inFlight, "mirror-max-in-flight", 512, "maximum `number` of copies in flight to one service")
	f.Var(&m.bytes, "mirror-max-bytes", "maximum memory for copies to one service")
	f.Var(&m.copyBytes, "mirror-max-copy-bytes", "maximum memory for one copy; a copy that falls further behind is dropped")
	f.DurationVar(&m.timeout, "mirror-timeout", 5*time.Second, "timeout for a mirror to accept bytes, and to answer")
	f.DurationVar(&m.connectTimeout, "mirror-connect-timeout", time.Second, "timeout for connecting to a mirror")
}

func (m *mirrorFlags) options() (mirror.Options, error) {
	o := mirror.Options{
		MaxInFlight:    m.inFlight,
		MaxBytes:       int64(m.bytes),
		MaxCopyBytes:   int(m.copyBytes),
		Timeout:        m.timeout,
		ConnectTimeout: m.connectTimeout,
	}
	switch {
	case m.header == "off":
		o.Unmarked = true
	case http1.ValidFieldName(m.header):
		o.Header = m.header
	default:
		return o, flags.Errorf("--mirror-header %q: want the name of a header field, or off", m.header)
	}
	if m.inFlight < 1 || m.bytes < 1 || m.copyBytes < 1 || m.timeout <= 0 || m.connectTimeout <= 0 {
		return o, flags.Errorf("the bounds of mirrors (--mirror-...) must be above zero")
	}
	return o, nil
}
