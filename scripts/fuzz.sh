#!/usr/bin/env bash
# Runs every fuzz target of the module for a bounded time: "scripts/fuzz.sh 10s". A crasher that is found stays
# in the package's testdata/fuzz and fails "go test" from then on.
set -euo pipefail
time=${1:?usage: scripts/fuzz.sh DURATION}

for package in $(go list -f '{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}{{end}}' ./...); do
	dir=$(go list -f '{{.Dir}}' "$package")
	for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | sed 's/^func //' | sort -u); do
		echo "== $package $target ($time)"
		go test "$package" -run '^$' -fuzz "^$target\$" -fuzztime "$time"
	done
done
