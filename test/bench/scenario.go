//go:build linux

package main

import (
	"fmt"
	"slices"
	"strings"

	"golang.org/x/net/http2/hpack"
)

// hostname is the host that requests ask for, unless a scenario has many. It is that of a Service, by which a client's
// sidecar knows it.
const hostname = "shop.bench.svc"

// cipher is the one TLS 1.3 suite all use: libraries prefer different ones.
const cipher = "TLS_AES_128_GCM_SHA256"

// setting is what a proxy is to be configured for.
type setting struct {
	// Backend answers the requests; Mirror, if not empty, gets a copy of MirrorPercent of them.
	Backend       role
	Mirror        role
	MirrorPercent int
	// Split sends 10 % of the requests that carry splitHeader to roleSecond.
	Split bool
	// Routes, if not 0, is how many there are: the numbers 0, Stride, 2*Stride, ... of route.
	Routes int
	Stride int
	// Asked is how many of them are requested, spread evenly.
	Asked int
	TLS   bool
	// HTTP2 is spoken by the clients; backends speak HTTP/1.1, unless it is gRPC.
	HTTP2 bool
	// GRPC is calls of so many messages; 0: no gRPC.
	GRPC int
	// Sidecars is how many a request passes, 0 for a gateway. One is the server's, which knows its clients by mutual TLS; TLS is
	// set then. Two are the client's, which is asked in plain HTTP, and the server's behind it.
	Sidecars int
	// Rules, if not 0, is of how many rules the policy consists by which Weir judges. The peers have none.
	Rules int
	// Idle is how many connections are to be held without a request.
	Idle int
	// Workers is how many processors the proxy is to use: 0 stands for 1. Weir and ReverseProxy find out themselves.
	Workers int
	// Version changes all routes, where it is not 0.
	Version int
}

func (s setting) workers() int { return max(1, s.Workers) }

const (
	splitHeader, splitValue = "X-Channel", "beta"
	routesHost              = 100
)

// route is the host and the path prefix of the i-th route: routesHost prefixes on each host.
func (s setting) route(i int) (host, prefix string) {
	i *= s.Stride
	return fmt.Sprintf("h%d.bench.test", i/routesHost), fmt.Sprintf("/service%d/", i%routesHost)
}

// eachHost calls f with each host and the prefixes of its routes.
func (s setting) eachHost(f func(host string, prefixes []string) error) error {
	var prefixes []string
	for i := range s.Routes {
		host, prefix := s.route(i)
		prefixes = append(prefixes, prefix)
		if i+1 < s.Routes {
			if next, _ := s.route(i + 1); next == host {
				continue
			}
		}
		if err := f(host, prefixes); err != nil {
			return err
		}
		prefixes = prefixes[:0]
	}
	return nil
}

// tool is what makes the load.
type tool string

const (
	toolWrk tool = "wrk"    // closed loop: as fast as the proxy answers
	toolH2  tool = "h2load" // the same over HTTP/2
	// toolOwn is the generator in load.go: as a closed loop where wrk would be the bottleneck (it
	// reads 8 KiB at a time, and needs a script for many paths).
	toolOwn tool = "own"
	// toolChurn is toolOwn with a connection for each request; with TLS, toolHandshakes, or toolResume for sessions that are resumed.
	toolChurn      tool = "churn"
	toolHandshakes tool = "handshakes"
	toolResume     tool = "resume"
	toolGRPC       tool = "grpc" // closed loop of calls
	toolIdle       tool = "idle" // no load: what is measured is memory
)

// daemons are the peers for scenarios whose question is not how a library's proxy does.
var daemons = []string{"nginx", "haproxy", "weir"}

// lesser is a setting of weir beside a scenario's own, of which it leaves something out. little and much say what of that each has.
type lesser struct {
	little, much string
	setting      setting
}

func (l *lesser) label() string { return "weir, " + l.little }

// scenario is one comparison.
type scenario struct {
	name    string
	title   string
	setting setting
	tool    tool
	// less, if not nil, also measures weir with less to do for the same requests: the cost of the rest.
	less *lesser
	// peers, if not nil, are those that take part.
	peers []string
	note  string
}

// inbound is a sidecar in front of an application, and governed the same with a policy.
var (
	inbound  = setting{Backend: roleFast, TLS: true, Sidecars: 1}
	governed = setting{Backend: roleFast, TLS: true, Sidecars: 1, Rules: 1000}
)

var scenarios = []scenario{
	{name: "plain", title: "plain, keep-alive", tool: toolWrk, setting: setting{Backend: roleFast}},
	{name: "split", title: "90/10 split behind a header match", tool: toolWrk, setting: setting{Backend: roleFast, Split: true}},
	{
		name: "mirror10", title: "mirror 10 %", tool: toolWrk,
		setting: setting{Backend: roleFast, Mirror: roleMirror, MirrorPercent: 10},
	},
	{
		name: "mirror-slow", title: "mirror 100 %, its target takes 200 ms", tool: toolWrk,
		setting: setting{Backend: roleFast, Mirror: roleSlow, MirrorPercent: 100},
		note:    "nginx holds its clients until the mirror has answered.",
	},
	{name: "tls", title: "TLS 1.3, keep-alive", tool: toolWrk, setting: setting{Backend: roleFast, TLS: true}},
	{name: "h2c", title: "HTTP/2 cleartext to HTTP/1.1", tool: toolH2, setting: setting{Backend: roleFast, HTTP2: true}},
	{name: "h2", title: "HTTP/2 over TLS to HTTP/1.1", tool: toolH2, setting: setting{Backend: roleFast, HTTP2: true, TLS: true}},
	{
		name: "grpc", title: "gRPC calls, cleartext", tool: toolGRPC, peers: daemons, setting: setting{Backend: roleGRPC, HTTP2: true, GRPC: 1},
		note: "HTTP/2 on both sides. A message of 128 bytes is answered with one of 1 KiB.",
	},
	{name: "grpc-tls", title: "gRPC calls, TLS", tool: toolGRPC, peers: daemons, setting: setting{Backend: roleGRPC, HTTP2: true, TLS: true, GRPC: 1}},
	{
		name: "grpc-stream", title: "gRPC streams, cleartext: a message", tool: toolGRPC, peers: daemons, setting: setting{Backend: roleGRPC, HTTP2: true, GRPC: 1000},
		note: "A request is a message and its answer; a call has 1,000 of them, one after the other.",
	},
	{
		name: "grpc-stream-tls", title: "gRPC streams, TLS: a message", tool: toolGRPC, peers: daemons,
		setting: setting{Backend: roleGRPC, HTTP2: true, TLS: true, GRPC: 1000},
	},
	{name: "body100k", title: "100 KiB bodies", tool: toolOwn, setting: setting{Backend: roleLarge}, note: "nginx with proxy buffers that hold the whole body."},
	{name: "tls100k", title: "100 KiB bodies, TLS 1.3", tool: toolOwn, peers: daemons, setting: setting{Backend: roleLarge, TLS: true}},
	{
		name: "churn", title: "a connection for each request", tool: toolChurn, peers: daemons, setting: setting{Backend: roleFast},
		note: "The requests say `Connection: close`. Connections to the backend are kept.",
	},
	{
		name: "churn-tls", title: "a TLS connection for each request", tool: toolHandshakes, peers: daemons, setting: setting{Backend: roleFast, TLS: true},
		note: "Full handshakes: X25519, ECDSA P-256.",
	},
	{name: "churn-resumed", title: "a resumed TLS connection for each request", tool: toolResume, peers: daemons, setting: setting{Backend: roleFast, TLS: true}},
	{
		name: "routes", title: "10,000 routes, 10 of them requested", tool: toolOwn,
		setting: setting{Backend: roleFast, Routes: 10_000, Stride: 1, Asked: 10},
		less:    &lesser{"10 routes", "10,000 routes", setting{Backend: roleFast, Routes: 10, Stride: 1000, Asked: 10}},
		note:    "100 path prefixes on each of 100 hosts; HAProxy with a map. The requests are those that weir gets with 10 routes only: the cost of the other routes.",
	},
	{
		name: "routes-all", title: "10,000 routes, all requested evenly", tool: toolOwn,
		setting: setting{Backend: roleFast, Routes: 10_000, Stride: 1, Asked: 10_000},
		note:    "The same routes, in an order that no cache likes.",
	},
	{
		name: "inbound", title: "a sidecar before an application, mutual TLS", tool: toolOwn, peers: daemons, setting: inbound,
		note: "TLS 1.3, keep-alive; client and proxy prove themselves with certificates of one authority. Plain HTTP/1.1 to the application.",
	},
	{
		name: "inbound-policy", title: "the same with 1,000 rules of access", tool: toolOwn, peers: daemons, setting: governed,
		less: &lesser{"no policy", "1,000 rules", inbound},
		note: "The rules have a method and a regular expression for the path each, and one in the middle allows the requests. The peers judge nothing but certificates.",
	},
	{
		name: "mesh", title: "two sidecars in a row", tool: toolWrk, peers: daemons, setting: setting{Backend: roleFast, Sidecars: 2},
		note: "Plain HTTP/1.1 to the client's sidecar, mutual TLS from there to the server's, plain HTTP/1.1 to the application. CPU is that of both, on one processor.",
	},
	{name: "mesh100k", title: "two sidecars in a row, 100 KiB bodies", tool: toolOwn, peers: daemons, setting: setting{Backend: roleLarge, Sidecars: 2}},
	{
		name: "idle", title: "10,000 idle connections: KiB each", tool: toolIdle, peers: daemons, setting: setting{Backend: roleFast, Idle: 10_000},
		note: idleNote,
	},
	{name: "idle-tls", title: "10,000 idle TLS connections: KiB each", tool: toolIdle, peers: daemons, setting: setting{Backend: roleFast, TLS: true, Idle: 10_000}},
}

const idleNote = "Memory of the processes (proportional set size) 5 s after the connections have served a request each, less that of one set up for and with 100."

// scenarioNames are those of the comparison, or those of the mirror's targets.
func scenarioNames(mirror bool) []string {
	var names []string
	if mirror {
		for _, t := range mirrorTargets {
			names = append(names, t.name)
		}
		return names
	}
	for _, s := range scenarios {
		names = append(names, s.name)
	}
	return names
}

// headers are the fields a browser would send, nine beside Host, the same towards every proxy.
var headers = [][2]string{
	{"User-Agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/140.0 Safari/537.36"},
	{"Accept", "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8"},
	{"Accept-Language", "en-GB,en;q=0.9,de;q=0.8"},
	{"Accept-Encoding", "gzip, deflate, br"},
	{"Referer", "https://shop.bench.svc/catalogue?page=2"},
	{"Cookie", "session=6f1c0b9a7d7c4e0f8f4f; theme=dark; consent=yes"},
	{"Cache-Control", "max-age=0"},
	{"X-Request-Id", "3f0e9f4c-6a55-4a0e-9a5e-7f2b8a4d2c11"},
	{splitHeader, splitValue},
}

// lowerHeaders are the same for HTTP/2.
func lowerHeaders() (all []hpack.HeaderField) {
	for _, h := range headers {
		all = append(all, hpack.HeaderField{Name: strings.ToLower(h[0]), Value: h[1]})
	}
	return all
}

const requestPath = "/cart/items?id=42"

// allPeers are the proxies, the one that ratios refer to first.
var allPeers = []string{"nginx", "haproxy", "reverseproxy", "weir"}

// contender is a proxy with its setting in a scenario.
type contender struct {
	label   string
	peer    string
	setting setting
	binary  string // weir's, if it is not the one that all are measured with
}

// contenders are those of a scenario among the peers that were chosen.
func (b *bench) contenders(s scenario) []contender {
	var all []contender
	for _, peer := range allPeers {
		if !slices.Contains(b.peers, peer) {
			continue
		}
		if peer == "haproxy" && s.setting.Mirror != "" {
			continue // it cannot mirror by itself
		}
		if s.peers != nil && !slices.Contains(s.peers, peer) {
			continue
		}
		c := contender{label: peer, peer: peer, setting: s.setting}
		if peer == "weir" && s.less != nil {
			all = append(all, contender{label: s.less.label(), peer: peer, setting: s.less.setting})
		}
		all = append(all, c)
	}
	return all
}
