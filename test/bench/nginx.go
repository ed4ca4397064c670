//go:build linux

package main

import (
	"cmp"
	"fmt"
	"strings"
)

// nginx configures an nginx for a place. It is tuned as its documentation advises: keep-alive to the
// backends without limit, no access log, no accept mutex, and buffers that hold large bodies.
func (b *bench) nginx(dir string, at place) ([]string, error) {
	s := at.setting
	var c strings.Builder
	p := func(format string, args ...any) { fmt.Fprintf(&c, format+"\n", args...) }
	connections := 4096
	if s.Idle > 0 {
		connections = s.Idle*5/4 + 20 // it closes idle ones when less than a sixteenth is free
	}
	p("daemon off; worker_processes %d; pid %s/nginx.pid; error_log stderr crit;", s.workers(), dir)
	p("events { worker_connections %d; }", connections)
	p("http {")
	p("access_log off; server_tokens off; tcp_nodelay on; default_type text/plain;")
	p("keepalive_timeout 300s; keepalive_requests 1000000000; http2_max_requests 1000000000;")
	for _, t := range []string{"client_body", "proxy", "fastcgi", "uwsgi", "scgi"} {
		p("%s_temp_path %s/%s;", t, dir, t)
	}
	upstream := func(name string, port int) {
		p("upstream %s { server 127.0.0.1:%d max_fails=0; keepalive 256; keepalive_requests 1000000000; keepalive_timeout 300s; }", name, port)
	}
	upstream("first", cmp.Or(at.next, b.backends[s.Backend]))
	upstream("second", b.backends[roleSecond])
	p(`proxy_http_version 1.1; proxy_set_header Connection ""; proxy_set_header Host $http_host;`)
	p("proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for; proxy_set_header X-Forwarded-Proto $scheme;")
	if s.Backend == roleLarge {
		p("proxy_buffer_size 16k; proxy_buffers 8 32k; proxy_busy_buffers_size 128k; proxy_max_temp_file_size 0;")
	}
	to := "http://first"
	if s.Split {
		p(`split_clients "$connection-$connection_requests" $share { 10%% second; * first; }`)
		p(`map $http_%s $pool { default first; "%s" $share; }`, strings.ToLower(strings.ReplaceAll(splitHeader, "-", "_")), splitValue)
		to = "http://$pool"
	}
	if s.Mirror != "" {
		upstream("copies", b.backends[s.Mirror])
		p(`split_clients "$connection-$connection_requests" $copied { %d%% 1; * ""; }`, min(99, s.MirrorPercent))
	}
	if at.next > 0 {
		to = "https://first"
		p("proxy_ssl_certificate %[1]s; proxy_ssl_certificate_key %[1]s; proxy_ssl_trusted_certificate %s; proxy_ssl_verify on;", b.trust.client, b.trust.rootsFile)
		p("proxy_ssl_name %s; proxy_ssl_server_name on; proxy_ssl_protocols TLSv1.3; proxy_ssl_conf_command Ciphersuites %s;", hostname, cipher)
	}
	listen := fmt.Sprintf("listen 127.0.0.1:%d", at.port)
	if s.TLS {
		listen += " ssl"
	}
	if s.HTTP2 {
		listen += " http2"
	}
	if s.workers() > 1 {
		listen += " reuseport" // so that all get their share of the connections
	}
	if s.GRPC > 0 {
		p("grpc_set_header Host $http_host; grpc_set_header X-Forwarded-For $proxy_add_x_forwarded_for; grpc_set_header X-Forwarded-Proto $scheme;")
	}
	tls := ""
	if s.TLS {
		chain, key, verify := b.certificate.chainFile, b.certificate.keyFile, ""
		if s.Sidecars > 0 {
			chain, key, verify = b.trust.server, b.trust.server, fmt.Sprintf(" ssl_client_certificate %s; ssl_verify_client on;", b.trust.rootsFile)
		}
		tls = fmt.Sprintf("ssl_certificate %s; ssl_certificate_key %s; ssl_protocols TLSv1.3; ssl_conf_command Ciphersuites %s;%s", chain, key, cipher, verify)
	}
	if s.Routes > 0 {
		p("server_names_hash_max_size 65536; server_names_hash_bucket_size 128;")
		_ = s.eachHost(func(host string, prefixes []string) error {
			p("server { %s; server_name %s; %s", listen, host, tls)
			for _, prefix := range prefixes {
				p("location %s { proxy_pass %s; }", prefix, to)
			}
			p("}")
			listen = strings.TrimSuffix(listen, " reuseport") // it is the socket's
			return nil
		})
	} else {
		p("server { %s; %s", listen, tls)
		if s.GRPC > 0 {
			p("location / { grpc_pass grpc://first;")
		} else {
			p("location / { proxy_pass %s;", to)
		}
		if s.Mirror != "" {
			p("mirror /.copy; mirror_request_body off;")
		}
		p("}")
		if s.Mirror != "" {
			p("location = /.copy { internal;")
			if s.MirrorPercent < 100 {
				p(`if ($copied = "") { return 204; }`)
			}
			p(`proxy_pass http://copies$request_uri; proxy_pass_request_body off; proxy_set_header Content-Length ""; }`)
		}
		p("}")
	}
	p("}")
	path, err := writeFile(dir, "nginx.conf", c.String())
	if err != nil {
		return nil, err
	}
	binary, err := lookPath("nginx")
	if err != nil {
		return nil, err
	}
	return []string{binary, "-p", dir, "-e", "stderr", "-c", path}, nil
}
