// Package tapping carries taps of requests over streams: a Hub in each replica of the controller sends orders to the
// proxies that are connected to it, and asks the other replicas for the lines of theirs; Serve is the proxy's end, which
// opens taps at its telemetry.Registry and sends what they show.
//
// A line may be lost at every step, and is counted where it matched: neither traffic nor configurations wait for a tap.
// The package opens no connections and proves no identities: whoever has the streams (package feed) does.
package tapping
