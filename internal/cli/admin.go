package cli

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"reflect"
	"strings"
	"time"

	"github.com/spf13/pflag"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/weirmesh/weir/internal/flags"
	"github.com/weirmesh/weir/internal/process"
	"github.com/weirmesh/weir/internal/screen"
	"github.com/weirmesh/weir/internal/visible"
)

// Bounds on an answer of the admin endpoint: its size, how long it may take, and how often it is asked by who watches.
const (
	maxAnswer   = 64 << 20
	answerTime  = 15 * time.Second
	watchPeriod = 500 * time.Millisecond
	maxWarnings = 8
	// gatherTime is how long who watches waits for further changes.
	gatherTime = 250 * time.Millisecond
)

// admin asks the admin endpoint of "weir run".
type admin struct {
	streams   streams
	address   string
	tokenFile string
	// period is how often watch asks; 0 is watchPeriod.
	period time.Duration
	// follow, if not nil, wakes watch between two times that it asks, until stop.
	follow func(ctx context.Context) (wake <-chan struct{}, stop func())
}

func (a *admin) flags(f *pflag.FlagSet) {
	f.StringVar(&a.address, "admin", "127.0.0.1:15000", "`address` of the admin endpoint of weir run")
	f.StringVar(&a.tokenFile, "admin-token-file", "", "`file` with the token of the admin endpoint")
}

// answer is a whole answer of an admin endpoint.
type answer struct {
	host   string
	status int
	body   []byte
	// warnings are the texts of its fields Warning.
	warnings []string
}

// text is what the answer says, for errors.
func (r *answer) text() string {
	return visible.Text(strings.TrimSpace(string(r.body[:min(len(r.body), 1000)])))
}

// into reads JSON.
func (r *answer) into(out any) error {
	if err := json.Unmarshal(r.body, out); err != nil {
		return fmt.Errorf("the answer of %s cannot be read: %w", r.host, err)
	}
	return nil
}

// send sends a request; the caller closes the answer's body.
func (a *admin) send(ctx context.Context, method, path string, query url.Values) (resp *http.Response, host string, err error) {
	base := a.address
	if !strings.Contains(base, "://") {
		base = "http://" + base
	}
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, "", flags.Errorf("--admin %q: want ADDRESS:PORT", a.address)
	}
	u.Path, u.RawQuery = path, query.Encode()
	r, err := http.NewRequestWithContext(ctx, method, u.String(), nil)
	if err != nil {
		return nil, "", err
	}
	if a.tokenFile != "" {
		token, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return nil, "", flags.Errorf("--admin-token-file: %w", err)
		}
		r.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	client := http.Client{Transport: &http.Transport{Proxy: nil, DisableKeepAlives: true}, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	if resp, err = client.Do(r); err != nil {
		return nil, "", fmt.Errorf("nobody answers at %s: %w; is weir run there? --admin names another address, --context or --kubeconfig a cluster", u.Host, errors.Unwrap(err))
	}
	return resp, u.Host, nil
}

// do sends a request and reads the whole answer.
func (a *admin) do(ctx context.Context, method, path string, query url.Values) (*answer, error) {
	ctx, cancel := context.WithTimeout(ctx, answerTime)
	defer cancel()
	resp, host, err := a.send(ctx, method, path, query)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	return readAnswer(resp, host)
}

func readAnswer(resp *http.Response, host string) (*answer, error) {
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAnswer+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%s: %w", host, err)
	case len(body) > maxAnswer:
		return nil, fmt.Errorf("the answer of %s is too long", host)
	}
	return &answer{host, resp.StatusCode, body, warningsOf(resp.Header)}, nil
}

// warningsOf are the texts of warnings, 299 - "TEXT" (RFC 7234 §5.5), as API servers send them.
func warningsOf(header http.Header) (texts []string) {
	all, _ := utilnet.ParseWarningHeaders(header.Values("Warning"))
	for _, w := range all[:min(len(all), maxWarnings)] {
		texts = append(texts, visible.Text(w.Text[:min(len(w.Text), 500)]))
	}
	return texts
}

// print writes v in a format; text is what people read.
func (a *admin) print(format string, v any, text string, s screen.Screen) error {
	switch format {
	case "json":
		return process.WriteJSON(a.streams.out, v)
	case "yaml":
		out, err := marshalYAML(v)
		if err == nil {
			_, err = a.streams.out.Write(out)
		}
		return err
	}
	return s.Print(a.streams.out, text)
}

// watch shows something again whenever it changed, on a terminal in place of what was there, until the context ends or
// over says so.
func (a *admin) watch(ctx context.Context, look func(now time.Time) (v any, text string, over bool, err error)) error {
	s := screen.Of(a.streams.out)
	ctx, stop := process.Interrupted(ctx)
	defer stop()
	tick := time.NewTicker(cmp.Or(a.period, watchPeriod))
	defer tick.Stop()
	var wake <-chan struct{}
	if a.follow != nil {
		woken, end := a.follow(ctx)
		defer end()
		wake = woken
	}
	var last any
	for {
		v, text, over, err := look(time.Now())
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		if !reflect.DeepEqual(v, last) {
			if s.Width > 0 { // a terminal: from its upper left corner on
				_, err = io.WriteString(a.streams.out, "\x1b[H\x1b[2J")
			} else if last != nil {
				_, err = io.WriteString(a.streams.out, "\n")
			}
			if err = errors.Join(err, s.Print(a.streams.out, text)); err != nil {
				return err
			}
			last = v
		}
		if over {
			return nil
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		case <-wake:
			select { // changes come together
			case <-ctx.Done():
				return nil
			case <-time.After(gatherTime):
			}
		}
	}
}
