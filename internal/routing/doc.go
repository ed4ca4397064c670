// Package routing decides what happens to a request. It compiles a model.Config into an immutable Table, finds the
// listener, rule and match for a request, and draws backends and mirrors by exact sampling. NormalizePath makes the one
// form in which paths are compared. Parts of a configuration that cannot be served are left out of the table and
// reported.
//
// It moves no bytes and knows no connection: the proxy asks it once a request, "weir explain" asks it offline.
//
// # Precedence
//
// Of all matches that hold, the first one in this order decides (Gateway API, HTTPRouteRule.matches):
//
//  1. hostname: exact, then the longest wildcard, then any host. If no match of a host's most specific hostname
//     holds, the next less specific one is tried.
//  2. path: exact, then the longest prefix, then a regular expression (the longer pattern first), then the
//     prefix "/". Gateway API leaves the place of regular expressions to the implementation; the catch-all comes last
//     because otherwise no expression could ever win.
//  3. a method match, then more header matches, then more query parameter matches.  4. the older route, then the lower
//
// "namespace/name", then the order of rules, then the order of matches.
//
// Finding it costs a few map lookups for the host and one walk down a radix tree for the path, whatever the number of
// routes. Only matches that share a path, and regular expressions of one hostname, are tried one by one.
package routing
