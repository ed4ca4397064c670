#!/usr/bin/env bash
# Builds the last commit twice, in folders of different names with different build caches, the second one empty, and
# compares the bytes.
set -euo pipefail
cd "$(git -C "$(dirname "$0")" rev-parse --show-toplevel)"

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
for name in one another/with/a/longer/name; do
	git clone -q . "$work/$name"
	make -s -C "$work/$name" build
	export GOCACHE=$work/cache
done
cd "$work"
sha256sum one/bin/weir another/with/a/longer/name/bin/weir
cmp one/bin/weir another/with/a/longer/name/bin/weir
echo "the same: $(one/bin/weir version)"
