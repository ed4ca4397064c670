package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/internal/control"
	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/telemetry"
)

func newRun(s streams) *cobra.Command {
	o := runOptions{
		logFormat:       newChoice("text", "json"),
		logLevel:        newChoice("info", "debug", "warn", "error"),
		accessLogFormat: newChoice("json", "text"),
	}
	cmd := &cobra.Command{
		Use:   "run PATH...",
		Short: "Serve files and folders; changes to them apply at once",
		Long: `Run reads Gateway API and SMI YAML or JSON from files and folders (or once from
the standard input, with -) and serves traffic by it. Files are watched: what
changes is applied without dropping a request, what is broken is reported and
the last good version stays. SIGHUP reads everything once more, SIGUSR1 opens
the access log's file anew. SIGTERM or SIGINT drains: listeners close, requests in flight finish. A second one ends
the process at once. A second process with the same --handover takes over the
ports, and the first one drains once it serves: no connection is refused or
lost in between.`,
		Example: `  weir run routes/
  weir run --port-offset 8000 routes/          port 80 becomes 8080, for a try without root
  weir run --access-log stdout routes/
  kustomize build . | weir run -`,
		Args: atLeastOnePath,
	}
	f := cmd.Flags()
	f.StringVar(&o.admin, "admin", "127.0.0.1:15000", "`address` of the admin endpoint (metrics, health, configuration), or off")
	f.StringVar(&o.address, "address", "", "IP `address` to listen on instead of the Gateways' own")
	f.IntVar(&o.portOffset, "port-offset", 0, "`number` to add to each listener's port")
	f.DurationVar(&o.drain, "drain-timeout", 30*time.Second, "how long requests in flight may take when the process ends")
	f.DurationVar(&o.drainDelay, "drain-delay", 0, "how long to go on taking connections after SIGTERM, with /readyz at 503 already")
	f.StringVar(&o.handover, "handover", "", "`path` of a Unix socket by which a second process takes over the ports of a first")
	f.Var(&o.logFormat, "log-format", "format of the process's log, on stderr")
	f.Var(&o.logLevel, "log-level", "least level of the process's log")
	f.StringVar(&o.accessLog, "access-log", "off", "`where` to write a line for each request: off, stdout, stderr or a file")
	f.Var(&o.accessLogFormat, "access-log-format", "format of the access log")
	o.client.flags(f)
	o.load.flags(f)
	o.mirror.flags(f)
	o.translation = translation(cmd)
	fromEnvironment(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		ctx, stop := signalContext(cmd.Context())
		defer stop()
		return o.run(ctx, s, args)
	}
	return cmd
}

type runOptions struct {
	admin, address      string
	portOffset          int
	drain, drainDelay   time.Duration
	handover            string
	logFormat, logLevel choice
	accessLog           string
	accessLogFormat     choice
	client              clientFlags
	load                loadFlags
	mirror              mirrorFlags
	translation         *control.Options
}

func (o *runOptions) run(ctx context.Context, s streams, paths []string) error {
	log, processLog, closeProcessLog := newProcessLog(s.err, o.logFormat.value, o.logLevel.value)
	defer closeProcessLog()
	ignoreBrokenPipes()
	adjust, err := relocate(o.address, o.portOffset)
	if err != nil {
		return err
	}
	mirror, err := o.mirror.options()
	if err != nil {
		return err
	}
	options := proxy.Options{Logger: log, Mirror: mirror, DrainTimeout: o.drain}
	if err := o.client.apply(&options); err != nil {
		return err
	}
	source, err := openSource(paths, s.in, hangups(ctx), log)
	if err != nil {
		return err
	}
	if err := o.load.apply(&options, thisMachine(), log); err != nil {
		return err
	}
	accessLog, closeLog, err := o.openAccessLog(s, log)
	if err != nil {
		return err
	}
	var handover *handover
	if o.handover != "" {
		if handover, err = newHandover(o.handover, log); err != nil {
			return err
		}
		defer handover.close()
	}
	metrics := telemetry.NewRegistry(telemetry.Options{Version: readBuildInfo().Version})
	metrics.WatchAccessLog(accessLog)
	metrics.WatchProcessLog(processLog)
	options.Metrics, options.AccessLog, options.Listen = metrics, accessLog, handover.listen
	g := &gateway{
		source:       source,
		metrics:      metrics,
		log:          log,
		adminAddress: o.admin,
		adjust:       adjust,
		options:      *o.translation,
		drainDelay:   o.drainDelay,
		handover:     handover,
		server:       proxy.New(options),
	}
	err = g.run(ctx)
	if e := closeLog(); err == nil {
		err = e
	}
	if err == nil {
		log.Info("stopped")
	}
	return err
}

// openAccessLog returns nil for "off".
func (o *runOptions) openAccessLog(s streams, log *slog.Logger) (*telemetry.AccessLog, func() error, error) {
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
	l := telemetry.NewAccessLog(w, telemetry.AccessLogOptions{Format: format, Logger: log})
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

// newProcessLog is the process's log, which never waits for w: whoever reads it may stop to. The last function writes what is left.
func newProcessLog(w io.Writer, format, level string) (*slog.Logger, *telemetry.Lines, func()) {
	lines := telemetry.NewLines(w, telemetry.LinesOptions{Name: "log", QueueBytes: 1 << 20})
	log := newLogger(lines, format, level)
	lines.TellOwn(log)
	return log, lines, func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = lines.Close(ctx) // there is nowhere to tell
	}
}

func newLogger(w io.Writer, format, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: l}
	if format == "json" {
		return slog.New(slog.NewJSONHandler(w, options))
	}
	return slog.New(slog.NewTextHandler(w, options))
}
