package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/traffic"
)

const (
	// maxTapLine bounds a line of a tap.
	maxTapLine = 64 << 10
	// tapSilence is how long a tap may say nothing: its counts come every second.
	tapSilence = 30 * time.Second
)

func newTrafficTap(a *trafficAPI) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tap KIND/NAME", Short: "Watch requests of a resource as they end",
		Long: `Tap shows the requests that a resource sends or receives, each as it ends, until
interrupted: who asked whom for what, and how it ended. It shows no header
fields, no bodies, and paths without their queries. Requests never wait for it:
beyond --rate they are left out, and the end says how many. It needs a weir run.`,
		Example: "  weir traffic tap deployment/cart -n shop\n  weir traffic tap ns/shop --status 5xx --path /api",
		Args:    kindAndName,
	}
	output := outputFlag(cmd, "text", "json")
	f := cmd.Flags()
	method := f.String("method", "", "only requests with this `method`")
	path := f.String("path", "", "only requests whose path begins with this `prefix`")
	status := f.String("status", "", "only requests with this `status`: a number, a class such as 5xx, or none for those without an answer")
	rate := f.Int("rate", 100, "the most `requests` a second, up to 1000")
	length := f.Duration("for", 10*time.Minute, "`time` after which to end, up to 1h")
	f.StringVarP(&a.namespace, "namespace", "n", "", "`namespace` of the resource (default \"default\")")
	a.where(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.inCluster {
			return flags.Errorf("tap works with a weir run only (--admin); of a cluster there are top, edges and topology")
		}
		r, namespace, name, err := a.oneOf(args)
		if err != nil {
			return err
		}
		query := url.Values{"rate": {fmt.Sprint(*rate)}, "for": {length.String()}}
		for key, value := range map[string]string{"method": *method, "path": *path, "status": *status} {
			if value != "" {
				query.Set(key, value)
			}
		}
		if _, err := telemetry.ParseTapQuery(query); err != nil {
			return flags.Errorf("--%w", err)
		}
		return a.tap(cmd.Context(), pathOf(r, namespace, name)+"/tap", query, output.Value == "json")
	}
	return cmd
}

// tap prints what a tap shows until it ends.
func (a *trafficAPI) tap(ctx context.Context, path string, query url.Values, raw bool) error {
	ctx, stop := process.Interrupted(ctx)
	defer stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := errors.New("the tap says nothing any more")
	watchdog := time.AfterFunc(tapSilence, func() { cancel(silent) })
	defer watchdog.Stop()
	resp, host, err := a.send(ctx, http.MethodGet, "/apis/"+metrics.DraftGroup+"/"+metrics.Draft+"/"+path, query)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		full, err := readAnswer(resp, host)
		if err != nil {
			return err
		}
		return refusal(full)
	}
	s := screen.Of(a.streams.out)
	var counts telemetry.TapCounts
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxTapLine)
	for lines.Scan() {
		watchdog.Reset(tapSilence)
		var l telemetry.TapLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return fmt.Errorf("the answer of %s cannot be read: %w", host, err)
		}
		if l.Counts != nil {
			counts = *l.Counts
		}
		switch {
		case raw:
			err = s.Print(a.streams.out, lines.Text()+"\n")
		case l.Request != nil:
			err = s.Print(a.streams.out, s.Fit(traffic.TapLine(l.Request))+"\n")
		}
		if err != nil {
			return err
		}
	}
	if end := traffic.TapEnd(counts); end != "" && !raw {
		fmt.Fprintln(a.streams.err, end)
	}
	switch cause := context.Cause(ctx); {
	case cause == silent:
		return fmt.Errorf("%s: %w", host, silent)
	case cause != nil:
		return nil // interrupted
	case lines.Err() != nil:
		return fmt.Errorf("%s: %w", host, lines.Err())
	}
	return nil
}
