#!/usr/bin/env bash
# Fails if a module has functions that nothing reaches, tests included, and if what is released has some that nothing but tests does. In the module of
# weir itself packages that are made for tests are no part of that, nor is what reads the JSON form of a finding, nor what other front ends are
# made with (test/toy is one).
# usage: scripts/deadcode.sh PACKAGE@VERSION, of golang.org/x/tools/cmd/deadcode
set -euo pipefail
tool=${1:?usage: scripts/deadcode.sh PACKAGE@VERSION}
go=${GO:-go}

found=0
dead() { # dead WHAT ARGUMENT...
	local what=$1 out
	shift
	out=$("$go" run "$tool" "$@")
	out=$(grep -Ev 'func: (Severity.UnmarshalText|ColumnOf|ReferencesOf|NewList|NewSet)$' <<<"$out" || true)
	if [ -n "$out" ]; then
		echo "$what:" >&2
		echo "$out" >&2
		found=1
	fi
}

for mod in $(git ls-files '*go.mod'); do
	cd "$(git rev-parse --show-toplevel)/$(dirname "$mod")"
	packages=$("$go" list ./...)
	[ -z "$packages" ] || dead "unreachable in $mod" -test ./... # a module may have nothing but its requirements
done
cd "$(git rev-parse --show-toplevel)"
dead "reached by tests alone: move it to them" -filter '^github.com/weirmesh/weir/(api|cmd|deploy|internal)' \
	$("$go" list -f '{{if eq .Name "main"}}{{.ImportPath}}{{end}}' ./...)
exit $found
