#!/usr/bin/env bash
# The loop of SMI's first draft ("Use Cases", "Canary"): it sends website-v2 a growing share of the requests, watches its
# Traffic Metrics, and rolls back when less than 100 % succeed. Its steps are in steps.sh, beside it.
#
#   canary.sh DIR WEIGHT...      canary.sh . 10 50 100
#
# DIR is the folder that "weir run" serves. WINDOW (10 s) is how long each step is watched, WAIT (60 s) how long to wait for
# requests to judge by, WEIR the program, WEIR_ADMIN its admin endpoint. Exit code 1: rolled back.
set -euo pipefail
source "$(dirname "${BASH_SOURCE[0]}")/steps.sh"

dir=$1; shift
window=${WINDOW:-10} wait=${WAIT:-60} weir=${WEIR:-weir}

store() {
	cat >"$dir/.split.new"
	mv "$dir/.split.new" "$dir/split.yaml"
}

measure() { "$weir" traffic top service website-v2 --window "${window}s" -o wide | awk 'NR == 2 {print $7, $8}'; }

steps "$@"
