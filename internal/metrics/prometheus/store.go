// Package prometheus has Prometheus say what proxies observed, or Thanos, Mimir and whatever else answers the queries of
// its HTTP API: a store of traffic for those who have one that scrapes Weir's proxies. It only reads.
package prometheus

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/prometheus/client_golang/api"
	v1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/weirmesh/weir/internal/metrics"
	"github.com/weirmesh/weir/internal/telemetry"
)

// Options are a Store's.
type Options struct {
	// URL is where /api/v1/query is, such as http://prometheus.monitoring:9090 or http://mimir/prometheus.
	URL string
	// Timeout bounds the time of an answer. Default 10 seconds.
	Timeout time.Duration
	// Step is how exactly the window of an answer ends now, and how exactly it has the length asked for: both are multiples
	// of it, or in windows of more than 30 steps of more. It is best no longer than the time between two scrapes. Default
	// 5 seconds.
	Step time.Duration
	// MaxBytes bounds an answer of Prometheus. Default 128 MiB.
	MaxBytes int64
	// Matchers are labels that the series must have, beside Weir's, such as a cluster's.
	Matchers map[string]string
	// Tenant is sent as X-Scope-OrgID, as Mimir wants it.
	Tenant string
	// Username and the password in PasswordFile are for basic authentication, the token in TokenFile for that with bearer
	// tokens. Files are read for each question.
	Username, PasswordFile, TokenFile string
	// CAFile has the certificates of the authorities, as PEM, that sign the server's. Default: those of the system.
	CAFile string
}

// Store is a metrics.Store of what a Prometheus has scraped.
type Store struct {
	options Options
	where   string // the URL for people
	targets string // matchers
	client  api.Client

	transport *transport
}

var labelName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)

// New makes a Store. It asks nothing yet; an error says which option is wrong.
func New(o Options) (*Store, error) {
	if o.Timeout <= 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Step < time.Second {
		o.Step = 5 * time.Second
	}
	if o.MaxBytes <= 0 {
		o.MaxBytes = 128 << 20
	}
	u, err := url.Parse(o.URL)
	switch {
	case err != nil:
		return nil, fmt.Errorf("the URL of Prometheus: %w", err)
	case u.Scheme != "http" && u.Scheme != "https" || u.Host == "":
		return nil, fmt.Errorf("the URL of Prometheus, %q, is not like http://prometheus:9090", u.Redacted())
	case u.User != nil:
		return nil, errors.New("the URL of Prometheus has a user: give it as an option, and the password as a file")
	case o.TokenFile != "" && o.Username != "":
		return nil, errors.New("there is a token for Prometheus, and a user: give one of them")
	case (o.Username == "") != (o.PasswordFile == ""):
		return nil, errors.New("a user for Prometheus takes a name and a file with the password: give both")
	}
	var targets []string
	for _, name := range slices.Sorted(maps.Keys(o.Matchers)) {
		if !labelName.MatchString(name) || slices.Contains(telemetry.EdgeLabelNames(), name) {
			return nil, fmt.Errorf("the matcher %q for Prometheus is no label of its targets", name)
		}
		targets = append(targets, name+"="+quote(o.Matchers[name]))
	}
	transport, err := newTransport(o)
	if err != nil {
		return nil, err
	}
	client, err := api.NewClient(api.Config{Address: o.URL, Client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }, // it would get the token
	}})
	if err != nil {
		return nil, fmt.Errorf("the URL of Prometheus: %w", err)
	}
	return &Store{o, u.String(), strings.Join(targets, ","), client, transport}, nil
}

// Close closes the connections that are kept for the next question.
func (s *Store) Close() { s.transport.CloseIdleConnections() }

// Ask implements metrics.Store. It asks once for counts and once for durations, which are those of the exposition's
// classic buckets, and with Took once for their sums.
func (s *Store) Ask(ctx context.Context, q metrics.Question) (metrics.Answer, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.options.Timeout, fmt.Errorf("it did not answer in %v", s.options.Timeout))
	defer cancel()
	if q.Window <= 0 {
		q.Window = s.options.Step
	}
	g := newGrid(time.Now(), q.Window, s.options.Step)
	out := metrics.Answer{Time: g.end, Window: g.window()}
	wanted := selectors(q)
	if len(wanted) == 0 {
		return out, nil
	}
	labels := telemetry.EdgeLabelNames()
	if q.Sum && q.With == nil {
		labels = []string{"at_kind", "at_name", "at_namespace", "direction"}
	}
	t := newTable(q)
	counts := func(family, own string) error {
		v, err := s.query(ctx, g.query(family, own, wanted, s.targets, labels), g.end)
		if err != nil {
			return err
		}
		for _, sample := range v {
			if err := t.add(sample.Metric, own, float64(sample.Value)); err != nil {
				return fmt.Errorf("the Prometheus at %s: %s%v: %w", s.where, family, sample.Metric, err)
			}
		}
		return nil
	}
	if err := counts(telemetry.EdgeRequests, "result"); err != nil {
		return metrics.Answer{}, err
	}
	if len(t.rows) == 0 {
		return out, s.scraped(ctx, g)
	}
	if err := counts(telemetry.EdgeDurations+"_bucket", "le"); err != nil {
		return metrics.Answer{}, err
	}
	if q.Took {
		if err := counts(telemetry.EdgeDurations+"_sum", ""); err != nil {
			return metrics.Answer{}, err
		}
	}
	out.Traffic = t.traffic()
	if !slices.ContainsFunc(out.Traffic, func(t metrics.Traffic) bool { return t.Latency.Count() > 0 }) {
		return metrics.Answer{}, fmt.Errorf("the Prometheus at %s has %s, but no buckets of %s: let it scrape classic histograms (always_scrape_classic_histograms: true)",
			s.where, telemetry.EdgeRequests, telemetry.EdgeDurations)
	}
	return out, nil
}

// scraped is nil if there are proxies that had no traffic.
func (s *Store) scraped(ctx context.Context, g grid) error {
	v, err := s.query(ctx, fmt.Sprintf("count(last_over_time(%s[%dms]))", telemetry.BeganTimestamp+braces(s.targets), (g.window()+5*time.Minute).Milliseconds()), g.end)
	if err == nil && len(v) == 0 {
		err = fmt.Errorf("the Prometheus at %s has no %s%s: let it scrape the proxies, and see that it keeps the families weir_edge_* and this one",
			s.where, telemetry.BeganTimestamp, braces(s.targets))
	}
	return err
}

// table adds up the rows of an answer.
type table struct {
	q        metrics.Question
	at, with map[telemetry.Side]bool
	rows     map[telemetry.EdgeLabels]*row
}

type row struct {
	success, failure uint64
	below            map[float64]uint64
	micros           uint64 // that requests took
}

func newTable(q metrics.Question) *table {
	t := &table{q: q, at: map[telemetry.Side]bool{}, with: map[telemetry.Side]bool{}, rows: map[telemetry.EdgeLabels]*row{}}
	for _, s := range q.At {
		t.at[s] = true
	}
	for _, s := range q.With {
		t.with[s] = true
	}
	return t
}

// maxCount bounds counts, so that sums of them do not overflow, and are exact in Prometheus.
const maxCount = 1 << 53

// add adds a sample, with its label own; without one it is the seconds that requests took.
func (t *table) add(of model.Metric, own string, value float64) error {
	if own == "" {
		value = math.Round(value * 1e6)
	}
	n := math.Round(value)
	if !(math.Abs(n-value) < 1e-3 && n >= 0 && n <= maxCount) {
		return fmt.Errorf("%v is no number of requests", value)
	}
	labels := telemetry.ReadEdgeLabels(func(name string) string { return string(of[model.LabelName(name)]) })
	if (t.q.At != nil || t.q.With != nil) && !t.at[labels.At] && !t.with[labels.Peer] {
		return nil
	}
	if t.q.Sum {
		labels = telemetry.EdgeLabels{At: labels.At, Out: labels.Out}
	}
	r := t.rows[labels]
	if r == nil {
		r = &row{below: map[float64]uint64{}}
		t.rows[labels] = r
	}
	switch value := string(of[model.LabelName(own)]); {
	case own == "":
		r.micros += uint64(n)
	case own == "le":
		bound, err := strconv.ParseFloat(value, 64)
		if err != nil || math.IsNaN(bound) {
			return errors.New("the bucket has no bound")
		}
		r.below[bound] += uint64(n)
	case value == "success":
		r.success += uint64(n)
	default:
		r.failure += uint64(n)
	}
	return nil
}

// traffic are the rows, sorted.
func (t *table) traffic() []metrics.Traffic {
	out := make([]metrics.Traffic, 0, len(t.rows))
	for labels, r := range t.rows {
		out = append(out, metrics.Traffic{EdgeLabels: labels, Success: r.success, Failure: r.failure, Latency: telemetry.ClassicLatency(r.below, time.Duration(min(r.micros, math.MaxInt64/1000))*time.Microsecond)})
	}
	slices.SortFunc(out, func(a, b metrics.Traffic) int { return a.EdgeLabels.Compare(b.EdgeLabels) })
	return out
}

// query asks for a vector.
func (s *Store) query(ctx context.Context, promql string, at time.Time) (model.Vector, error) {
	asked := &exchange{Client: s.client}
	v, warnings, _, err := v1.NewAPI(asked).Query(ctx, promql, at)
	if err != nil {
		return nil, s.explain(ctx, err, asked.status)
	}
	for _, w := range warnings {
		if !strings.HasPrefix(w, "PromQL") { // which are about the query
			return nil, fmt.Errorf("the Prometheus at %s answered in part: %s", s.where, shortened(w))
		}
	}
	vector, ok := v.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("the Prometheus at %s answered with %T in place of a vector", s.where, v)
	}
	return vector, nil
}
