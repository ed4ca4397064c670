#!/usr/bin/env bash
# Releases the last commit twice for this machine's platform, in folders of different names with different build caches,
# the second one empty, and compares the bytes: of the binaries and of all files of the release.
set -euo pipefail
cd "$(git -C "$(dirname "$0")" rev-parse --show-toplevel)"

work=$(mktemp -d)
trap 'chmod -R u+w "$work"; rm -rf "$work"' EXIT
for name in one another/with/a/longer/name; do
	git clone -q . "$work/$name"
	make -s -C "$work/$name" release PLATFORMS="$(go env GOOS)-$(go env GOARCH)" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
	export GOCACHE=$work/cache
done
cd "$work"
sha256sum {one,another/with/a/longer/name}/bin/weir{,-proxy}
diff -r one/bin/release another/with/a/longer/name/bin/release
for program in weir weir-proxy; do cmp "one/bin/$program" "another/with/a/longer/name/bin/$program"; done
echo "the same: $(one/bin/weir version)"
