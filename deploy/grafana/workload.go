package main

// workload is about the pods of one workload: what they receive and what they send.
func workload() board {
	const (
		requests  = "weir_edge_requests_total"
		durations = "weir_edge_request_duration_seconds"
		failed    = `result="failure"`
		atIt      = `at_kind=~"Pod|Workload",at_namespace="$namespace",at_name=~` + podsOf
		withIt    = `peer_kind="Pod",peer_namespace="$namespace",peer_name=~` + podsOf
		received  = `direction="from",` + atIt
		// otherwise is what others sent to pods that have no proxy of their own.
		otherwise = `direction="to",` + withIt
		sent      = `direction="to",` + atIt
	)
	// either is what the workload's own proxies observed, otherwise what others did.
	either := func(of func(selector string) string) string { return of(received) + " or " + of(otherwise) }
	inRate := func(by string) string {
		return either(func(s string) string { return sum(by, rate(series(requests, s))) })
	}
	inSuccess := either(func(s string) string { return rest("", rate(series(requests, s, failed)), rate(series(requests, s))) })
	inQuantiles := func() (all []query) {
		for _, q := range []query{{expr: "0.5", legend: "p50"}, {expr: "0.9", legend: "p90"}, {expr: "0.99", legend: "p99"}} {
			all = append(all, query{expr: either(func(s string) string { return quantile(q.expr, "", durations, s) }), legend: q.legend})
		}
		return all
	}
	perPod := func(of func(by, selector string) string) []query {
		return []query{{expr: of("at_name", received), legend: "{{at_name}}"}, {expr: of("peer_name", otherwise), legend: "{{peer_name}} as others saw it"}}
	}
	return board{
		name: "workload", title: "Weir / Workload",
		help: "What the pods of a workload receive and send, as their own proxies observe it, or those of others where they have none.",
		variables: []variable{
			{name: "namespace", label: "Namespace", help: "Of the workload.", regex: `/namespace="([^"]+)"/`, query: "query_result(group by (namespace) (" +
				`label_replace(weir_edge_requests_total{at_kind=~"Pod|Workload"}, "namespace", "$1", "at_namespace", "(.*)") or ` +
				`label_replace(weir_edge_requests_total{peer_kind="Pod"}, "namespace", "$1", "peer_namespace", "(.*)")))`},
			{name: "workload", label: "Workload", help: "Its name is that of its pods without what Kubernetes added.", regex: `/workload="([^"]+)"/`, query: "query_result(group by (workload) (" +
				workloadOf("at", "workload", `weir_edge_requests_total{at_kind=~"Pod|Workload",at_namespace="$namespace"}`) + " or " +
				workloadOf("peer", "workload", `weir_edge_requests_total{peer_kind="Pod",peer_namespace="$namespace"}`) + "))"},
		},
		rows: []row{
			{title: "Received", panels: []panel{
				{kind: number, title: "Requests", unit: perSecond, width: 6, help: "Requests a second that its pods received.", queries: []query{{expr: inRate("")}}},
				{kind: number, title: "Success", unit: success, width: 6, help: "Share of the requests with an answer below 500 that did not break off.", queries: []query{{expr: inSuccess}}},
				{kind: number, title: "Duration", unit: seconds, width: 12, help: "Within which time half, 90 % and 99 % of the requests ended.", queries: inQuantiles()},
				{kind: graph, title: "Requests by pod", unit: perSecond, width: 8, help: "Requests that each pod received.",
					queries: perPod(func(by, s string) string { return sum(by, rate(series(requests, s))) })},
				{kind: graph, title: "Success by pod", unit: success, width: 8, help: "A single pod that is worse than the others is often a node's or a version's fault.",
					queries: perPod(func(by, s string) string {
						return rest(by, rate(series(requests, s, failed)), rate(series(requests, s)))
					})},
				{kind: graph, title: "Duration", unit: seconds, width: 8, help: "Within which time half, 90 % and 99 % of the requests ended.", queries: inQuantiles()},
				edgesTable("Received from", "Who sends requests to it, as certificates prove, or addresses say. An empty name is nobody known.", "peer", received),
				edgesTable("Received, as the senders saw it", "What others sent to its pods. It counts each attempt, and has what never arrived.", "at", otherwise),
			}},
			{title: "Sent", panels: []panel{
				{kind: table, title: "Sent to", width: 24, sort: "Success", help: "Services that it sends requests to, and the backends to which splits lead. Each attempt counts.", queries: edgeColumns("service, backend", sent, "")},
			}},
			{title: "Access control", panels: []panel{
				{kind: graph, title: "Decisions", unit: perSecond, width: 24, help: "What the policies of its pods decided about requests and connections, and why (docs/access.md).",
					queries: []query{{expr: sum("action, reason", rate(series("weir_access_decisions_total", `workload=~"$namespace/[^/]+/$workload(?:`+hash+`)?(?:`+suffix+`)?"`))), legend: "{{action}} {{reason}}"}}},
			}},
		},
	}
}

// toWorkload leads to the workload of a side.
func toWorkload(side string) link {
	return link{board: "weir-workload", variable: "workload", namespace: side + "_namespace"}
}

// edgesTable has a row for each workload on the other side.
func edgesTable(title, help, side, selector string) panel {
	return panel{kind: table, title: title, help: help, width: 12, sort: "Success", queries: edgeColumns(side+"_namespace, workload", selector, side),
		links: map[string]link{"workload": toWorkload(side)}}
}

// edgeColumns are rate, success and 99th percentile by labels. If side is at or peer, the label workload has the name of
// that side's.
func edgeColumns(by, selector, side string) []query {
	named := func(of string) string {
		if side == "" {
			return of
		}
		return workloadOf(side, "workload", of)
	}
	all := named(rate(series("weir_edge_requests_total", selector)))
	failed := named(rate(series("weir_edge_requests_total", selector, `result="failure"`)))
	buckets := named(rate(series("weir_edge_request_duration_seconds_bucket", selector)))
	return []query{
		{expr: sum(by, all), legend: "Requests", unit: perSecond},
		{expr: rest(by, failed, all), legend: "Success", unit: success},
		{expr: "histogram_quantile(0.99, " + sum("le, "+by, buckets) + ")", legend: "p99", unit: seconds},
	}
}
