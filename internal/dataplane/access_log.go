package dataplane

import (
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/routing"
	"github.com/weirmesh/weir/internal/telemetry"
)

// accessLogFlags configure the access log; see docs/metrics.md.
type accessLogFlags struct {
	where             string
	format            flags.Choice
	maxField          flags.Size
	request, response []string
	unmask            []string
	sample            sampleShare
	minDuration       time.Duration
	statuses          []telemetry.StatusRange
	reasons           []telemetry.Reason
	routes            []string
}

func newAccessLogFlags() accessLogFlags {
	return accessLogFlags{format: flags.NewChoice("json", "text", "text-extended"), maxField: telemetry.DefaultMaxField}
}

func (o *accessLogFlags) flags(f *pflag.FlagSet) {
	f.StringVar(&o.where, "access-log", "off", "`where` to write a line for each request: off, stdout, stderr or a file")
	f.Var(&o.format, "access-log-format", "format of the access log; text is the combined log format, text-extended adds fields to it")
	f.Var(&o.maxField, "access-log-max-field", "maximum length of a field in the access log; 0 for no limit")
	f.Var(listOf("names", &o.request, checked(telemetry.CheckField)), "access-log-request-header", "header fields of requests to log")
	f.Var(listOf("names", &o.response, checked(telemetry.CheckField)), "access-log-response-header", "header fields of responses to log")
	f.Var(listOf("names", &o.unmask, checked(telemetry.CheckField)), "access-log-unmask", "logged header fields with secrets, such as Authorization and Cookie, to show; others are logged as ***")
	f.Var(&o.sample, "access-log-sample", "share of requests to log, such as 1/100 or 5%; requests that failed or took --access-log-min-duration are always logged")
	f.DurationVar(&o.minDuration, "access-log-min-duration", 0, "log requests that took at least this long or failed, and only a sample of the others, none by default")
	f.Var(listOf("statuses", &o.statuses, telemetry.ParseStatuses), "access-log-status", "log only requests with these response statuses: 404, 5xx, 400-428, none")
	f.Var(listOf("reasons", &o.reasons, telemetry.ParseReasons), "access-log-reason", "log only requests that failed for these reasons, or any")
	f.Var(listOf("routes", &o.routes, checked(telemetry.CheckRoute)), "access-log-route", "log only requests of these routes, namespace/name")
}

// options are all but where lines go, and how many may wait.
func (o *accessLogFlags) options() (telemetry.AccessLogOptions, error) {
	out := telemetry.AccessLogOptions{
		Format:   map[string]telemetry.Format{"json": telemetry.JSON, "text": telemetry.Text, "text-extended": telemetry.Extended}[o.format.Value],
		MaxField: int(o.maxField), RequestFields: o.request, ResponseFields: o.response, Unmasked: o.unmask,
		Filter: telemetry.Filter{Statuses: o.statuses, Reasons: o.reasons, Routes: o.routes, MinDuration: o.minDuration, Sample: o.sample.take()},
	}
	if out.MaxField == 0 {
		out.MaxField = -1
	}
	if o.minDuration < 0 {
		return out, flags.Errorf("--access-log-min-duration %v: want 0s or more", o.minDuration)
	}
	for flag, names := range map[string][]string{"--access-log-request-header": o.request, "--access-log-response-header": o.response} {
		if len(names) > telemetry.MaxLogFields {
			return out, flags.Errorf("%s: %d header fields are more than %d", flag, len(names), telemetry.MaxLogFields)
		}
	}
	for _, name := range o.unmask {
		if !telemetry.Names(slices.Concat(o.request, o.response), name) {
			return out, flags.Errorf("--access-log-unmask %s: the field is not logged; add --access-log-request-header %s", name, name)
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

// Type implements pflag.Value; help shows it.
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

// checked makes a parser from a function that returns why a value is invalid.
func checked(check func(string) error) func(string) ([]string, error) {
	return func(s string) ([]string, error) { return []string{s}, check(s) }
}

// sampleShare is a flag for a share that is met exactly.
type sampleShare struct {
	text  string
	share *routing.Share
}

// Type implements pflag.Value; help shows it.
func (s *sampleShare) Type() string { return "share" }

func (s *sampleShare) String() string { return s.text }

func (s *sampleShare) Set(text string) error {
	n, d, err := telemetry.ParseShare(text)
	if err != nil {
		return err
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
