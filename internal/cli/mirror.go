package cli

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/proxy"
)

// mirrorFlags are the bounds of mirrors; see docs/mirroring.md.
type mirrorFlags struct {
	header                  string
	inFlight                int
	bytes, copyBytes        byteSize
	timeout, connectTimeout time.Duration
}

func (m *mirrorFlags) flags(f *pflag.FlagSet) {
	m.bytes, m.copyBytes = 64<<20, 8<<20
	f.StringVar(&m.header, "mirror-header", proxy.DefaultMirrorHeader, "`name` of the header field that marks mirrored requests, or off")
	f.Bool("mirror-forwarded", false, "has no effect any more: mirrored requests have X-Forwarded-* as the primary's")
	_ = f.MarkDeprecated("mirror-forwarded", "mirrored requests always have X-Forwarded-* as the primary's")
	f.IntVar(&m.inFlight, "mirror-max-in-flight", 512, "largest `number` of copies that are being sent to one service, or answered")
	f.Var(&m.bytes, "mirror-max-bytes", "most memory for copies to one service")
	f.Var(&m.copyBytes, "mirror-max-copy-bytes", "most memory for one copy; one that falls further behind is dropped")
	f.DurationVar(&m.timeout, "mirror-timeout", 5*time.Second, "how long a mirror may take to accept bytes, and to answer")
	f.DurationVar(&m.connectTimeout, "mirror-connect-timeout", time.Second, "how long connecting to a mirror may take")
}

func (m *mirrorFlags) options() (proxy.MirrorOptions, error) {
	o := proxy.MirrorOptions{
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
		return o, usageError("--mirror-header %q: want the name of a header field, or off", m.header)
	}
	if m.inFlight < 1 || m.bytes < 1 || m.copyBytes < 1 || m.timeout <= 0 || m.connectTimeout <= 0 {
		return o, usageError("the bounds of mirrors (--mirror-...) must be above zero")
	}
	return o, nil
}

// byteSize is a flag such as "16MiB" or "4096".
type byteSize int64

var byteUnits = []struct {
	suffix string
	factor int64
}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}, {"", 1}}

func (b *byteSize) String() string {
	for _, u := range byteUnits {
		if n := int64(*b); n >= u.factor && n%u.factor == 0 {
			return strconv.FormatInt(n/u.factor, 10) + u.suffix
		}
	}
	return "0"
}

// Type implements pflag.Value; it is what help shows.
func (b *byteSize) Type() string { return "size" }

func (b *byteSize) Set(s string) error {
	for _, u := range byteUnits {
		number, ok := strings.CutSuffix(s, u.suffix)
		if !ok {
			continue
		}
		n, err := strconv.ParseInt(strings.TrimSpace(number), 10, 64)
		if err != nil || n < 0 || n > 1<<40/u.factor {
			break
		}
		*b = byteSize(n * u.factor)
		return nil
	}
	return fmt.Errorf("want a size such as 4096, 256KiB or 16MiB")
}
