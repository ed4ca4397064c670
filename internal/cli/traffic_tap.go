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

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/telemetry"
	"github.com/weirmesh/weir/internal/traffic"
	"github.com/weirmesh/weir/internal/visible"
)

const (
	// maxTapLine bounds a line of a tap.
	maxTapLine = 64 << 10
	// tapSilence is how long a tap may say nothing: its counts come every second.
	tapSilence = 30 * time.Second
	// tapEarly is how much earlier than it was to a tap may end: clocks and networks take their time.
	tapEarly = 10 * time.Second
)

func newTrafficTap(a *trafficAPI) *cobra.Command {
	cmd := &cobra.Command{
		Use: "tap KIND/NAME", Short: "Watch requests of a resource as they end",
		Long: `Tap shows the requests that a resource sends or receives, each as it ends, until
interrupted: who asked whom for what, and how it ended. It shows no header
fields, no bodies, and paths without their queries. Requests never wait for it:
beyond --rate they are left out, and the end says how many. Of a cluster it shows
what all connected proxies of Gateways observe, and says how many take part.`,
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
	f.StringVarP(&a.namespace, "namespace", "n", "", "`namespace` of the resource (default: of a run \"default\"; of a cluster the context's)")
	a.where(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if a.inCluster {
			if err := checkNamespace(a.namespace); err != nil {
				return err
			}
			if err := a.connect(); err != nil {
				return err
			}
			defer a.close()
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
		return a.tap(cmd.Context(), pathOf(r, namespace, name)+"/tap", query, *length, output.Value == "json")
	}
	return cmd
}

// tapPiece is how long a tap lasts whose user may only get it: an API server cuts off what is not watched after a minute.
const tapPiece = 50 * time.Second

// tap prints what a tap shows until it ends.
func (a *trafficAPI) tap(ctx context.Context, path string, query url.Values, length time.Duration, raw bool) error {
	ctx, stop := process.Interrupted(ctx)
	defer stop()
	s := &tapScreen{trafficAPI: a, screen: screen.Of(a.streams.out), raw: raw}
	err := s.showAll(ctx, path, query, length)
	if end := traffic.TapEnd(s.counts()); end != "" && !raw {
		fmt.Fprintln(a.streams.err, end)
	}
	if ctx.Err() != nil {
		return nil // interrupted
	}
	return err
}

// tapScreen is where a tap is shown.
type tapScreen struct {
	*trafficAPI
	screen    screen.Screen
	raw       bool
	past, now telemetry.TapCounts // of the pieces that ended, and of the one under way
	proxies   string              // what was last said of them
}

func (s *tapScreen) counts() telemetry.TapCounts {
	return telemetry.TapCounts{Matched: s.past.Matched + s.now.Matched, Shown: s.past.Shown + s.now.Shown}
}

// showAll shows a tap: that of a run, or that of a cluster, in pieces if the user may not watch it.
func (s *tapScreen) showAll(ctx context.Context, path string, query url.Values, length time.Duration) error {
	base := "/apis/" + trafficVersion + "/"
	if s.client == nil {
		_, err := s.show(ctx, base+path, query)
		return err
	}
	end := time.Now().Add(length)
	status, err := s.show(ctx, base+"watch/"+path, query)
	if status != http.StatusForbidden {
		if left := time.Until(end); err == nil && ctx.Err() == nil && left > tapEarly {
			return fmt.Errorf("the tap ended %s early, as a replica of the controller or the API server did: begin again", left.Round(time.Second))
		}
		return err
	}
	for left := length; left > 0; left -= tapPiece {
		query.Set("for", min(left, tapPiece).String())
		if _, err := s.show(ctx, base+path, query); err != nil || ctx.Err() != nil {
			return err
		}
	}
	return nil
}

// show shows an answer, and returns its status.
func (s *tapScreen) show(ctx context.Context, path string, query url.Values) (status int, err error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	silent := errors.New("the tap says nothing any more")
	watchdog := time.AfterFunc(tapSilence, func() { cancel(silent) })
	defer watchdog.Stop()
	resp, host, err := s.openTap(ctx, path, query)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		full, err := readAnswer(resp, host)
		switch {
		case err != nil:
			return 0, err
		case s.client != nil:
			return resp.StatusCode, refusalOfCluster(full)
		}
		return resp.StatusCode, refusal(full)
	}
	s.past, s.now = s.counts(), telemetry.TapCounts{}
	lines := bufio.NewScanner(resp.Body)
	lines.Buffer(nil, maxTapLine)
	for n := 0; lines.Scan(); n++ {
		watchdog.Reset(tapSilence)
		var l telemetry.TapLine
		if err := json.Unmarshal(lines.Bytes(), &l); err != nil {
			return 0, fmt.Errorf("the answer of %s cannot be read: %w", host, err)
		}
		if err := s.line(&l, lines.Text(), n == 0); err != nil {
			return 0, err
		}
	}
	switch cause := context.Cause(ctx); {
	case cause == silent:
		return 0, fmt.Errorf("%s: %w", host, silent)
	case cause == nil && lines.Err() != nil:
		return 0, fmt.Errorf("%s: %w", host, lines.Err())
	}
	return resp.StatusCode, nil
}

func (s *tapScreen) openTap(ctx context.Context, path string, query url.Values) (*http.Response, string, error) {
	if s.client == nil {
		return s.send(ctx, http.MethodGet, path, query)
	}
	resp, err := s.client.Ask(ctx, path, query)
	if fault := (*url.Error)(nil); errors.As(err, &fault) {
		return nil, "", fmt.Errorf("the API server %s does not answer: %w", s.client.Config.Host, fault.Err)
	}
	if err != nil {
		return nil, "", err
	}
	return resp, resp.Request.URL.Host, nil
}

// line shows a line; text is what it was read from. The first counts of a tap come before proxies can have answered.
func (s *tapScreen) line(l *telemetry.TapLine, text string, first bool) error {
	if l.Counts != nil {
		s.now = *l.Counts
	}
	if s.raw {
		if err := s.screen.Print(s.streams.out, text+"\n"); err != nil {
			return err
		}
	}
	switch {
	case l.Error != "":
		return errors.New(visible.Text(l.Error))
	case l.Request != nil && !s.raw:
		return s.screen.Print(s.streams.out, s.screen.Fit(traffic.TapLine(l.Request))+"\n")
	case l.Counts != nil && !first && !s.raw:
		if said := traffic.TapProxies(*l.Counts); said != s.proxies {
			s.proxies = said
			fmt.Fprintln(s.streams.err, said)
		}
	}
	return nil
}
