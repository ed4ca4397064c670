#!/usr/bin/env bash
# canary.sh for a cluster, with kubectl alone: it sends website-v2 a growing share of the requests, watches its Traffic
# Metrics, and rolls back when less than 100 % succeed.
#
#   canary-kubectl.sh NAMESPACE WEIGHT...      canary-kubectl.sh shop 10 50 100
#
# WINDOW (30 s) is how long each step is watched, WAIT (120 s) how long to wait for requests to judge by. Exit code 1: rolled
# back.
set -euo pipefail

namespace=$1; shift
window=${WINDOW:-30} wait=${WAIT:-120}

# split sets the weights of v1 and v2, in one step.
split() {
	kubectl --namespace "$namespace" apply -f - >/dev/null <<-EOF
		apiVersion: split.smi-spec.io/v1alpha4
		kind: TrafficSplit
		metadata:
		  name: canary
		spec:
		  service: website
		  backends:
		  - service: website-v1
		    weight: $1
		  - service: website-v2
		    weight: $2
	EOF
}

# measure prints how many requests to website-v2 succeeded in the window, and how many failed.
measure() {
	kubectl get --raw "/apis/traffic.metrics.k8s.io/v1beta1/namespaces/$namespace/services/website-v2?window=${window}s" |
		sed -nE 's/.*"name":"success_count","value":"([0-9]+)".*"name":"failure_count","value":"([0-9]+)".*/\1 \2/p'
}

rollback() {
	echo "rolled back: $1"
	split 100 0
	exit 1
}

for weight in "$@"; do
	split $((100 - weight)) "$weight"
	echo "website-v2 gets $weight %"
	waited=0
	while :; do
		sleep "$window"
		read -r successes failures < <(measure) || rollback "its metrics cannot be read"
		[ "$failures" -eq 0 ] || rollback "$failures of $((successes + failures)) requests failed"
		[ "$successes" -eq 0 ] || break
		waited=$((waited + window))
		[ "$waited" -lt "$wait" ] || rollback "there was no request in $waited s"
	done
	echo "$successes requests, none failed"
done
echo "done: website-v2 gets $weight %"
