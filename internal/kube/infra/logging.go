package infra

import (
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weirmesh/weir/internal/telemetry"
)

// args are the flags that are set.
func (o *AccessLogOptions) args() []string {
	duration := ""
	if o.MinDuration != nil {
		duration = o.MinDuration.Duration.String()
	}
	return flags("access-log-", []setting{
		{"format", o.Format}, {"request-header", list(o.RequestHeaders)}, {"response-header", list(o.ResponseHeaders)}, {"unmask", list(o.Unmask)},
		{"sample", o.Sample}, {"min-duration", duration}, {"status", list(o.Statuses)}, {"reason", list(o.Reasons)}, {"route", list(o.Routes)},
	})
}

// args are the flags that are set.
func (r *RequestID) args() []string {
	answer := ""
	if r.InAnswer != nil {
		answer = strconv.FormatBool(*r.InAnswer)
	}
	return flags("request-id", []setting{{"", r.Mode}, {"-header", r.Header}, {"-answer", answer}})
}

// setting is a flag and its value.
type setting struct{ name, value string }

func flags(prefix string, settings []setting) (args []string) {
	for _, s := range settings {
		if s.value != "" {
			args = append(args, "--"+prefix+s.name+"="+s.value)
		}
	}
	return args
}

func list(values []string) string { return strings.Join(values, ",") }

func (o *AccessLogOptions) validate(path *field.Path) field.ErrorList {
	errs := oneOf(path.Child("format"), o.Format, "json", "text", "text-extended")
	for _, l := range []struct {
		name   string
		values []string
		check  func(string) error
		most   int
	}{
		{"requestHeaders", o.RequestHeaders, telemetry.CheckField, telemetry.MaxLogFields},
		{"responseHeaders", o.ResponseHeaders, telemetry.CheckField, telemetry.MaxLogFields},
		{"unmask", o.Unmask, telemetry.CheckField, 2 * telemetry.MaxLogFields},
		{"statuses", o.Statuses, func(s string) error { _, err := telemetry.ParseStatuses(s); return err }, maxFilters},
		{"reasons", o.Reasons, func(s string) error { _, err := telemetry.ParseReasons(s); return err }, maxFilters},
		{"routes", o.Routes, telemetry.CheckRoute, maxFilters},
	} {
		at := path.Child(l.name)
		if len(l.values) > l.most {
			errs = append(errs, field.TooMany(at, len(l.values), l.most))
			continue
		}
		for i, v := range l.values {
			if err := l.check(v); err != nil {
				errs = append(errs, field.Invalid(at.Index(i), v, err.Error()))
			}
		}
	}
	for i, name := range o.Unmask {
		if !telemetry.Names(o.RequestHeaders, name) && !telemetry.Names(o.ResponseHeaders, name) {
			errs = append(errs, field.Invalid(path.Child("unmask").Index(i), name, "must be one of requestHeaders or responseHeaders"))
		}
	}
	if o.Sample != "" {
		if _, _, err := telemetry.ParseShare(o.Sample); err != nil {
			errs = append(errs, field.Invalid(path.Child("sample"), o.Sample, err.Error()))
		}
	}
	if d := o.MinDuration; d != nil && d.Duration < 0 {
		errs = append(errs, field.Invalid(path.Child("minDuration"), d.Duration.String(), "must be 0s or more"))
	}
	return errs
}

// maxFilters bounds the lists by which lines are chosen: each line looks through them.
const maxFilters = 100

func (r *RequestID) validate(path *field.Path) field.ErrorList {
	errs := oneOf(path.Child("mode"), r.Mode, "on", "trusted", "off")
	if r.Header != "" {
		if err := telemetry.CheckIDField(r.Header); err != nil {
			errs = append(errs, field.Invalid(path.Child("header"), r.Header, err.Error()))
		}
	}
	return errs
}
