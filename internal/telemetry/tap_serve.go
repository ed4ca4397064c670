package telemetry

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
)

// TapQuery says which requests a tap over HTTP shows, and how many. ParseTapQuery has the defaults.
type TapQuery struct {
	// Method and PathPrefix restrict the requests; empty is any.
	Method, PathPrefix string
	// Lowest and Highest are statuses; a request without an answer has 0.
	Lowest, Highest int
	// Rate is the most requests a second.
	Rate int
	// For is when the tap ends by itself.
	For time.Duration
}

// Bounds of a TapQuery.
const (
	MaxTapRate   = 1000
	MaxTapTime   = time.Hour
	maxTapPrefix = maxTapped // what is shown can be compared with it
)

// ParseTapQuery reads the parameters method, path (a prefix), status ("404", "5xx", "none"), rate (default 100, at most
// 1000) and for (a duration, default 10m, at most 1h). Others are left alone. An error names the parameter.
func ParseTapQuery(query url.Values) (q TapQuery, err error) {
	q = TapQuery{Method: query.Get("method"), PathPrefix: query.Get("path"), Highest: maxCode, Rate: 100, For: 10 * time.Minute}
	if text := query.Get("status"); text != "" {
		if q.Lowest, q.Highest, err = parseStatuses(text); err != nil {
			return q, err
		}
	}
	if text := query.Get("rate"); text != "" {
		if q.Rate, err = strconv.Atoi(text); err != nil {
			return q, fmt.Errorf("rate: want a number from 1 to %d", MaxTapRate)
		}
	}
	if text := query.Get("for"); text != "" {
		if q.For, err = time.ParseDuration(text); err != nil {
			return q, fmt.Errorf("for: want a duration of at most %s, such as 30s", MaxTapTime)
		}
	}
	return q, q.Check()
}

// Check returns an error that names the parameter if a query is out of bounds.
func (q *TapQuery) Check() error {
	switch {
	case len(q.PathPrefix) > maxTapPrefix || len(q.Method) > maxTapPrefix:
		return fmt.Errorf("path and method: at most %d bytes", maxTapPrefix)
	case q.Lowest < 0 || q.Lowest > q.Highest || q.Highest > maxCode:
		return fmt.Errorf("status: want numbers from 0 to %d", maxCode)
	case q.Rate < 1 || q.Rate > MaxTapRate:
		return fmt.Errorf("rate: want a number from 1 to %d", MaxTapRate)
	case q.For <= 0 || q.For > MaxTapTime:
		return fmt.Errorf("for: want a duration of at most %s, such as 30s", MaxTapTime)
	}
	return nil
}

// parseStatuses reads "404", "5xx" or "none".
func parseStatuses(text string) (low, high int, err error) {
	if text == "none" {
		return 0, 0, nil
	}
	digits, class := strings.CutSuffix(strings.ToLower(text), "xx")
	n, err := strconv.Atoi(digits)
	switch {
	case err == nil && class && len(digits) == 1 && n >= 1 && n <= 5:
		return n * 100, n*100 + 99, nil
	case err == nil && !class && n >= 100 && n <= maxCode:
		return n, n, nil
	}
	return 0, 0, fmt.Errorf("status: want a number such as 404, a class such as 5xx, or none for requests without an answer")
}

// Wants reports whether a request is one of the sides and meets the query's conditions.
func (q *TapQuery) Wants(x *Tapped, of TapSides) bool {
	return (q.Method == "" || x.Method == q.Method) && strings.HasPrefix(x.Path, q.PathPrefix) && x.Status >= q.Lowest && x.Status <= q.Highest && of.has(x)
}

// TapLine is a line of what WriteTap writes: a request, or how much was shown until now, or why the tap ends early.
type TapLine struct {
	Request *Tapped    `json:"request,omitempty"`
	Counts  *TapCounts `json:"counts,omitempty"`
	Error   string     `json:"error,omitempty"`
}

const (
	// TapTick is the time between two lines of counts, by which a reader knows that the tap is open.
	TapTick = time.Second
	// tapAgain is the time between two looks at whose requests a tap shows.
	tapAgain = 5 * time.Second
	// tapWrite is how long a reader may take for a line.
	tapWrite = 10 * time.Second
)

// TapOf says whose requests a tap shows: first when it opens, and again from time to time, as an object's pods change,
// and so do the rights of who looks at them. An error ends the tap.
type TapOf func(ctx context.Context) (TapSides, error)

// ServeTap answers with the process's own requests as they end; see WriteTap. It returns an error before it has answered:
// that of of, or ErrTaps.
func (r *Registry) ServeTap(w http.ResponseWriter, req *http.Request, q TapQuery, of TapOf) error {
	sides, err := of(req.Context())
	if err != nil {
		return err
	}
	var now atomic.Pointer[TapSides]
	now.Store(&sides)
	tap, err := r.Tap(q.Rate, func(x *Tapped) bool { return q.Wants(x, *now.Load()) })
	if err != nil {
		return err
	}
	defer r.CloseTap(tap)
	WriteTap(w, req, q.For, tap, func(ctx context.Context) error {
		sides, err := of(ctx)
		if err == nil {
			now.Store(&sides)
		}
		return err
	})
	return nil
}

// TapSource is where WriteTap has requests and counts from.
type TapSource interface {
	Requests() <-chan Tapped
	Counts() TapCounts
}

// WriteTap answers with requests as they end, a TapLine each, until the client leaves, or d is over, or again, which is
// called every few seconds, returns an error.
func WriteTap(w http.ResponseWriter, req *http.Request, d time.Duration, tap TapSource, again func(context.Context) error) {
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("Cache-Control", "no-store")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	control := http.NewResponseController(w)
	write := func(l TapLine) bool {
		_ = control.SetWriteDeadline(time.Now().Add(tapWrite)) // without deadlines a reader that stalls holds one of a few places
		b, err := json.Marshal(l)
		if err != nil {
			return false
		}
		if _, err := w.Write(append(b, '\n')); err != nil {
			return false
		}
		return control.Flush() == nil
	}
	counts := func() TapLine { c := tap.Counts(); return TapLine{Counts: &c} }
	tick, look := time.NewTicker(TapTick), time.NewTicker(tapAgain)
	defer tick.Stop()
	defer look.Stop()
	end := time.NewTimer(d)
	defer end.Stop()
	for ok := write(counts()); ok; {
		select {
		case x := <-tap.Requests():
			ok = write(TapLine{Request: &x})
		case <-tick.C:
			ok = write(counts())
		case <-look.C:
			if err := again(req.Context()); err != nil {
				if req.Context().Err() == nil && write(counts()) {
					write(TapLine{Error: err.Error()})
				}
				return
			}
		case <-end.C:
			write(counts())
			return
		case <-req.Context().Done():
			return
		}
	}
}
