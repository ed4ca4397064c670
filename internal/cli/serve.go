package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/telemetry"
)

// serveFlags are those of every command that is a data plane.
type serveFlags struct {
	admin             string
	drain, drainDelay time.Duration
	log               logFlags
	accessLog         string
	accessLogFormat   choice
	client            clientFlags
	load              loadFlags
	mirror            mirrorFlags
}

func newServeFlags() serveFlags {
	return serveFlags{log: newLogFlags(), accessLogFormat: newChoice("json", "text")}
}

func (o *serveFlags) flags(f *pflag.FlagSet, admin string) {
	f.StringVar(&o.admin, "admin", admin, "`address` of the admin endpoint (metrics, health, configuration), or off")
	f.DurationVar(&o.drain, "drain-timeout", 30*time.Second, "how long requests in flight may take when the process ends")
	f.DurationVar(&o.drainDelay, "drain-delay", 0, "how long to go on taking connections after SIGTERM, with /readyz at 503 already")
	o.log.flags(f)
	f.StringVar(&o.accessLog, "access-log", "off", "`where` to write a line for each request: off, stdout, stderr or a file")
	f.Var(&o.accessLogFormat, "access-log-format", "format of the access log")
	o.client.flags(f)
	o.load.flags(f)
	o.mirror.flags(f)
}

// open makes the data plane, which logs to log. The last function is to be called when it has ended.
func (o *serveFlags) open(s streams, log *slog.Logger, processLog *telemetry.Lines, handover *handover) (*dataPlane, func() error, error) {
	mirror, err := o.mirror.options()
	if err != nil {
		return nil, nil, err
	}
	options := proxy.Options{Logger: log, Mirror: mirror, DrainTimeout: o.drain}
	if err := o.client.apply(&options); err != nil {
		return nil, nil, err
	}
	machine := thisMachine()
	collectWithin(groupMemory())
	if err := o.load.apply(&options, machine, log); err != nil {
		return nil, nil, err
	}
	accessLog, closeLog, err := o.openAccessLog(s, log, machine.bounds().lines)
	if err != nil {
		return nil, nil, err
	}
	metrics := telemetry.NewRegistry(telemetry.Options{Version: readBuildInfo().Version})
	metrics.WatchAccessLog(accessLog)
	metrics.WatchProcessLog(processLog)
	options.Metrics, options.AccessLog, options.Listen = metrics, accessLog, handover.listen
	return &dataPlane{
		server: proxy.New(options), metrics: metrics, log: log, adminAddress: o.admin, drainDelay: o.drainDelay, handover: handover,
	}, closeLog, nil
}

// openAccessLog returns nil for "off"; lines is how many bytes of lines may wait.
func (o *serveFlags) openAccessLog(s streams, log *slog.Logger, lines int) (*telemetry.AccessLog, func() error, error) {
	var w io.Writer
	closeFile, renamed := func() error { return nil }, func() {}
	switch o.accessLog {
	case "", "off":
		stop := onRotate(renamed)
		return nil, func() error { stop(); return nil }, nil
	case "stdout":
		w = s.out
	case "stderr":
		w = s.err
	default:
		file, err := telemetry.OpenLogFile(o.accessLog, log)
		if err != nil {
			return nil, nil, fmt.Errorf("--access-log: %w", err)
		}
		w, closeFile, renamed = file, file.Close, file.Follow
	}
	format := telemetry.JSON
	if o.accessLogFormat.value == "text" {
		format = telemetry.Text
	}
	stop := onRotate(renamed)
	l := telemetry.NewAccessLog(w, telemetry.AccessLogOptions{Format: format, QueueBytes: lines, Logger: log})
	return l, func() error {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		stop()
		err := l.Close(ctx)
		if e := closeFile(); err == nil {
			err = e
		}
		return err
	}, nil
}
