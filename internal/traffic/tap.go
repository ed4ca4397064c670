package traffic

import (
	"fmt"
	"strings"

	"github.com/weirmesh/weir/internal/telemetry"
)

// TapLine is a request that ended, on one line: when, between whom, what was asked, and how it ended.
//
//	12:00:01.250  Gateway shop/web -> Pod shop/cart-1  GET shop.example/cart  200  3.2ms
func TapLine(x *telemetry.Tapped) string {
	var sides []string
	for i, s := range []telemetry.Side{x.From, x.At, x.To} {
		if s != (telemetry.Side{}) || i == 0 && x.To == (telemetry.Side{}) {
			sides = append(sides, s.String())
		}
	}
	status := fmt.Sprint(x.Status)
	if x.Status == 0 {
		status = "none"
	}
	if x.Reason != "" {
		status += " " + string(x.Reason)
	}
	if x.Attempts > 1 {
		status += fmt.Sprintf(" (%d attempts)", x.Attempts)
	}
	return fmt.Sprintf("%s  %s  %s %s%s  %s  %s", x.Time.Local().Format("15:04:05.000"), strings.Join(sides, " -> "), x.Method, x.Host, x.Path, status, Latency(x.Duration))
}

// TapEnd says how much of what matched a tap showed; empty if it was all.
func TapEnd(c telemetry.TapCounts) string {
	if c.Shown >= c.Matched {
		return ""
	}
	return fmt.Sprintf("%d of %d requests were shown, the others came faster than --rate allows, or than they were read", c.Shown, c.Matched)
}

// TapProxies says how many proxies of a cluster take part in a tap; empty for a tap of one process.
func TapProxies(c telemetry.TapCounts) string {
	count := func(n int, one, many string) string {
		if n == 1 {
			return "1 proxy " + one
		}
		return fmt.Sprintf("%d proxies %s", n, many)
	}
	switch {
	case c.Proxies+c.Silent == 0:
		return ""
	case c.Silent == 0:
		return count(c.Proxies, "takes part", "take part")
	}
	return count(c.Proxies, "takes part", "take part") + ", " + count(c.Silent, "does not answer", "do not answer")
}
