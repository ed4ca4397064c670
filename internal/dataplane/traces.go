package dataplane

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/tracing"
)

// traceFlags configure traces; see docs/traffic.md.
type traceFlags struct {
	endpoint    string
	headersFile string
	share       sampleShare
	rate        int
}

func (o *traceFlags) flags(f *pflag.FlagSet) {
	if err := o.share.Set("1%"); err != nil {
		panic(err)
	}
	f.StringVar(&o.endpoint, "otlp-endpoint", "", "`URL` of an OpenTelemetry collector to send traces to, by OTLP over HTTP, such as http://collector:4318; empty for no traces")
	f.Var(&o.share, "trace-share", "share of the requests without a traceparent of their client to trace, such as 1/100 or 5%")
	f.IntVar(&o.rate, "trace-rate", tracing.DefaultRate, "maximum `number` of spans a second, since clients may ask for traces; further requests are not traced")
	f.StringVar(&o.headersFile, "otlp-headers-file", "", "`file` with header fields for the collector, such as \"Authorization: Bearer ...\", one a line")
}

// open returns nil if there are no traces. It shows the counts of spans. The collector's address is judged by refuse.
func (o *traceFlags) open(with func(tracing.Export) (tracing.Exporter, error), gateway string, refuse func(netip.AddrPort) string, metrics *telemetry.Registry, log *slog.Logger) (*tracing.Tracer, func() error, error) {
	if o.endpoint == "" {
		if o.headersFile != "" {
			return nil, nil, flags.Errorf("--otlp-headers-file is of no use without --otlp-endpoint")
		}
		return nil, func() error { return nil }, nil
	}
	if o.rate < 1 {
		return nil, nil, flags.Errorf("--trace-rate must be above zero")
	}
	export := tracing.Export{Endpoint: o.endpoint, Refuse: refuse, Version: process.Build().Version, Attributes: map[string]string{}, Logger: log}
	if gateway != "" {
		export.Attributes["weir.gateway"] = gateway
	}
	if name, err := os.Hostname(); err == nil { // in a pod, the pod's
		export.Attributes["host.name"] = name
	}
	if o.headersFile != "" {
		var err error
		if export.Header, err = readHeaders(o.headersFile); err != nil {
			return nil, nil, fmt.Errorf("--otlp-headers-file: %w", err)
		}
	}
	to, err := with(export)
	if err != nil {
		return nil, nil, flags.Errorf("--otlp-endpoint: %w", err)
	}
	t := tracing.New(tracing.Options{Sink: to, Take: o.share.take(), Rate: o.rate})
	metrics.WatchTraces(func() telemetry.Traces {
		c := to.Counts()
		return telemetry.Traces{Exported: c.Exported, Rejected: c.Rejected, Failed: c.Failed, Dropped: c.Dropped, Limited: t.Limited()}
	})
	return t, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), closeTraces)
		defer cancel()
		if err := to.Close(ctx); err != nil {
			log.Warn("the collector did not get the last spans", "reason", err)
		}
		return nil
	}, nil
}

const (
	// closeTraces bounds sending the last spans when the process ends.
	closeTraces = 3 * time.Second
	// maxHeaders bounds a file with header fields, in bytes.
	maxHeaders = 64 << 10
)

func readHeaders(name string) (map[string]string, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fields, err := parseHeaders(io.LimitReader(f, maxHeaders+1))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return fields, nil
}

// parseHeaders reads lines "Name: value". Empty lines and those that begin with # are left out. Errors do not show
// values, which may be secret.
func parseHeaders(r io.Reader) (map[string]string, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, err
	}
	if len(text) > maxHeaders {
		return nil, fmt.Errorf("the file has more than %d bytes", maxHeaders)
	}
	fields := map[string]string{}
	lines := bufio.NewScanner(strings.NewReader(string(text)))
	lines.Buffer(nil, maxHeaders+1)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, value, ok := strings.Cut(line, ":")
		value = strings.TrimSpace(value)
		switch _, twice := fields[name]; {
		case !ok || !http1.ValidToken(name):
			return nil, fmt.Errorf("line %d: want NAME: VALUE", n)
		case !printable(value):
			return nil, fmt.Errorf("line %d: the value of %s has a character that header fields cannot have", n, name)
		case twice:
			return nil, fmt.Errorf("line %d: %s is there twice", n, name)
		}
		fields[name] = value
	}
	if len(fields) == 0 {
		return nil, errors.New("the file has no header fields")
	}
	return fields, lines.Err()
}

// printable reports whether s is of visible ASCII, blanks and tabs.
func printable(s string) bool {
	for i := range len(s) {
		if c := s[i]; c != '\t' && (c < ' ' || c > '~') {
			return false
		}
	}
	return true
}
