#!/usr/bin/env bash
# Runs a command unless it has passed on the same files, in this clone or another one of this user: "scripts/once.sh make test-chart". What is
# uncommitted always counts as changed, documentation never does. ALWAYS=1 runs it in any case.
set -euo pipefail
# "make -n" runs nothing, though it runs this.
flags=${MAKEFLAGS-}
case "${flags%% *}" in -* | '') ;; *n*) exec "$@" ;; esac
top=$(git rev-parse --show-toplevel)
key=$( (echo "$@"; go version; git -C "$top" ls-files -s -- ':!*.md') | sha256sum | cut -c1-32)
passed=$(go env GOCACHE)/weir-passed/$key
changed=$(git -C "$top" status --porcelain -- ':!*.md')
if [ -z "$changed" ] && [ -z "${ALWAYS:-}" ] && [ -e "$passed" ]; then
	echo "$*: passed before on the same files (ALWAYS=1 runs it again)"
	exit 0
fi
"$@"
[ -n "$changed" ] || { mkdir -p "${passed%/*}" && touch "$passed"; }
