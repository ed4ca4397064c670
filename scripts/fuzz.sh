#!/usr/bin/env bash
# Runs every fuzz target of the module for a bounded time or number of inputs: "scripts/fuzz.sh 10s",
# "scripts/fuzz.sh 5000x". A crasher that is found stays in the package's testdata/fuzz and fails "go test" from then on.
set -euo pipefail
bound=${1:?usage: scripts/fuzz.sh DURATION|COUNTx}

log=$(mktemp)
trap 'rm -f "$log"' EXIT
go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}} {{.Dir}}{{end}}' ./... | while read -r package dir; do
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go | sed 's/^func //' | sort -u); do
		echo "== $package $target ($bound)"
		if ! go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$bound" -fuzzminimizetime 1s >"$log" 2>&1; then
			cat "$log"
			# Until Go 1.27 the end of the time can be mistaken for a failure (golang/go#75804); a real one leaves its input.
			grep -q 'context deadline exceeded' "$log" && ! grep -q 'Failing input' "$log" || exit 1
		fi
		tail -n 1 "$log"
	done
done
