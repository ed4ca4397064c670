package main

// overview is where somebody begins who was called: is anything wrong, and where.
func overview() board {
	return board{
		name: "overview", title: "Weir / Overview",
		help: "Whether requests succeed and how long they take, of all Gateways; then what could be the cause, from routes to proxies to the controller.",
		variables: []variable{{
			name: "gateway", label: "Gateway", help: "The Gateway whose proxies are shown, by the label that the scrape configurations of deploy/prometheus give.",
			query: `label_values(weir_config_generation, gateway)`, all: true,
		}},
		rows: []row{
			{title: "Now", panels: now()},
			{title: "Traffic", panels: traffic()},
			{title: "Routes", panels: []panel{routes(ofGateway, "Routes", "Choose a route for its own board. What reached no route has an empty name.")}},
			{title: "Backends", panels: backends()},
			{title: "Mirrors", panels: append(mirrors(ofGateway), pausedMirrors())},
			{title: "Proxies", panels: proxies()},
			{title: "TLS", panels: handshakes()},
			{title: "Controller", closed: true, panels: controller()},
			{title: "Logs and traces", closed: true, panels: observed()},
		},
	}
}

// ofGateway selects proxies by the variable.
const ofGateway = `gateway=~"$gateway"`

func now() []panel {
	return []panel{
		{kind: number, title: "Requests", unit: perSecond, width: 4, help: "Finished requests and TCP connections a second.",
			queries: []query{{expr: sum("", rate(series("weir_requests_total", ofGateway)))}}},
		{kind: number, title: "Success", unit: success, width: 4, help: "Share of the requests that were not answered 5xx, without those that clients gave up.",
			queries: []query{{expr: answered("", ofGateway)}}},
		{kind: number, title: "Duration", unit: seconds, width: 8, help: "Within which time half, 90 % and 99 % of the requests ended.",
			queries: quantiles("weir_request_duration_seconds", ofGateway)},
		{kind: number, title: "In flight", unit: count, width: 4, help: "Requests that the proxies are carrying.",
			queries: []query{{expr: sum("", series("weir_requests_in_flight", ofGateway))}}},
		{kind: number, title: "Proxies", unit: count, width: 4, help: "Proxies that Prometheus reaches.",
			queries: []query{{expr: "count(" + series("weir_config_generation", ofGateway) + ")"}}},
	}
}

func traffic() []panel {
	return []panel{
		{kind: graph, title: "Requests by status", unit: perSecond, width: 12, help: "What clients were answered. No answer is a client that went away, a connection that broke off, or TCP.",
			queries: statuses(ofGateway)},
		{kind: graph, title: "Duration", unit: seconds, width: 12, help: "From the request's head to the response's end.",
			queries: quantiles("weir_request_duration_seconds", ofGateway)},
		{kind: graph, title: "Success of the worst routes", unit: success, width: 12, help: "Share of the requests of a route that were not answered 5xx: the ten lowest.",
			queries: []query{{expr: "bottomk(10, " + answered("route", ofGateway) + ")", legend: "{{route}}"}}},
		{kind: graph, title: "Failures by reason", unit: perSecond, width: 12, help: "Why the proxies themselves failed requests. docs/metrics.md says of each reason whose fault it is.",
			queries: []query{{expr: "topk(10, " + sum("reason", rate(series("weir_request_failures_total", ofGateway))) + ")", legend: "{{reason}}"}}},
	}
}

// statuses are a line for each class.
func statuses(selector string) (all []query) {
	for _, class := range []string{"2", "3", "4", "5"} {
		all = append(all, query{expr: sum("", rate(series("weir_requests_total", selector, `code=~"`+class+`.."`))), legend: class + "xx"})
	}
	return append(all, query{expr: sum("", rate(series("weir_requests_total", selector, `code="0"`))), legend: "no answer"})
}

func routes(selector, title, help string) panel {
	return panel{
		kind: table, title: title, help: help, width: 24, sort: "Success", links: map[string]link{"route": {board: "weir-route", variable: "route"}},
		queries: []query{
			{expr: sum("route", rate(series("weir_requests_total", selector))), legend: "Requests", unit: perSecond},
			{expr: answered("route", selector), legend: "Success", unit: success},
			{expr: quantile("0.5", "route", "weir_request_duration_seconds", selector), legend: "p50", unit: seconds},
			{expr: quantile("0.9", "route", "weir_request_duration_seconds", selector), legend: "p90", unit: seconds},
			{expr: quantile("0.99", "route", "weir_request_duration_seconds", selector), legend: "p99", unit: seconds},
		},
	}
}

func backends() []panel {
	return []panel{
		{kind: graph, title: "Endpoints that get no requests", unit: count, width: 8, help: "Endpoints that a proxy has ejected, or that fail its health checks, by service; the worst proxy counts.",
			queries: []query{{expr: "max by (service) (count by (service, instance) (" + series("weir_endpoint_healthy", ofGateway) + " == 0))", legend: "{{service}}"}}},
		{kind: graph, title: "Retries", unit: perSecondOf, width: 8, help: "Attempts beyond the first of each request.",
			queries: []query{{expr: sum("route", rate(series("weir_request_retries_total", ofGateway))), legend: "{{route}}"}}},
		{kind: graph, title: "Kept from services by limits", unit: perSecondOf, width: 8, help: "Requests, and retries, that a limit of the service refused (docs/resilience.md).",
			queries: []query{{expr: "topk(10, " + sum("service, limit", rate(series("weir_service_rejected_total", ofGateway))) + ")", legend: "{{service}} {{limit}}"}}},
	}
}

// mirrors are about copies.
func mirrors(selector string) []panel {
	return []panel{
		{kind: graph, title: "Copies", unit: perSecondOf, width: 8, help: "Copies that a mirror was to get, and those that it got whole and answered.",
			queries: []query{
				{expr: sum("mirror", rate(series("weir_mirror_selected_total", selector))), legend: "{{mirror}} selected"},
				{expr: sum("mirror", rate(series("weir_mirror_requests_total", selector, `outcome="sent"`))), legend: "{{mirror}} sent"},
			}},
		{kind: graph, title: "Copies that did not arrive", unit: perSecondOf, width: 8, help: "By outcome: dropped by the proxy's own bounds, or failed at the mirror. Primaries do not notice.",
			queries: []query{{expr: sum("mirror, outcome", rate(series("weir_mirror_requests_total", selector, `outcome!="sent"`))), legend: "{{mirror}} {{outcome}}"}}},
	}
}

func pausedMirrors() panel {
	return panel{kind: graph, title: "Mirrors that are paused", unit: count, width: 8, help: "Proxies that pause a mirror because it failed too often.",
		queries: []query{{expr: sum("mirror", series("weir_mirror_breaker_open", ofGateway)), legend: "{{mirror}}"}}}
}
