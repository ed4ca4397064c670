package operate

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/weirmesh/weir/api/metrics"
	"github.com/weirmesh/weir/api/rollouts"
	"github.com/weirmesh/weir/internal/rollout/view"
)

const (
	// metricsTime bounds the question what was measured: everything else is shown without it.
	metricsTime = 3 * time.Second
	// maxMetrics bounds the answer, in bytes; window is the most time up to now that is looked at.
	maxMetrics = 16 << 20
	window     = 30 * time.Second
)

const (
	// listTime bounds all questions what was measured of the Rollouts of a list, and listMost how many of them are asked about.
	listTime = 5 * time.Second
	listMost = 50
)

// measure says of releases, by namespace/name, what was measured of them. What cannot be read is left out.
func (c *Cluster) measure(ctx context.Context, all []view.Rollout, releases map[string]*rollouts.Rollout) {
	ctx, cancel := context.WithTimeout(ctx, listTime)
	defer cancel()
	n := 0
	for i := range all {
		r := releases[all[i].Namespace+"/"+all[i].Name]
		if r == nil {
			continue
		}
		if n++; n > listMost || ctx.Err() != nil {
			return
		}
		s := &seen{r: r}
		if c.workload(ctx, s) != nil || s.object == nil {
			continue
		}
		v := view.Cluster(r)
		s.versions(&v)
		all[i].Measured = c.measured(ctx, s, &v)
	}
}

// measured is how many requests the pods of both versions got lately, by Traffic Metrics; nil if the cluster has none, or
// the user may not read them.
func (c *Cluster) measured(ctx context.Context, s *seen, v *view.Rollout) *view.Measured {
	if v.Canary == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, metricsTime)
	defer cancel()
	resp, err := c.client.Ask(ctx, "/apis/"+metrics.DraftGroup+"/"+metrics.Draft+"/namespaces/"+s.r.Namespace+"/pods", url.Values{"labelSelector": {s.selector.String()}, "window": {windowOf(s.r, time.Now()).String()}})
	if err != nil {
		return nil
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxMetrics+1))
	var list metrics.TrafficMetricsList
	if err != nil || resp.StatusCode != http.StatusOK || len(body) > maxMetrics || json.Unmarshal(body, &list) != nil {
		return nil
	}
	m := &view.Measured{}
	for _, of := range list.Items {
		n, ok := of.Measured()
		if !ok {
			continue
		}
		m.Seconds = max(m.Seconds, of.Window.Seconds())
		switch s.hash[of.Resource.Name] {
		case "":
		case v.Canary.Name:
			m.Canary += n.Success + n.Failure
		case v.Stable.Name:
			m.Stable += n.Success + n.Failure
		}
	}
	return m
}

// windowOf is the time up to now in which the requests were shared out as they are, as far as that is known.
func windowOf(r *rollouts.Rollout, now time.Time) time.Duration {
	rel := r.Status.Release()
	if rel == nil || rel.LastUpdateTime == nil || rel.CurrentStepState != rollouts.StepMetricsAnalysis && rel.CurrentStepState != rollouts.StepPaused {
		return window
	}
	if in := now.Sub(rel.LastUpdateTime.Time).Truncate(time.Second); in >= time.Second { // clocks may differ
		return min(in, window)
	}
	return window
}
