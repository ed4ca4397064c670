#!/usr/bin/env bash
# Runs the Gateway API's conformance suite against this tree in a cluster of its own: "scripts/conformance.sh [FLAG...]", where flags
# are those of the suite (-run-test=NAME) and of Go's tests (-test.short). What the suite says goes to bin/conformance/run.log, the
# results of its tests to the terminal.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin
mkdir -p "$bin/conformance"
(cd test/conformance && go test -c -o "$bin/conformance.test" .)
(cd test/cluster && go build -o "$bin/cluster" .)

cd test/cluster
set +e
"$bin/cluster" run -image weir -image conformance -- \
	env --chdir=../conformance "$bin/conformance.test" -test.run=TestConformance -test.v -test.timeout=2h -test.parallel=4 "$@" 2>&1 |
	tee "$bin/conformance/run.log" | grep --line-buffered -E '^( {4})?--- |^(PASS|FAIL|panic)|Error( Trace)?:|Messages:|in all$|^cluster:'
exit "${PIPESTATUS[0]}"
