#!/usr/bin/env bash
# Runs the Gateway API's conformance suite against this tree, in a cluster of its own: "scripts/conformance.sh [e2e] [FLAG...]". With
# "e2e" the end-to-end tests come first, with "e2e-only" they are all there is. Flags are those of the suite (-run-test=NAME) and of Go's
# tests (-test.short). All that is said goes to bin/conformance/run.log, what matters of it to the terminal.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin
mkdir -p "$bin/conformance"
first=true then=suite
case "${1:-}" in
e2e-only) then=true ;&
e2e)
	shift
	(cd test/conformance && go test -c -o "$bin/e2e.test" ./e2e)
	first=e2e
	;;
esac
[ "$then" = true ] || (cd test/conformance && go test -c -o "$bin/conformance.test" .)
(cd test/cluster && go build -o "$bin/cluster" .)

# Most of the tests wait most of the time, so more of them run than there are processors.
e2e() { cd "$1/../test/conformance/e2e" && "$1/e2e.test" -test.v -test.timeout=20m -test.parallel=4; }
suite() {
	cd "$1/../test/conformance" && exec "$1/conformance.test" -test.run=TestConformance -test.v -test.timeout=2h -test.parallel=8 "${@:2}"
}
export -f e2e suite

cd test/cluster
set +e
"$bin/cluster" run -image weir -image conformance -- bash -c "$first"' "$@" && '"$then"' "$@"' - "$bin" "$@" 2>&1 |
	tee "$bin/conformance/run.log" | sed -unE '
		s/^.*: (Running [A-Za-z0-9]+), relying on .*/\1/p
		/^( {4})?--- (PASS|FAIL)|^(PASS|FAIL|ok|panic)|^ +[a-z0-9_]+_test\.go:|Error( Trace)?:|Messages:|^cluster:|^the controller/p'
exit "${PIPESTATUS[0]}"
