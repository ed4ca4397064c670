package main

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/weirmesh/weir/test/freeport"
)

//go:embed servers
var serverFiles embed.FS

// server is one that can be started here.
type server struct {
	name string
	// program is what has to be installed, and files what else.
	program string
	files   []string
	// config is written to the file "config", with %[1]s for a folder of its own and %[2]d for its port.
	config string
	// args get the same.
	args []string
	env  []string
	// inside is a handler of this process, in place of a program.
	inside http.Handler
}

const (
	nginxConfig = `daemon off; master_process off; pid %[1]s/pid; error_log stderr crit;
events { worker_connections 64; }
http {
	access_log off;
	client_body_temp_path %[1]s/b; proxy_temp_path %[1]s/p; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	server {
		listen 127.0.0.1:%[2]d;
		location = /admin { add_header X-Reads admin always; return 200; }
		location /admin/ { add_header X-Reads admin always; return 200; }
		location / { add_header X-Reads other always; return 200; }
	}
}
`
	haproxyConfig = `defaults
	mode http
	timeout client 20s
	timeout connect 20s
	timeout server 20s
frontend f
	bind 127.0.0.1:%[2]d
	http-request return status 200 hdr X-Reads admin if { path /admin } || { path_beg /admin/ }
	http-request return status 200 hdr X-Reads other
`
	apacheConfig = `ServerRoot %[1]s
PidFile %[1]s/pid
Listen 127.0.0.1:%[2]d
ServerName localhost
DefaultRuntimeDir %[1]s
LoadModule mpm_event_module /usr/lib/apache2/modules/mod_mpm_event.so
LoadModule authz_core_module /usr/lib/apache2/modules/mod_authz_core.so
LoadModule rewrite_module /usr/lib/apache2/modules/mod_rewrite.so
ErrorLog %[1]s/error.log
DocumentRoot %[1]s
KeepAlive On
MaxKeepAliveRequests 0
RewriteEngine On
RewriteRule ^/admin(/.*)?$ - [R=410]
RewriteRule ^ - [R=406]
`
	lighttpdConfig = `server.document-root = "%[1]s"
server.port = %[2]d
server.bind = "127.0.0.1"
server.modules = ("mod_setenv")
server.errorlog = "%[1]s/error.log"
$HTTP["url"] =~ "^/admin(/|$)" { setenv.set-response-header = ("X-Reads" => "admin") }
else $HTTP["url"] =~ "" { setenv.set-response-header = ("X-Reads" => "other") }
`
	caddyConfig = `{
	admin off
	auto_https off
}
http://127.0.0.1:%[2]d, http://localhost:%[2]d {
	bind 127.0.0.1
	@admin path /admin /admin/*
	handle @admin {
		header X-Reads admin
		respond 200
	}
	header X-Reads other
	respond 200
}
`
)

// goMux is net/http's ServeMux, which redirects what is not clean.
func goMux() http.Handler {
	mux := http.NewServeMux()
	say := func(read string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { w.Header().Set("X-Reads", read) }
	}
	mux.HandleFunc("/admin", say("admin"))
	mux.HandleFunc("/admin/", say("admin"))
	mux.HandleFunc("/", say("other"))
	return mux
}

// goPath is a handler that looks at URL.Path, the decoded path, with the prefix that most write.
func goPath() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		read := "other"
		if r.URL.Path == "/admin" || strings.HasPrefix(r.URL.Path, "/admin/") {
			read = "admin"
		}
		w.Header().Set("X-Reads", read)
	})
}

func servers() []*server {
	node := func(name, kind string, files ...string) *server {
		return &server{name: name, program: "node", files: files, args: []string{"%[1]s/http.js", kind, "%[2]d"}, env: []string{"NODE_PATH=/usr/share/nodejs"}}
	}
	gunicorn := func(name, app, module string) *server {
		return &server{
			name: name, program: "/usr/bin/gunicorn", files: []string{module},
			args: []string{"--chdir", "%[1]s", "--no-sendfile", "--keep-alive", "20", "-k", "gthread", "--threads", "2", "-b", "127.0.0.1:%[2]d", "wsgi:" + app},
		}
	}
	const modules = "/usr/lib/python3/dist-packages/"
	return []*server{
		{name: "nginx", program: "nginx", config: nginxConfig, args: []string{"-p", "%[1]s", "-e", "stderr", "-c", "%[1]s/config"}},
		{name: "Apache httpd", program: "apache2", config: apacheConfig, args: []string{"-f", "%[1]s/config", "-DFOREGROUND"}},
		{name: "HAProxy", program: "haproxy", config: haproxyConfig, args: []string{"-db", "-f", "%[1]s/config"}},
		{name: "lighttpd", program: "lighttpd", config: lighttpdConfig, args: []string{"-D", "-f", "%[1]s/config"}},
		{name: "Caddy", program: "caddy", config: caddyConfig, args: []string{"run", "--adapter", "caddyfile", "--config", "%[1]s/config"}, env: []string{"HOME=%[1]s"}},
		{name: "Go ServeMux", inside: goMux()},
		{name: "Go URL.Path", inside: goPath()},
		node("Node URL", "url"),
		node("Node files", "decoded"),
		node("Node files, Windows", "windows"),
		node("Express", "express", "/usr/share/nodejs/express"),
		{name: "Tomcat", program: "java", files: []string{"/usr/share/tomcat10/lib"},
			args: []string{"-cp", "/usr/share/tomcat10/lib/*:/usr/share/tomcat10/bin/*", "%[1]s/TomcatServer.java", "%[2]d", "%[1]s"}},
		{name: "Jetty", program: "java", files: []string{"/usr/share/jetty9/lib"}, args: []string{"-cp", "/usr/share/jetty9/lib/*", "%[1]s/JettyServer.java", "%[2]d"}},
		{name: "JDK HttpServer", program: "java", args: []string{"%[1]s/Jdk.java", "%[2]d"}},
		gunicorn("WSGI (gunicorn)", "plain", "/usr/bin/gunicorn"),
		gunicorn("Django", "make_django()", modules+"django"),
		gunicorn("Flask", "make_flask()", modules+"flask"),
		{name: "Python http.server", program: "python3", args: []string{"%[1]s/files.py", "%[2]d"}},
		{name: "PHP REQUEST_URI", program: "php", args: []string{"-S", "127.0.0.1:%[2]d", "%[1]s/router.php"}},
		{name: "Rack (Puma)", program: "puma", args: []string{"-q", "-t", "1:2", "-b", "tcp://127.0.0.1:%[2]d", "%[1]s/config.ru"}},
		{name: "Rails", program: "puma", files: []string{"/usr/share/rubygems-integration/all/gems/actionpack-6.1.7.10"},
			args: []string{"-q", "-t", "1:2", "-b", "tcp://127.0.0.1:%[2]d", "%[1]s/config.ru"}, env: []string{"PATHS_RUBY=rails"}},
	}
}

// find is the program's file.
func (s *server) find() (string, error) {
	file, err := exec.LookPath(s.program)
	if err != nil {
		file, err = exec.LookPath("/usr/sbin/" + s.program)
	}
	return file, err
}

// missing is what is not installed of what the server needs; empty if nothing is.
func (s *server) missing() string {
	if s.inside != nil {
		return ""
	}
	if _, err := s.find(); err != nil {
		return s.program
	}
	for _, f := range s.files {
		if _, err := os.Stat(f); err != nil {
			return f
		}
	}
	return ""
}

// start serves on loopback until stop is called; what it writes is in a folder of its own in dir.
func (s *server) start(ctx context.Context, dir string) (address string, stop func(), err error) {
	if s.inside != nil {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return "", nil, err
		}
		srv := &http.Server{Handler: s.inside}
		go func() { _ = srv.Serve(l) }() // ends with srv
		return l.Addr().String(), func() { srv.Close() }, nil
	}
	port, err := freeport.Take()
	if err != nil {
		return "", nil, err
	}
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	if dir, err = os.MkdirTemp(dir, "server"); err != nil {
		return "", nil, err
	}
	fill := func(text string) string {
		return strings.ReplaceAll(strings.ReplaceAll(text, "%[1]s", dir), "%[2]d", fmt.Sprint(port))
	}
	if err := s.write(dir, fill(s.config)); err != nil {
		return "", nil, err
	}
	program, err := s.find()
	if err != nil {
		return "", nil, err
	}
	var args []string
	for _, a := range s.args {
		args = append(args, fill(a))
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = dir
	var out bytes.Buffer
	cmd.Stderr, cmd.Stdout = &out, &out
	cmd.Env = os.Environ()
	for _, e := range s.env {
		cmd.Env = append(cmd.Env, fill(e))
	}
	in, err := cmd.StdinPipe() // those of ours end with it
	if err != nil {
		return "", nil, err
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	ended := make(chan struct{})
	go func() { defer close(ended); _ = cmd.Wait() }()
	stop = func() {
		in.Close()
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-ended:
		case <-time.After(5 * time.Second):
			_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
			<-ended
		}
	}
	for end := time.Now().Add(3 * patience); ; {
		if nc, err := net.Dial("tcp", address); err == nil {
			nc.Close()
			return address, stop, nil
		}
		select {
		case <-ended:
			return "", nil, fmt.Errorf("it ended: %s", out.String())
		case <-time.After(50 * time.Millisecond):
		}
		if time.Now().After(end) {
			stop()
			return "", nil, fmt.Errorf("it does not serve: %s", out.String())
		}
	}
}

func (s *server) write(dir, config string) error {
	var failed []error
	entries, err := serverFiles.ReadDir("servers")
	if err != nil {
		return err
	}
	for _, e := range entries {
		b, err := serverFiles.ReadFile("servers/" + e.Name())
		failed = append(failed, err, os.WriteFile(filepath.Join(dir, e.Name()), b, 0o600))
	}
	if config != "" {
		failed = append(failed, os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600))
	}
	return errors.Join(failed...)
}
