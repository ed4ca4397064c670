package telemetry

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"
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
	maxTapRate   = 1000
	maxTapTime   = time.Hour
	maxTapPrefix = 1024
)

// ParseTapQuery reads the parameters method, path (a prefix), status ("404", "5xx", "none"), rate (default 100, at most
// 1000) and for (a duration, default 10m, at most 1h). Others are left alone. An error names the parameter.
func ParseTapQuery(query url.Values) (q TapQuery, err error) {
	q = TapQuery{Method: query.Get("method"), PathPrefix: query.Get("path"), Highest: maxCode, Rate: 100, For: 10 * time.Minute}
	if len(q.PathPrefix) > maxTapPrefix || len(q.Method) > maxTapPrefix {
		return q, fmt.Errorf("path and method: at most %d bytes", maxTapPrefix)
	}
	if text := query.Get("status"); text != "" {
		if q.Lowest, q.Highest, err = parseStatuses(text); err != nil {
			return q, err
		}
	}
	if text := query.Get("rate"); text != "" {
		if q.Rate, err = strconv.Atoi(text); err != nil || q.Rate < 1 || q.Rate > maxTapRate {
			return q, fmt.Errorf("rate: want a number from 1 to %d", maxTapRate)
		}
	}
	if text := query.Get("for"); text != "" {
		if q.For, err = time.ParseDuration(text); err != nil || q.For <= 0 || q.For > maxTapTime {
			return q, fmt.Errorf("for: want a duration of at most %s, such as 30s", maxTapTime)
		}
	}
	return q, nil
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

// wants reports whether the query's own conditions hold.
func (q *TapQuery) wants(x *Tapped) bool {
	return (q.Method == "" || x.Method == q.Method) && strings.HasPrefix(x.Path, q.PathPrefix) && x.Status >= q.Lowest && x.Status <= q.Highest
}

// TapLine is a line of what ServeTap writes: a request, or how much was shown until now.
type TapLine struct {
	Request *Tapped    `json:"request,omitempty"`
	Counts  *TapCounts `json:"counts,omitempty"`
}

const (
	// tapTick is the time between two lines of counts, by which a reader knows that the tap is open.
	tapTick = time.Second
	// tapWrite is how long a reader may take for a line.
	tapWrite = 10 * time.Second
)

// ServeTap answers with requests as they end, a TapLine each, until the client leaves, or the query's time is over, or
// the process does. of restricts them further. It returns an error before it has answered: ErrTaps.
func (r *Registry) ServeTap(w http.ResponseWriter, req *http.Request, q TapQuery, of func(*Tapped) bool) error {
	tap, err := r.Tap(q.Rate, func(x *Tapped) bool { return q.wants(x) && of(x) })
	if err != nil {
		return err
	}
	defer r.CloseTap(tap)
	w.Header().Set("Content-Type", "application/x-ndjson")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	control := http.NewResponseController(w)
	write := func(lines ...TapLine) bool {
		_ = control.SetWriteDeadline(time.Now().Add(tapWrite)) // without deadlines a reader that stalls holds one of a few places
		for _, l := range lines {
			b, err := json.Marshal(l)
			if err != nil {
				return false
			}
			if _, err := w.Write(append(b, '\n')); err != nil {
				return false
			}
		}
		return control.Flush() == nil
	}
	counts := func() TapLine { c := tap.Counts(); return TapLine{Counts: &c} }
	tick := time.NewTicker(tapTick)
	defer tick.Stop()
	end := time.NewTimer(q.For)
	defer end.Stop()
	if !write(counts()) {
		return nil
	}
	for {
		var ok bool
		select {
		case x := <-tap.Requests():
			ok = write(TapLine{Request: &x})
		case <-tick.C:
			ok = write(counts())
		case <-end.C:
			write(counts())
			return nil
		case <-req.Context().Done():
			return nil
		}
		if !ok {
			return nil
		}
	}
}
