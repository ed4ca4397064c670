package main

import (
	"fmt"
	"strings"
)

// rate is the change of a counter in each second, of the time that Grafana finds right for the graph and the scrapes.
func rate(counter string) string { return "rate(" + counter + "[$__rate_interval])" }

// sum adds up by labels, or all.
func sum(by, of string) string { return aggregate("sum", by, of) }

func aggregate(how, by, of string) string {
	if by == "" {
		return how + "(" + of + ")"
	}
	return fmt.Sprintf("%s by (%s) (%s)", how, by, of)
}

// part is the share of some in all, which is 0 where there are none of the some, and nothing where there is nothing of all.
func part(by, some, all string) string {
	all = sum(by, all)
	return fmt.Sprintf("(%s or 0 * %s) / %s", sum(by, some), all, all)
}

// rest is 1 without the share.
func rest(by, some, all string) string { return "1 - " + part(by, some, all) }

// answered is the share of the requests, those that clients gave up left out, that were not answered 5xx.
func answered(by, selector string) string {
	return rest(by, rate(series("weir_requests_total", selector, `code=~"5.."`)), rate(series("weir_requests_total", selector, `code!="0"`)))
}

// quantile is that of the durations of a histogram.
func quantile(q, by, histogram, selector string) string {
	return fmt.Sprintf("histogram_quantile(%s, %s)", q, sum(join("le", by), rate(series(histogram+"_bucket", selector))))
}

// quantiles are the three of a panel.
func quantiles(histogram, selector string) (all []query) {
	for _, q := range []struct{ q, legend string }{{"0.5", "p50"}, {"0.9", "p90"}, {"0.99", "p99"}} {
		all = append(all, query{expr: quantile(q.q, "", histogram, selector), legend: q.legend})
	}
	return all
}

// series selects those of a metric that meet all matchers; empty ones are none.
func series(metric string, matchers ...string) string {
	if m := join(matchers...); m != "" {
		return metric + "{" + m + "}"
	}
	return metric
}

func join(parts ...string) string {
	var out []string
	for _, p := range parts {
		if p != "" {
			out = append(out, p)
		}
	}
	return strings.Join(out, ",")
}

// Names of pods are those of what made them, and what Kubernetes adds, in an alphabet without vowels: for a Deployment the
// hash of its template and five characters, for others these alone, for a StatefulSet a number.
const (
	hash   = `-[bcdfghjklmnpqrstvwxz2456789]{6,10}`
	suffix = `-(?:[bcdfghjklmnpqrstvwxz2456789]{5}|[0-9]+)`
)

// workloadOf sets a label to the name of the workload of a side, at or peer: of a pod's without what Kubernetes added, of
// others the name as it is.
func workloadOf(side, label, of string) string {
	joined := fmt.Sprintf(`label_join(%s, "side", ":", "%s_kind", "%s_name")`, of, side, side)
	whole := fmt.Sprintf(`label_replace(%s, "%s", "$1", "side", "[^:]*:(.*)")`, joined, label)
	return fmt.Sprintf(`label_replace(%s, "%s", "$1", "side", "(?:Pod|Workload):(.+?)(?:%s)?%s")`, whole, label, hash, suffix)
}

// podsOf matches the pods of the workload that the variable names.
const podsOf = `"$workload(?:` + hash + `)?(?:` + suffix + `)?"`
