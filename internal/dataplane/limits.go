package dataplane

import (
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/proxy"
)

// clientFlags bound the time and size of clients' requests; see docs/limits.md.
type clientFlags struct {
	header, idle, stream, grace time.Duration
	rate, body                  flags.Size
}

func (c *clientFlags) flags(f *pflag.FlagSet) {
	c.rate = 256
	f.DurationVar(&c.header, "header-timeout", 10*time.Second, "timeout for a request's head, from its first byte")
	f.DurationVar(&c.idle, "idle-timeout", 75*time.Second, "timeout for a client's connection without a request")
	f.DurationVar(&c.stream, "stream-timeout", 5*time.Minute, "timeout for a body or a tunnel without data, on either side")
	f.Var(&c.rate, "min-body-rate", "minimum bytes per second, on average, that a client must send of a body or read of a response; 0 for no limit")
	f.DurationVar(&c.grace, "body-grace", 30*time.Second, "how far a client may fall behind --min-body-rate, and so how long it may stall")
	f.Var(&c.body, "max-body", "largest request body; 0 for no limit")
}

// apply fills in the server's options.
func (c *clientFlags) apply(o *proxy.Options) error {
	if c.header <= 0 || c.idle <= 0 || c.stream <= 0 || c.grace <= 0 {
		return flags.Errorf("--header-timeout, --idle-timeout, --stream-timeout and --body-grace must be above zero")
	}
	o.HeaderTimeout, o.IdleTimeout, o.StreamTimeout, o.BodyGrace = c.header, c.idle, c.stream, c.grace
	o.MaxBody = int64(c.body)
	if o.MinBodyRate = int(c.rate); c.rate == 0 {
		o.MinBodyRate = -1
	}
	return nil
}
