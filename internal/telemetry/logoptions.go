package telemetry

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/weirmesh/weir/internal/http1"
)

// These functions judge a user's settings of the access log, for flags and for parameters of Gateways alike.

// CheckField returns why no header field can have this name.
func CheckField(name string) error {
	if !http1.ValidToken(name) {
		return fmt.Errorf("%q is not the name of a header field", name)
	}
	return nil
}

// CheckRoute returns why no route can have this name.
func CheckRoute(s string) error {
	if namespace, name, ok := strings.Cut(s, "/"); !ok || namespace == "" || name == "" || strings.ContainsAny(name, "/,") {
		return fmt.Errorf("%q is not a route: want namespace/name", s)
	}
	return nil
}

// CheckIDField returns why a header field of this name cannot hold the id of requests.
func CheckIDField(name string) error {
	f := http1.Field{Name: name, ID: http1.Identify(name)}
	switch {
	case !http1.ValidToken(name) || f.ID == http1.FieldIrregular:
		return errors.New("want a name of letters, digits and hyphens")
	case f.ID != http1.FieldOther && f.ID != http1.FieldXRequestID, http1.Vouched(&f), Secret(name):
		return errors.New("the field has another use")
	}
	return nil
}

// Names reports whether a header field is among names.
func Names(names []string, name string) bool {
	return slices.ContainsFunc(names, func(n string) bool { return strings.EqualFold(n, name) })
}

// ParseReasons reads a reason, or "any".
func ParseReasons(s string) ([]Reason, error) {
	all := Reasons()
	if s == "any" {
		return all, nil
	}
	if !slices.Contains(all, Reason(s)) {
		return nil, fmt.Errorf("%q is not a reason: want any, or one of docs/metrics.md#reasons such as no_route, connect_failed, backend_timeout", s)
	}
	return []Reason{Reason(s)}, nil
}

// ParseStatuses reads a status such as 404, a class such as 5xx, a range such as 400-428, or "none".
func ParseStatuses(s string) ([]StatusRange, error) {
	bad := fmt.Errorf("%q is not a status: want one such as 404, a class such as 5xx, a range such as 400-428, or none", s)
	if s == "none" {
		return []StatusRange{{}}, nil
	}
	if class, ok := strings.CutSuffix(strings.ToLower(s), "xx"); ok {
		n, err := strconv.Atoi(class)
		if err != nil || n < 1 || n > 9 {
			return nil, bad
		}
		return []StatusRange{{n * 100, n*100 + 99}}, nil
	}
	from, to, ok := strings.Cut(s, "-")
	if !ok {
		to = from
	}
	low, err := strconv.Atoi(from)
	high, e := strconv.Atoi(to)
	if err != nil || e != nil || low < 100 || high > 999 || low > high {
		return nil, bad
	}
	return []StatusRange{{low, high}}, nil
}

// maxShare is the largest denominator of a share.
const maxShare = 1_000_000_000

// ParseShare reads a share such as 1/100, 0.5%, 0 or 1: numerator of denominator, not reduced.
func ParseShare(s string) (numerator, denominator uint64, err error) {
	above, below, ok := strings.Cut(s, "/")
	if percent, is := strings.CutSuffix(s, "%"); is && !ok {
		// The digits behind the point make the denominator: 0.5% is 5 of 1000.
		whole, part, _ := strings.Cut(percent, ".")
		above, below = whole+part, "1"+strings.Repeat("0", 2+min(len(part), 20))
	} else if !ok {
		below = "1"
	}
	n, err := strconv.ParseUint(above, 10, 64)
	d, e := strconv.ParseUint(below, 10, 64)
	if err != nil || e != nil || d == 0 || d > maxShare || n > d {
		return 0, 0, fmt.Errorf("%q is not a share: want one such as 1/100, 5%%, 0 or 1", s)
	}
	return n, d, nil
}
