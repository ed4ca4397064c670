package infra

import (
	"strconv"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/tracing"
)

// Tracing configures traces (docs/traffic.md). Where proxies send them is guarded, see guarded.
type Tracing struct {
	// Endpoint is the collector's URL, the flag --otlp-endpoint of "weir proxy". Without it there are no traces.
	Endpoint string `json:"endpoint,omitempty"`
	// Share is the share of the requests without a client's trace to trace, --trace-share.
	Share string `json:"share,omitempty"`
	// Rate is the maximum number of spans a second of each proxy, --trace-rate.
	Rate *int32 `json:"rate,omitempty"`
}

// args are the flags that are set.
func (t *Tracing) args() []string {
	rate := ""
	if t.Rate != nil {
		rate = strconv.Itoa(int(*t.Rate))
	}
	return flags("", []setting{{"otlp-endpoint", t.Endpoint}, {"trace-share", t.Share}, {"trace-rate", rate}})
}

// validate judges as the flags do.
func (t *Tracing) validate(path *field.Path) field.ErrorList {
	var errs field.ErrorList
	if t.Endpoint != "" {
		if _, err := tracing.Endpoint(t.Endpoint); err != nil {
			errs = append(errs, field.Invalid(path.Child("endpoint"), field.OmitValueType{}, err.Error()))
		}
	}
	if t.Share != "" {
		if _, _, err := telemetry.ParseShare(t.Share); err != nil {
			errs = append(errs, field.Invalid(path.Child("share"), t.Share, err.Error()))
		}
	}
	if t.Rate != nil && *t.Rate < 1 {
		errs = append(errs, field.Invalid(path.Child("rate"), *t.Rate, "must be 1 or more"))
	}
	return errs
}
