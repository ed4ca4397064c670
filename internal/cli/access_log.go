package cli

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// accessLogFlags say what is in the access log; see docs/metrics.md.
type accessLogFlags struct {
	where             string
	format            choice
	maxField          byteSize
	request, response []string
	unmask            []string
	sample            sampleShare
	minDuration       time.Duration
	statuses          []telemetry.StatusRange
	reasons           []telemetry.Reason
	routes            []string
}

func newAccessLogFlags() accessLogFlags {
	return accessLogFlags{format: newChoice("json", "text", "text-extended"), maxField: telemetry.DefaultMaxField}
}

func (o *accessLogFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&o.where, "access-log", "off", "`where` to write a line for each request: off, stdout, stderr or a file")
	f.Var(&o.format, "access-log-format", "format of the access log; text is the combined log format, text-extended has more behind it")
	f.Var(&o.maxField, "access-log-max-field", "longest field of a line of the access log; 0 for no bound")
	f.Var(listOf("names", &o.request, fieldName), "access-log-request-header", "header fields of requests to log")
	f.Var(listOf("names", &o.response, fieldName), "access-log-response-header", "header fields of answers to log")
	f.Var(listOf("names", &o.unmask, fieldName), "access-log-unmask", "which of them to log although they are secrets, such as Authorization and Cookie, for which there is *** otherwise")
	f.Var(&o.sample, "access-log-sample", "share of requests to log, such as 1/100 or 5%; those that failed, or took --access-log-min-duration, always are")
	f.DurationVar(&o.minDuration, "access-log-min-duration", 0, "log requests that took at least so long, those that failed, and of the others only a sample, none by default")
	f.Var(listOf("statuses", &o.statuses, statusRange), "access-log-status", "log only requests that were answered so: 404, 5xx, 400-428, none")
	f.Var(listOf("reasons", &o.reasons, failureReason), "access-log-reason", "log only requests that failed for these reasons, or any")
	f.Var(listOf("routes", &o.routes, routeName), "access-log-route", "log only requests of these routes, namespace/name")
}

// options are all but where lines go, and how many may wait.
func (o *accessLogFlags) options() (telemetry.AccessLogOptions, error) {
	out := telemetry.AccessLogOptions{
		Format:   map[string]telemetry.Format{"json": telemetry.JSON, "text": telemetry.Text, "text-extended": telemetry.Extended}[o.format.value],
		MaxField: int(o.maxField), RequestFields: o.request, ResponseFields: o.response, Unmasked: o.unmask,
		Filter: telemetry.Filter{Statuses: o.statuses, Reasons: o.reasons, Routes: o.routes, MinDuration: o.minDuration, Sample: o.sample.take()},
	}
	if out.MaxField == 0 {
		out.MaxField = -1
	}
	if o.minDuration < 0 {
		return out, usageError("--access-log-min-duration %v: want 0s or more", o.minDuration)
	}
	for flag, names := range map[string][]string{"--access-log-request-header": o.request, "--access-log-response-header": o.response} {
		if len(names) > telemetry.MaxLogFields {
			return out, usageError("%s: %d header fields are more than %d", flag, len(names), telemetry.MaxLogFields)
		}
	}
	for _, name := range o.unmask {
		if !slices.ContainsFunc(slices.Concat(o.request, o.response), func(n string) bool { return strings.EqualFold(n, name) }) {
			return out, usageError("--access-log-unmask %s: the field is not logged; add --access-log-request-header %s", name, name)
		}
	}
	return out, nil
}

// list is a flag whose values are separated by commas, or given with the flag repeated.
type list[T any] struct {
	kind  string
	to    *[]T
	parse func(string) ([]T, error)
	shown []string
}

func listOf[T any](kind string, to *[]T, parse func(string) ([]T, error)) *list[T] {
	return &list[T]{kind: kind, to: to, parse: parse}
}

// Type implements pflag.Value; it is what help shows.
func (l *list[T]) Type() string { return l.kind }

func (l *list[T]) String() string { return strings.Join(l.shown, ",") }

// Set adds to the list.
func (l *list[T]) Set(text string) error {
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		values, err := l.parse(part)
		if err != nil {
			return err
		}
		*l.to, l.shown = append(*l.to, values...), append(l.shown, part)
	}
	return nil
}

func fieldName(s string) ([]string, error) {
	if !http1.ValidToken(s) {
		return nil, fmt.Errorf("%q is no name of a header field", s)
	}
	return []string{s}, nil
}

func routeName(s string) ([]string, error) {
	if namespace, name, ok := strings.Cut(s, "/"); !ok || namespace == "" || name == "" || strings.Contains(name, "/") {
		return nil, fmt.Errorf("%q is no route: want namespace/name", s)
	}
	return []string{s}, nil
}

func failureReason(s string) ([]telemetry.Reason, error) {
	all := telemetry.Reasons()
	if s == "any" {
		return all, nil
	}
	if !slices.Contains(all, telemetry.Reason(s)) {
		return nil, fmt.Errorf("%q is no reason: want any, or one of docs/metrics.md#reasons such as no_route, connect_failed, backend_timeout", s)
	}
	return []telemetry.Reason{telemetry.Reason(s)}, nil
}

func statusRange(s string) ([]telemetry.StatusRange, error) {
	bad := fmt.Errorf("%q is no status: want one such as 404, a class such as 5xx, a range such as 400-428, or none", s)
	if s == "none" {
		return []telemetry.StatusRange{{}}, nil
	}
	if class, ok := strings.CutSuffix(strings.ToLower(s), "xx"); ok {
		n, err := strconv.Atoi(class)
		if err != nil || n < 1 || n > 9 {
			return nil, bad
		}
		return []telemetry.StatusRange{{From: n * 100, To: n*100 + 99}}, nil
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
	return []telemetry.StatusRange{{From: low, To: high}}, nil
}

// sampleShare is a flag for a share that is met exactly.
type sampleShare struct {
	text  string
	share *routing.Share
}

// Type implements pflag.Value; it is what help shows.
func (s *sampleShare) Type() string { return "share" }

func (s *sampleShare) String() string { return s.text }

func (s *sampleShare) Set(text string) error {
	numerator, denominator, ok := strings.Cut(text, "/")
	if percent, is := strings.CutSuffix(text, "%"); is && !ok {
		// The digits behind the point make the denominator: 0.5% is 5 of 1000.
		whole, part, _ := strings.Cut(percent, ".")
		numerator, denominator = whole+part, "1"+strings.Repeat("0", 2+len(part))
	} else if !ok {
		denominator = "1"
	}
	n, err := strconv.ParseUint(numerator, 10, 64)
	d, e := strconv.ParseUint(denominator, 10, 64)
	if err != nil || e != nil {
		return fmt.Errorf("%q is no share: want one such as 1/100, 5%%, 0 or 1", text)
	}
	share, err := routing.NewShare(n, d)
	if err != nil {
		return err
	}
	s.text, s.share = text, share
	return nil
}

// take is nil if no share was asked for.
func (s *sampleShare) take() func() bool {
	if s.share == nil {
		return nil
	}
	return s.share.Take
}
