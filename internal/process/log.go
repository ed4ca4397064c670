package process

import (
	"context"
	"fmt"
	"io"
	standard "log"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/visible"
)

// LogFlags say how the process's log looks.
type LogFlags struct{ format, level flags.Choice }

// NewLogFlags returns them with their defaults: text, info.
func NewLogFlags() LogFlags {
	return LogFlags{format: flags.NewChoice("text", "json"), level: flags.NewChoice("info", "debug", "warn", "error")}
}

// Flags adds them to a command.
func (l *LogFlags) Flags(f *pflag.FlagSet) {
	f.Var(&l.format, "log-format", "format of the process log, on stderr")
	f.Var(&l.level, "log-level", "lowest level that the process logs")
}

// Open makes the process's log, which never waits for w: its reader may stop reading. The last function writes the
// remaining lines.
func (l *LogFlags) Open(w io.Writer) (*slog.Logger, *telemetry.Lines, func()) {
	return newProcessLog(w, l.format.Value, l.level.Value)
}

// newProcessLog is the process's log, which never waits for w: its reader may stop reading. The last function writes
// the remaining lines.
func newProcessLog(w io.Writer, format, level string) (*slog.Logger, *telemetry.Lines, func()) {
	lines := telemetry.NewLines(w, telemetry.LinesOptions{Name: "log", QueueBytes: 1 << 20})
	log := NewLogger(lines, format, level)
	lines.ReportInItself(log)
	stop := takeLibraries(log)
	return log, lines, func() {
		stop()
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = lines.Close(ctx) // there is nowhere to tell
	}
}

// libraries is where the standard library's log goes, which net/http writes to about what peers do. Some of the text is
// theirs, and w may not be read.
type libraries struct {
	log   *slog.Logger
	limit loglimit.Limiter
}

func (l *libraries) Write(p []byte) (int, error) {
	l.limit.Log(l.log, slog.LevelWarn, "", "a library reports", "text", strings.TrimSpace(string(p)))
	return len(p), nil
}

// takeLibraries leads the standard library's log to log, until the returned function is called.
func takeLibraries(log *slog.Logger) (stop func()) {
	l := &libraries{log: log}
	standard.SetFlags(0)
	standard.SetOutput(l)
	return func() {
		if standard.Writer() == io.Writer(l) {
			standard.SetOutput(os.Stderr)
		}
	}
}

// NewLogger writes to w in a format (text, json) from a level on. Values are cut at 4 KiB.
func NewLogger(w io.Writer, format, level string) *slog.Logger {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		l = slog.LevelInfo
	}
	options := &slog.HandlerOptions{Level: l, ReplaceAttr: shortened}
	if format == "json" {
		options.ReplaceAttr = func(groups []string, a slog.Attr) slog.Attr { return shortened(groups, readable(groups, a)) }
		return slog.New(slog.NewJSONHandler(visible.Writer{W: w, As: visible.JSON}, options))
	}
	return slog.New(slog.NewTextHandler(visible.Writer{W: w, As: visible.LogLines}, options))
}

// maxAttr bounds an attribute of a log line, in bytes. Much of the text comes from others: clients, backends, authors
// of objects.
const maxAttr = 4 << 10

// shortened cuts long text, and adds how much is left out.
func shortened(_ []string, a slog.Attr) slog.Attr {
	text := ""
	switch a.Value.Kind() {
	case slog.KindString:
		text = a.Value.String()
	case slog.KindAny:
		text = fmt.Sprint(a.Value.Any())
	}
	if len(text) > maxAttr && a.Key != "stack" { // which is our own
		a.Value = slog.StringValue(strings.ToValidUTF8(text[:maxAttr], "") + "...+" + strconv.Itoa(len(text)-maxAttr))
	}
	return a
}

// readable writes durations in JSON as in text, "1.5s", and not as a number of nanoseconds.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}
