package dataplane

import (
	"strings"
	"testing"
	"time"

	"github.com/weirmesh/weir/internal/mirror"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/telemetry"
)

func TestFindingsOfDroppedCopiesNameTheFlagThatHelps(t *testing.T) {
	m := mirrorFlags{bytes: 64 << 20, copyBytes: 8 << 20, timeout: 5 * time.Second}
	for _, c := range []struct {
		drop                       mirror.Drop
		code, reason, fix, another string
	}{
		{mirror.Drop{Cause: mirror.DropInFlight, Bound: 512, Enough: 1024}, "WR806", "more than 512 would be in flight", "set --mirror-max-in-flight 1024", ""},
		{mirror.Drop{Cause: mirror.DropBytes, Bound: 64 << 20, Enough: 128 << 20}, "WR806", "more than 64MiB would wait", "set --mirror-max-bytes 128MiB", ""},
		{mirror.Drop{Cause: mirror.DropBuffered, Bound: 100 << 20, Enough: 200 << 20}, "WR806", "would exceed 100MiB", "set --max-buffered 200MiB", ""},
		{mirror.Drop{Cause: mirror.DropBody, Bound: 8 << 20, Enough: 16 << 20}, "WR806", "more than 8MiB behind", "set --mirror-max-copy-bytes 16MiB", ""},
		{mirror.Drop{Cause: mirror.DropBody, Bound: 8 << 20, Enough: 64 << 20}, "WR806", "more than 8MiB behind", "set --mirror-max-copy-bytes 64MiB", "and --mirror-max-bytes 128MiB"},
		{mirror.Drop{Cause: mirror.DropFailing, Bound: 10, Failure: telemetry.MirrorFailedConnect}, "WR807", "failed 10 times in a row (failed_connect)", "accept connections", ""},
		{mirror.Drop{Cause: mirror.DropFailing, Bound: 10, Failure: telemetry.MirrorFailedTimeout}, "WR807", "(failed_timeout)", "--mirror-timeout to more than 5s", ""},
	} {
		c.drop.Service = "default/copies:80"
		c.drop.Ref = model.Ref{Kind: "HTTPRoute", Namespace: "default", Name: "shop", Field: "spec.rules[0].filters[0]"}
		all := m.dropped([]mirror.Drop{c.drop})
		if len(all) != 1 {
			t.Fatalf("%v: %d findings", c.drop, len(all))
		}
		f := all[0]
		if f.Code != c.code || f.Ref != c.drop.Ref || !strings.Contains(f.Message, c.reason) || !strings.Contains(f.Message, "default/copies:80") ||
			!strings.Contains(f.Fix, c.fix) || !strings.Contains(f.Fix, c.another) {
			t.Errorf("%s %s; %s", f.Code, f.Message, f.Fix)
		}
	}
}
