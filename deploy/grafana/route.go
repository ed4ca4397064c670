package main

// route is about what a route does with its requests.
func route() board {
	const of = `route=~"$route"`
	byBackend := func(title string, u unit, help, expr string) panel {
		return panel{kind: graph, title: title, unit: u, width: 8, help: help, queries: []query{{expr: expr, legend: "{{rule}} {{backend}}"}}}
	}
	const each = "rule, backend"
	return board{
		name: "route", title: "Weir / Route", help: "What becomes of the requests of a route, by rule and backend: success, duration, shares beside weights, failures, retries and copies.",
		variables: []variable{{name: "route", label: "Route", help: "namespace/name of HTTPRoutes, GRPCRoutes and TCPRoutes.", query: `label_values(weir_requests_total, route)`, all: true}},
		rows: []row{
			{title: "The route", panels: []panel{
				{kind: number, title: "Requests", unit: perSecond, width: 6, help: "Finished requests and TCP connections a second.",
					queries: []query{{expr: sum("", rate(series("weir_requests_total", of)))}}},
				{kind: number, title: "Success", unit: success, width: 6, help: "Share of the requests that were not answered 5xx, without those that clients gave up.",
					queries: []query{{expr: answered("", of)}}},
				{kind: number, title: "Duration", unit: seconds, width: 12, help: "Within which time half, 90 % and 99 % of the requests ended.",
					queries: quantiles("weir_request_duration_seconds", of)},
				{kind: graph, title: "Requests by status", unit: perSecond, width: 12, help: "What clients were answered. No answer is a client that went away, a connection that broke off, or TCP.",
					queries: statuses(of)},
				{kind: graph, title: "Duration", unit: seconds, width: 12, help: "From the request's head to the response's end.", queries: quantiles("weir_request_duration_seconds", of)},
			}},
			{title: "Backends", panels: []panel{
				byBackend("Requests by backend", perSecond, "Finished requests. An empty backend is answers that no backend gave.", sum(each, rate(series("weir_requests_total", of)))),
				byBackend("Success by backend", success, "Share of the requests that were not answered 5xx.", answered(each, of)),
				byBackend("p99 by backend", seconds, "Within which time 99 % of the requests ended.", quantile("0.99", each, "weir_request_duration_seconds", of)),
			}},
			{title: "Weights", panels: []panel{
				{kind: graph, title: "Shares", unit: ratio, width: 12, help: "The share of a rule's requests that each backend really gets. Sessions and splits with matches make it differ from the weights.",
					queries: []query{{expr: shares(of), legend: "{{rule}} {{backend}}"}}},
				{kind: table, title: "Weights beside shares", width: 12, sort: "rule", help: "What weights of rules and splits say each backend is to get, and what it gets.",
					queries: []query{
						{expr: "avg by (route, rule, backend) (" + series("weir_backend_weight_ratio", of) + ")", legend: "Weight", unit: ratio},
						{expr: shares(of), legend: "Share", unit: ratio},
					}},
			}},
			{title: "Failures", panels: []panel{
				{kind: graph, title: "Failures by reason", unit: perSecond, width: 12, help: "Why the proxies themselves failed requests (docs/metrics.md). An answer of a backend with 5xx is none of these.",
					queries: []query{{expr: sum("reason", rate(series("weir_request_failures_total", of))), legend: "{{reason}}"}}},
				{kind: graph, title: "Retries", unit: perSecondOf, width: 12, help: "Attempts beyond the first of each request.",
					queries: []query{{expr: sum(each, rate(series("weir_request_retries_total", of))), legend: "{{rule}} {{backend}}"}}},
			}},
			{title: "Mirrors", panels: append([]panel{
				{kind: graph, title: "Considered", unit: perSecondOf, width: 8, help: "Requests that met a mirror, before its fraction was applied.",
					queries: []query{{expr: sum("mirror", rate(series("weir_mirror_considered_total", of))), legend: "{{mirror}}"}}},
			}, mirrors(of)...)},
			{title: "Bytes", closed: true, panels: []panel{
				byBackend("Received", bytesPerSecond, "Bytes of the bodies of requests.", sum(each, rate(series("weir_request_bytes_total", of)))),
				byBackend("Sent", bytesPerSecond, "Bytes of the bodies of responses.", sum(each, rate(series("weir_response_bytes_total", of)))),
			}},
		},
	}
}

// shares is which part of a rule's requests each backend gets; answers that no backend gave do not count.
func shares(of string) string {
	counted := rate(series("weir_requests_total", of, `backend!=""`))
	return sum("route, rule, backend", counted) + " / on (route, rule) group_left " + sum("route, rule", counted)
}
