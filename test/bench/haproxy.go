//go:build linux

package main

import (
	"cmp"
	"fmt"
	"strings"
)

// haproxy configures a HAProxy for a place: connections to the backends always reused, no log.
func (b *bench) haproxy(dir string, at place) ([]string, error) {
	s := at.setting
	var c strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&c, format+"\n", args...) }
	p("global")
	p("  nbthread %d", s.workers())
	connections := 4000
	if s.Idle > 0 {
		connections = s.Idle + 100
		p("  no strict-limits") // it asks for two descriptors a connection, which idle ones do not need
	}
	p("  maxconn %d", connections)
	p("  tune.pool-high-fd-ratio 60")
	p("defaults")
	p("  mode http")
	p("  no log")
	p("  http-reuse always")
	p("  timeout connect 5s")
	p("  timeout client 300s")
	p("  timeout server 300s")
	p("  timeout http-keep-alive 300s")
	p("frontend in")
	bind := fmt.Sprintf("  bind 127.0.0.1:%d", at.port)
	switch {
	case s.TLS && s.HTTP2:
		bind += " alpn h2"
	case s.HTTP2:
		bind += " proto h2"
	}
	if s.TLS {
		crt, verify := b.certificate.bothFile, ""
		if s.Sidecars > 0 {
			crt, verify = b.trust.server, fmt.Sprintf(" ca-file %s verify required", b.trust.rootsFile)
		}
		bind += fmt.Sprintf(" ssl crt %s ssl-min-ver TLSv1.3 ciphersuites %s%s", crt, cipher, verify)
	}
	p("%s", bind)
	p("  option forwardfor")
	scheme := "http"
	if s.TLS {
		scheme = "https"
	}
	p("  http-request set-header X-Forwarded-Proto %s", scheme)
	switch {
	case s.Routes > 0:
		var m strings.Builder
		for i := range s.Routes {
			host, prefix := s.route(i)
			fmt.Fprintf(&m, "%s%s first\n", host, prefix)
		}
		path, err := writeFile(dir, "routes.map", m.String())
		if err != nil {
			return nil, err
		}
		p("  use_backend %%[base,map_beg(%s)]", path)
	case s.Split:
		p("  use_backend split if { req.hdr(%s) -m str %s }", splitHeader, splitValue)
		p("  default_backend first")
	default:
		p("  default_backend first")
	}
	next := ""
	if at.next > 0 {
		next = fmt.Sprintf(" ssl crt %s ca-file %s verify required verifyhost %[3]s sni str(%[3]s) ssl-min-ver TLSv1.3 ciphersuites %[4]s",
			b.trust.client, b.trust.rootsFile, hostname, cipher)
	}
	server := func(name string, r role, weight int) {
		p("  server %s 127.0.0.1:%d weight %d pool-max-conn -1%s%s", name, cmp.Or(at.next, b.backends[r]), weight, onlyIf(s.GRPC > 0, " proto h2"), next)
	}
	p("backend first")
	server("first", s.Backend, 1)
	p("backend split")
	p("  balance roundrobin")
	server("first", s.Backend, 90)
	server("second", roleSecond, 10)
	path, err := writeFile(dir, "haproxy.cfg", c.String())
	if err != nil {
		return nil, err
	}
	binary, err := lookPath("haproxy")
	if err != nil {
		return nil, err
	}
	return []string{binary, "-db", "-f", path}, nil
}
