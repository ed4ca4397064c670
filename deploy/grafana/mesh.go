package main

// mesh is who talks to whom.
func mesh() board {
	const (
		sent     = `direction="to",at_namespace=~"$namespace"`
		received = `direction="from",at_namespace=~"$namespace"`
		requests = "weir_edge_requests_total"
		failed   = `result="failure"`
	)
	succeeded := func(by, s string) string {
		return rest(by, rate(series(requests, s, failed)), rate(series(requests, s)))
	}
	return board{
		name: "mesh", title: "Weir / Mesh", help: "Who talks to whom, how well, and whom access control keeps out.",
		variables: []variable{{name: "namespace", label: "Namespace", help: "Of the side that observes.", query: `label_values(weir_edge_requests_total, at_namespace)`, all: true}},
		rows: []row{
			{title: "All", panels: []panel{
				{kind: number, title: "Sent", unit: perSecond, width: 6, help: "Attempts a second at backends.", queries: []query{{expr: sum("", rate(series(requests, sent)))}}},
				{kind: number, title: "Success of what was sent", unit: success, width: 6, help: "Share of the attempts with an answer below 500 that did not break off.", queries: []query{{expr: succeeded("", sent)}}},
				{kind: number, title: "Received", unit: perSecond, width: 6, help: "Requests a second that proxies received from clients.", queries: []query{{expr: sum("", rate(series(requests, received)))}}},
				{kind: number, title: "Success of what was received", unit: success, width: 6, help: "Share of the requests with an answer below 500 that did not break off.", queries: []query{{expr: succeeded("", received)}}},
			}},
			{title: "Who talks to whom", panels: []panel{
				{kind: table, title: "To services", width: 24, sort: "Success", help: "By sender: a pod's workload, or a Gateway. The backend differs from the service where a split leads elsewhere. Each attempt counts.",
					queries: edgeColumns("at_namespace, workload, route, service, backend", sent, "at"), links: map[string]link{"route": {board: "weir-route", variable: "route"}, "workload": toWorkload("at")}},
				{kind: table, title: "From clients", width: 24, sort: "Success", help: "By receiver and client. The client is what its certificate proves, or an address, or nobody known.",
					queries: edgeColumns("at_namespace, at_name, peer_kind, peer_namespace, workload", received, "peer"), links: map[string]link{"workload": toWorkload("peer")}},
			}},
			{title: "What needs a look", panels: []panel{
				{kind: graph, title: "Lowest success", unit: success, width: 12, help: "Of what is sent to backends: the ten lowest.",
					queries: []query{{expr: "bottomk(10, " + succeeded("at_name, backend", sent) + ")", legend: "{{at_name}} to {{backend}}"}}},
				{kind: graph, title: "Slowest", unit: seconds, width: 12, help: "99th percentile of attempts at backends: the ten highest.",
					queries: []query{{expr: "topk(10, " + quantile("0.99", "at_name, backend", "weir_edge_request_duration_seconds", sent) + ")", legend: "{{at_name}} to {{backend}}"}}},
			}},
			{title: "Access control", panels: []panel{
				{kind: graph, title: "Denied", unit: perSecond, width: 12, help: "Requests and connections that policies denied, by workload and reason (docs/access.md).",
					queries: []query{{expr: sum("workload, reason", rate(series("weir_access_decisions_total", `action="denied"`))), legend: "{{workload}} {{reason}}"}}},
				{kind: graph, title: "Passed", unit: perSecond, width: 12, help: "Requests and connections that passed. Those that are audited had no permission, and will be denied once their workload is governed.",
					queries: []query{{expr: sum("workload, action", rate(series("weir_access_decisions_total", `action!="denied"`))), legend: "{{workload}} {{action}}"}}},
			}},
		},
	}
}
