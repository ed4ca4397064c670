# The steps of canary.sh and canary-kubectl.sh, which read this file. They define
#
#   store     takes a TrafficSplit from its standard input into use, at once
#   measure   prints how many requests website-v2 had in the last $window seconds, and how many of them failed
#
# and set window, and wait, the seconds to wait for requests to judge by.

# split sets the weights of v1 and v2.
split() {
	store <<-EOF
		apiVersion: split.smi-spec.io/v1alpha4
		kind: TrafficSplit
		metadata:
		  name: canary
		spec:
		  service: website
		  backends:
		  - service: website-v1
		    weight: $1
		  - service: website-v2
		    weight: $2
	EOF
}

rollback() {
	echo "rolled back: $1"
	split 100 0
	exit 1
}

# steps goes through the weights of website-v2.
steps() {
	local weight waited requests failures
	for weight in "$@"; do
		split $((100 - weight)) "$weight"
		echo "website-v2 gets $weight %"
		waited=0
		while :; do
			sleep "$window"
			read -r requests failures < <(measure) || rollback "its metrics cannot be read"
			[ "$failures" -eq 0 ] || rollback "$failures of $requests requests failed"
			[ "$requests" -eq 0 ] || break
			waited=$((waited + window))
			[ "$waited" -lt "$wait" ] || rollback "there was no request in $waited s"
		done
		echo "$requests requests, none failed"
	done
	echo "done: website-v2 gets $weight %"
}
