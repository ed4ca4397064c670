package cli

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/proxy"
	"github.com/weirmesh/weir/internal/reach"
	"github.com/weirmesh/weir/internal/telemetry"
)

// serveFlags are those of every command that is a data plane.
type serveFlags struct {
	admin             string
	access            adminAccess
	reach             choice
	drain, drainDelay time.Duration
	log               logFlags
	accessLog         string
	accessLogFormat   choice
	accessLogMaxField byteSize
	fields            fieldFlags
	client            clientFlags
	load              loadFlags
	mirror            mirrorFlags
}

func newServeFlags() serveFlags {
	return serveFlags{log: newLogFlags(), accessLogFormat: newChoice("json", "text"), accessLogMaxField: telemetry.DefaultMaxField, fields: newFieldFlags()}
}

// flags adds them; the first reach is the default.
func (o *serveFlags) flags(f *pflag.FlagSet, admin string, reach ...string) {
	o.reach = newChoice(reach...)
	f.StringVar(&o.admin, "admin", admin, "`address` of the admin endpoint (metrics, health, configuration), or off")
	f.StringVar(&o.access.tokenFile, "admin-token-file", "", "`file` with the token that all of it but metrics and health asks for; without one that is for the machine itself")
	f.Var(&o.reach, "reach", "which addresses endpoints may have: any, or cluster for none that is loopback, link-local, a cloud's metadata or this machine's own")
	f.DurationVar(&o.drain, "drain-timeout", 30*time.Second, "how long requests in flight may take when the process ends")
	f.DurationVar(&o.drainDelay, "drain-delay", 0, "how long to go on taking connections after SIGTERM, with /readyz at 503 already")
	o.log.flags(f)
	f.StringVar(&o.accessLog, "access-log", "off", "`where` to write a line for each request: off, stdout, stderr or a file")
	f.Var(&o.accessLogFormat, "access-log-format", "format of the access log")
	f.Var(&o.accessLogMaxField, "access-log-max-field", "longest field of a line of the access log; 0 for no bound")
	o.fields.flags(f)
	o.client.flags(f)
	o.load.flags(f)
	o.mirror.flags(f)
}

// open makes the data plane, which logs to log. The last function is to be called when it has ended.
func (o *serveFlags) open(s streams, log *slog.Logger, processLog *telemetry.Lines, handover *handover) (*dataPlane, func() error, error) {
	if err := o.access.check(); err != nil {
		return nil, nil, err
	}
	mirror, err := o.mirror.options()
	if err != nil {
		return nil, nil, err
	}
	options := proxy.Options{Logger: log, Mirror: mirror, DrainTimeout: o.drain}
	guard := &reach.Guard{Cluster: o.reach.value == "cluster"}
	options.Upstream.Refuse, options.Upstream.Isolated = guard.Refuse, guard.Cluster
	if err := o.client.apply(&options); err != nil {
		return nil, nil, err
	}
	if err := o.fields.apply(&options); err != nil {
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
	d := &dataPlane{
		metrics: metrics, log: log, adminAddress: o.admin, access: o.access, guard: guard,
		drainDelay: o.drainDelay, mirror: &o.mirror, handover: handover,
	}
	options.PortsChanged, options.DropsChanged = d.changed, d.changed
	d.server = proxy.New(options)
	return d, closeLog, nil
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
	most := int(o.accessLogMaxField)
	if most == 0 {
		most = -1
	}
	l := telemetry.NewAccessLog(w, telemetry.AccessLogOptions{Format: format, QueueBytes: lines, Logger: log, MaxField: most})
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
