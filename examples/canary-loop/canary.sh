#!/usr/bin/env bash
# The loop of SMI's first draft ("Use Cases", "Canary"): it sends website-v2 a growing share of the requests, watches its
# Traffic Metrics, and rolls back when less than 100 % succeed.
#
#   canary.sh DIR WEIGHT...      canary.sh . 10 50 100
#
# DIR is the folder that "weir run" serves. WINDOW (10 s) is how long each step is watched, WAIT (60 s) how long to wait for
# requests to judge by, WEIR the program, WEIR_ADMIN its admin endpoint. Exit code 1: rolled back.
set -euo pipefail

dir=$1; shift
window=${WINDOW:-10} wait=${WAIT:-60} weir=${WEIR:-weir}

# split writes the weights of v1 and v2, in one step.
split() {
	cat >"$dir/.split.new" <<-EOF
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
	mv "$dir/.split.new" "$dir/split.yaml"
}

# measure prints how many requests website-v2 had in the window, and how many of them failed.
measure() { "$weir" traffic top service website-v2 --window "${window}s" -o wide | awk 'NR == 2 {print $7, $8}'; }

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
		read -r requests failures < <(measure) || rollback "its metrics cannot be read"
		[ "$failures" -eq 0 ] || rollback "$failures of $requests requests failed"
		[ "$requests" -eq 0 ] || break
		waited=$((waited + window))
		[ "$waited" -lt "$wait" ] || rollback "there was no request in $waited s"
	done
	echo "$requests requests, none failed"
done
echo "done: website-v2 gets $weight %"
