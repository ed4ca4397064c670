#!/usr/bin/env bash
# Runs the Gateway API's conformance suite against this tree, in a cluster of its own: "scripts/conformance.sh [e2e|e2e-only|build] [FLAG...]".
# With "e2e" the end-to-end tests come first, with "e2e-only" they are all there is; "build" builds what "e2e-only" needs, and runs nothing. Flags are
# those of the suite (-run-test=NAME) and of Go's tests (-test.short). The end-to-end tests have theirs in E2EFLAGS, in E2EALONE which of them
# have a cluster to themselves (if empty, none), and in E2EIMAGES further images that some of them need (flagger, argo-rollouts). All that is
# said goes to bin/conformance/run.log, of the second cluster to alone.log there, what matters of it to the terminal.
set -euo pipefail
cd "$(dirname "$0")/.."
bin=$PWD/bin
mkdir -p "$bin/conformance"
e2e=false suite=true run=true
case "${1:-}" in
build) e2e=true suite=false run=false && shift ;;
e2e-only) e2e=true suite=false && shift ;;
e2e) e2e=true && shift ;;
esac
! $e2e || (cd test/conformance && go test -c -o "$bin/e2e.test" ./e2e)
! $suite || (cd test/conformance && go test -c -o "$bin/conformance.test" .)
(cd test/cluster && go build -o "$bin/cluster" .)

# These stop what there is one of, the controller or the API server: they have a cluster to themselves, after that of all others. In the
# short form, the few of them that it has come first in that one.
alone=${E2EALONE-'RestartFailsNoRequest$|OverADrainedNode$|WithoutController$|OldVersions|ReplacingProxies|ReplacingTheOnlyProxy'}
case "${E2EFLAGS:-}" in *-test.short*) alone=${E2EALONE:-} ;; esac

# Most of the tests wait most of the time, so more of them run than there are processors: in the short form all. In full size many of them
# have loads, and what has no processor time for seconds fails.
parallel=4
case "${E2EFLAGS:-}" in *-test.short*) parallel=10 ;; esac
e2e() { (cd ../conformance/e2e && exec "$bin/e2e.test" -test.v -test.timeout=60m -test.parallel="$parallel" ${E2EFLAGS:-} "$@"); }
suite() { (cd ../conformance && exec "$bin/conformance.test" -test.run='Conformance$' -test.v -test.timeout=2h -test.parallel=8 "$@"); }
others() { (! $e2e || e2e ${alone:+-test.skip="$alone"}) && (! $suite || suite "$@"); }
export bin alone e2e suite parallel
export -f e2e suite others

# tell LOG: all to the log, what matters to the terminal.
tell() {
	tee "$bin/conformance/$1" | sed -unE '
		s/^.*: (Running [A-Za-z0-9]+), relying on .*/\1/p
		/^( {4})?--- (PASS|FAIL)|^(PASS|FAIL|ok|panic)|^ +[a-z0-9_]+_test\.go:|Error( Trace)?:|Messages:|^cluster:|^the controller/p'
}

cd test/cluster
images=(-image weir)
! $suite || images+=(-image conformance)
if $suite && [[ " $* " != *' -test.short '* ]]; then images+=(-image mesh); fi
for image in ${E2EIMAGES:-}; do images+=(-image "$image"); done
$run || exec "$bin/cluster" images "${images[@]}"
set +e
"$bin/cluster" run "${images[@]}" -- bash -c 'others "$@"' - "$@" 2>&1 | tell run.log
code=${PIPESTATUS[0]}
if $e2e && [ -n "$alone" ]; then
	"$bin/cluster" run -image weir -- bash -c 'e2e -test.run="$alone"' 2>&1 | tell alone.log
	[ "${PIPESTATUS[0]}" = 0 ] || code=1
fi
exit "$code"
