package dataplane

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/telemetry"
)

func TestAccessLogFlagsBecomeOptions(t *testing.T) {
	for args, err := range map[string]string{
		"--access-log-request-header=X-Team,Cookie --access-log-request-header=accept --access-log-response-header=Set-Cookie --access-log-unmask=cookie": "",
		"--access-log-request-header=a:b": "not the name of a header field",
		"--access-log-unmask=Cookie":      "the field is not logged",
		"--access-log-sample=2/1":         "not a share",
		"--access-log-sample=1/0":         "not a share",
		"--access-log-sample=x":           "not a share",
		"--access-log-sample=-1/2":        "not a share",
		"--access-log-min-duration=-1s":   "0s or more",
		"--access-log-status=6":           "not a status",
		"--access-log-status=499-400":     "not a status",
		"--access-log-status=xx":          "not a status",
		"--access-log-reason=none":        "not a reason",
		"--access-log-route=shop":         "not a route",
		"--access-log-format=combined":    "want json, text, text-extended",
		"--access-log-request-header=" + strings.Join(strings.Split(strings.Repeat("a", 33), ""), ","): "33 header fields are more than 32",
	} {
		o := newAccessLogFlags()
		f := pflag.NewFlagSet("test", pflag.ContinueOnError)
		o.flags(f)
		e := f.Parse(strings.Fields(args))
		if e == nil {
			_, e = o.options()
		}
		if (e == nil) != (err == "") || e != nil && !strings.Contains(e.Error(), err) {
			t.Errorf("%s: %v, want %q", args, e, err)
		}
	}

	o := newAccessLogFlags()
	f := pflag.NewFlagSet("test", pflag.ContinueOnError)
	o.flags(f)
	if err := f.Parse(strings.Fields("--access-log-format=text-extended --access-log-max-field=0 --access-log-sample=0.5% --access-log-min-duration=2s " +
		"--access-log-status=2xx,404,500-502,none --access-log-reason=no_route,backend_reset --access-log-route=a/b,c/d")); err != nil {
		t.Fatal(err)
	}
	got, err := o.options()
	if err != nil {
		t.Fatal(err)
	}
	if got.Format != telemetry.Extended || got.MaxField != -1 || got.Filter.MinDuration != 2*time.Second ||
		!slices.Equal(got.Filter.Statuses, []telemetry.StatusRange{{From: 200, To: 299}, {From: 404, To: 404}, {From: 500, To: 502}, {}}) ||
		!slices.Equal(got.Filter.Reasons, []telemetry.Reason{telemetry.NoRoute, telemetry.BackendReset}) || !slices.Equal(got.Filter.Routes, []string{"a/b", "c/d"}) {
		t.Errorf("%+v", got)
	}
	taken := 0
	for range 2000 {
		if got.Filter.Sample() {
			taken++
		}
	}
	if taken != 10 {
		t.Errorf("%d of 2000 are taken, want 10", taken)
	}
}
