package main

func proxies() []panel {
	used := func(of, limit string) string {
		return "max(" + series(of, ofGateway) + " / (" + series(limit, ofGateway) + " > 0))"
	}
	return []panel{
		{kind: graph, title: "Limits in use", unit: ratio, width: 8, help: "How near the fullest proxy is to each of its limits. At 100 % it refuses.",
			queries: []query{
				{expr: used("weir_client_connections", "weir_client_connections_limit"), legend: "connections"},
				{expr: used("weir_requests_in_flight", "weir_requests_in_flight_limit"), legend: "requests in flight"},
				{expr: used("weir_buffered_bytes", "weir_buffered_bytes_limit"), legend: "buffered bytes"},
			}},
		{kind: graph, title: "Refused by proxies", unit: perSecondOf, width: 8, help: "Requests and connections that a proxy refused to protect itself, by the limit that was reached (docs/resilience.md).",
			queries: []query{{expr: sum("limit", rate(series("weir_refused_total", ofGateway))), legend: "{{limit}}"}}},
		{kind: graph, title: "Waiting for a processor", unit: seconds, width: 8, help: "How long requests wait for the processors of the proxy where they wait longest. A proxy that is overloaded for long needs more of them.",
			queries: []query{{expr: "max(" + series("weir_queue_delay_seconds", ofGateway) + ")", legend: "longest wait"}}},
		{kind: graph, title: "Connections", unit: count, width: 8, help: "Open connections of clients, by listener.",
			queries: []query{{expr: sum("listener", series("weir_connections_open", ofGateway)), legend: "{{listener}}"}}},
		{kind: graph, title: "New connections", unit: perSecondOf, width: 8, help: "Accepted connections of clients, by listener.",
			queries: []query{{expr: sum("listener", rate(series("weir_connections_total", ofGateway))), legend: "{{listener}}"}}},
		{kind: graph, title: "Bytes", unit: bytesPerSecond, width: 8, help: "Bodies of requests from clients and of responses to them.",
			queries: []query{
				{expr: sum("", rate(series("weir_request_bytes_total", ofGateway))), legend: "received"},
				{expr: sum("", rate(series("weir_response_bytes_total", ofGateway))), legend: "sent"},
			}},
		{kind: graph, title: "Memory", unit: size, width: 12, help: "Resident memory of each proxy.",
			queries: []query{{expr: "process_resident_memory_bytes and on (instance) " + series("weir_config_generation", ofGateway), legend: "{{namespace}}/{{pod}} {{instance}}"}}},
		{kind: graph, title: "Processors", unit: count, width: 12, help: "Processors that each proxy keeps busy.",
			queries: []query{{expr: rate("process_cpu_seconds_total") + " and on (instance) " + series("weir_config_generation", ofGateway), legend: "{{namespace}}/{{pod}} {{instance}}"}}},
		{kind: graph, title: "Age of the configuration", unit: seconds, width: 12, help: "Since when a proxy serves its configuration, the newest and the oldest.",
			queries: []query{
				{expr: "time() - max(" + series("weir_config_last_reload_success_timestamp_seconds", ofGateway) + ")", legend: "newest"},
				{expr: "time() - min(" + series("weir_config_last_reload_success_timestamp_seconds", ofGateway) + ")", legend: "oldest"},
			}},
		{kind: graph, title: "Configurations refused", unit: count, width: 12, help: "Proxies that refused the newest configuration, and serve the last good one. Their log says why.",
			queries: []query{{expr: "count(" + series("weir_config_last_reload_successful", ofGateway) + " == 0) or vector(0)", legend: "proxies"}}},
	}
}

func handshakes() []panel {
	return []panel{
		{kind: table, title: "Certificates", width: 12, sort: "Expires in", help: "How long the certificates that listeners present are still valid. Identities of workloads are renewed by themselves.",
			queries: []query{{expr: "min by (certificate) (" + series("weir_certificate_expiry_timestamp_seconds", ofGateway) + ") - time()", legend: "Expires in", unit: seconds}}},
		{kind: graph, title: "Handshakes that failed", unit: perSecondOf, width: 12, help: "With clients (client_tls), and with backends (backend_tls).",
			queries: []query{{expr: sum("reason", rate(series("weir_request_failures_total", ofGateway, `reason=~"client_tls|backend_tls"`))), legend: "{{reason}}"}}},
	}
}

func controller() []panel {
	return []panel{
		{kind: number, title: "Leaders", unit: count, width: 4, help: "Replicas of the controller that lead: one, and none for a moment when it changes.",
			queries: []query{{expr: "sum(weir_controller_leader)"}}},
		{kind: number, title: "Proxies fed", unit: count, width: 4, help: "Proxies that are connected to the controller.",
			queries: []query{{expr: "sum(weir_controller_proxies_connected)"}}},
		{kind: number, title: "Findings", unit: count, width: 8, help: "What is wrong with the objects of the cluster; weir check lists them.",
			queries: []query{{expr: "max by (severity) (weir_controller_findings)", legend: "{{severity}}"}}},
		{kind: number, title: "Unpublished", unit: count, width: 4, help: "1 while the newest state of the cluster is not what proxies get.",
			queries: []query{{expr: "max(weir_controller_config_unpublished)"}}},
		{kind: number, title: "Publications that failed", unit: count, width: 4, help: "Attempts in the last hour to publish a configuration that failed for some Gateway, whose status says why.",
			queries: []query{{expr: "sum(increase(weir_controller_publish_failures_total[1h]))"}}},
		{kind: graph, title: "Translating and publishing", unit: seconds, width: 8, help: "Within which time 99 % of the changes were translated, and published.",
			queries: []query{
				{expr: quantile("0.99", "", "weir_controller_translate_seconds", ""), legend: "translate"},
				{expr: quantile("0.99", "", "weir_controller_publish_seconds", ""), legend: "publish"},
			}},
		{kind: graph, title: "Feed", unit: perSecondOf, width: 8, help: "Responses to proxies, those that proxies did not apply, and streams that were refused for their token.",
			queries: []query{
				{expr: sum("", rate("weir_controller_feed_responses_total")), legend: "responses"},
				{expr: sum("", rate("weir_controller_feed_refusals_total")), legend: "not applied"},
				{expr: sum("", rate("weir_controller_feed_unauthenticated_total")), legend: "unauthenticated"},
			}},
		{kind: graph, title: "Statuses", unit: perSecondOf, width: 8, help: "Statuses that were written, and those that could not be and are tried again.",
			queries: []query{
				{expr: sum("", rate("weir_controller_status_writes_total")), legend: "written"},
				{expr: sum("", rate("weir_controller_status_errors_total")), legend: "failed"},
			}},
		{kind: graph, title: "Tasks that failed", unit: count, width: 8, help: "Failures of each task in the last five minutes; it begins again after each.",
			queries: []query{{expr: "sum by (task) (increase(weir_controller_task_failures_total[5m]))", legend: "{{task}}"}}},
		{kind: graph, title: "Conversions", unit: perSecondOf, width: 8, help: "Reviews by which the API server has SMI objects converted between versions.",
			queries: []query{
				{expr: sum("", rate("weir_controller_conversions_total")), legend: "answered"},
				{expr: sum("", rate("weir_controller_conversion_failures_total")), legend: "failed"},
				{expr: sum("", rate("weir_controller_conversion_refusals_total")), legend: "refused"},
			}},
		{kind: graph, title: "Generations", unit: count, width: 8, help: "Configurations that each replica has published since it began.",
			queries: []query{{expr: "weir_controller_config_generation", legend: "{{pod}} {{instance}}"}}},
	}
}

func observed() []panel {
	return []panel{
		{kind: graph, title: "Spans", unit: perSecondOf, width: 12, help: "What becomes of the spans of traces (docs/traffic.md): those that are limited were not traced, as there were too many.",
			queries: []query{{expr: sum("result", rate(series("weir_trace_spans_total", ofGateway))), legend: "{{result}}"}}},
		{kind: graph, title: "Lines lost", unit: perSecondOf, width: 12, help: "Lines that the access log and the log of the process lost because they could not be written fast enough.",
			queries: []query{
				{expr: sum("", rate(series("weir_access_log_dropped_records_total", ofGateway))), legend: "access log"},
				{expr: sum("", rate(series("weir_log_dropped_lines_total", ofGateway))), legend: "log"},
			}},
	}
}
