package dataplane

import (
	"bytes"
	"log/slog"
	"math"
	"strings"
	"testing"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/proxy"
)

// Whatever the machine, descriptors are left when clients, endpoints and mirrors have all they may have.
func TestBoundsSuitTheMachine(t *testing.T) {
	for _, x := range []struct {
		m    process.Machine
		want bounds
	}{
		{process.Machine{Memory: 64 << 20, Files: 1024}, bounds{inFlight: 128, connections: 448, endpoints: 358, relays: 74, buffered: 8 << 20, lines: 1 << 20}},
		{process.Machine{Memory: 512 << 20, Files: 1 << 20}, bounds{inFlight: 1024, connections: 8192, endpoints: 367000, relays: 76458, buffered: 64 << 20, lines: 4 << 20}},
		{process.Machine{Memory: 16 << 30, Files: 1024}, bounds{inFlight: 358, connections: 448, endpoints: 358, relays: 74, buffered: 2 << 30, lines: 4 << 20}},
		{process.Machine{Memory: 16 << 30, Files: 1 << 20}, bounds{inFlight: 32768, connections: 262144, endpoints: 367000, relays: 76458, buffered: 2 << 30, lines: 4 << 20}},
		{process.Machine{Memory: math.MaxInt64}, bounds{inFlight: 858993458, connections: 1073741823, endpoints: 858993458, relays: 178956970, buffered: math.MaxInt64 / 8, lines: 4 << 20}},
		{process.Machine{Memory: 1 << 20, Files: 70}, bounds{inFlight: 24, connections: 32, endpoints: 24, relays: 8, buffered: 1 << 20, lines: 256 << 10}},
	} {
		b := boundsOf(x.m)
		if b != x.want {
			t.Errorf("%+v: %+v, want %+v", x.m, b, x.want)
		}
		if all := b.connections + b.endpoints + b.endpoints/4; x.m.Files > 100 && all > x.m.Files-fewestFiles {
			t.Errorf("%+v: %d connections of %d descriptors", x.m, all, x.m.Files)
		}
	}
}

func TestLoadFlags(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	m := process.Machine{Memory: 1 << 30, Files: 10000}
	var o proxy.Options
	l := loadFlags{inFlight: flags.Automatic, connections: flags.Automatic, relays: flags.Automatic, buffered: flags.SizeBound(flags.Automatic)}
	if err := l.apply(&o, m, logger); err != nil || o.MaxInFlight != 2048 || o.MaxConnections != 4375 || o.Upstream.MaxConnections != 3500 || o.Upstream.MaxRelays != 729 || o.MaxBuffered != 128<<20 {
		t.Errorf("%v: %+v", err, o)
	}
	if strings.Contains(log.String(), "WARN") {
		t.Error(log.String())
	}
	if err := l.connections.Set("9000"); err != nil {
		t.Fatal(err)
	}
	if err := l.inFlight.Set("0"); err != nil {
		t.Fatal(err)
	}
	if err := l.apply(&o, m, logger); err != nil || o.MaxInFlight != 0 || o.MaxConnections != 9000 || !strings.Contains(log.String(), "too few descriptors") {
		t.Errorf("%v: %+v\n%s", err, o, log.String())
	}
	for _, bad := range []string{"", "-1", "many", "1e3"} {
		if l.inFlight.Set(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	for s, want := range map[string]int64{"0": 0, "9MiB": 9 << 20, "auto": 128 << 20} {
		if err := l.buffered.Set(s); err != nil || l.buffered.String() != s || l.apply(&o, m, logger) != nil || o.MaxBuffered != want {
			t.Errorf("%s: %v, %v, %d", s, err, &l.buffered, o.MaxBuffered)
		}
	}
	for _, bad := range []string{"", "-1", "many", "1TiB"} {
		if l.buffered.Set(bad) == nil {
			t.Errorf("%q is taken", bad)
		}
	}
	if l.inFlight.String() != "0" || (&l).apply(&o, m, logger) != nil {
		t.Error("a bad value changed the flag")
	}
	if l.delay = -1; l.apply(&o, m, logger) == nil {
		t.Error("a negative delay is taken")
	}
}
