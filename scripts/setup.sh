#!/usr/bin/env bash
# Installs the Debian packages of the given commands and folders that are missing: "scripts/setup.sh curl gcc".
# Needs nothing and says nothing when all are there.
set -euo pipefail

declare -A package=([gcc]="gcc libc6-dev" [node]=nodejs [javac]=default-jdk-headless [testssl]=testssl.sh [nft]=nftables [ip]=iproute2
	[graph-easy]=libgraph-easy-perl [/usr/lib/cni/bridge]=containernetworking-plugins [/usr/share/nodejs/express]=node-express
	[/usr/share/tomcat10/lib]=tomcat10-common)
wanted=()
for command in "$@"; do
	{ command -v "$command" >/dev/null || [ -d "$command" ]; } && continue
	# shellcheck disable=SC2206 # one command may need several packages
	wanted+=(${package[$command]:-$command})
done
[ ${#wanted[@]} -eq 0 ] && exit 0

if ! command -v apt-get >/dev/null || [ "$(id -u)" -ne 0 ]; then
	echo "setup: please install: ${wanted[*]}" >&2
	exit 1
fi
echo "setup: installing ${wanted[*]}" >&2
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq >&2
apt-get install -y -qq --no-install-recommends "${wanted[@]}" >&2
