#!/usr/bin/env bash
# canary.sh for a cluster, with kubectl alone: it sends website-v2 a growing share of the requests, watches its Traffic
# Metrics, and rolls back when less than 100 % succeed. Its steps are in steps.sh, beside it.
#
#   canary-kubectl.sh NAMESPACE WEIGHT...      canary-kubectl.sh shop 10 50 100
#
# WINDOW (30 s) is how long each step is watched, WAIT (120 s) how long to wait for requests to judge by. Exit code 1: rolled
# back.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

namespace=$1; shift
window=${WINDOW:-30} wait=${WAIT:-120}

store() { kubectl --namespace "$namespace" apply -f - >/dev/null; }

measure() {
	kubectl get --raw "/apis/traffic.metrics.k8s.io/v1beta1/namespaces/$namespace/services/website-v2?window=${window}s" |
		sed -nE 's/.*"name":"success_count","value":"([0-9]+)".*"name":"failure_count","value":"([0-9]+)".*/\1 \2/p' |
		while read -r successes failures; do echo $((successes + failures)) "$failures"; done
}

steps "$@"
