package main

import (
	"bufio"
	"bytes"
	"context"
	"embed"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/weirmesh/weir/test/freeport"
)

//go:embed readers/reader.js readers/Reader.java
var readerFiles embed.FS

// reading is a request as a parser understood it. Strings are bytes as Latin-1.
type reading struct {
	Method, Target, Body string
	Fields, Trailers     []field
}

// reader is a parser of another make. read gives the requests that it finds in b, whose last one asks for the connection's end; an error
// says that it refused b or wanted more.
type reader struct {
	name string
	read func(b []byte) ([]reading, error)
	// trailers: it tells them.
	trailers bool
}

// patience is how long any step may take before it counts as failed.
const patience = 15 * time.Second

// goReader is net/http.
func goReader(b []byte) (all []reading, err error) {
	br := bufio.NewReaderSize(bytes.NewReader(b), 128<<10)
	for {
		if _, err := br.Peek(1); err == io.EOF {
			return all, nil
		}
		r, err := http.ReadRequest(br)
		if err != nil {
			return all, err
		}
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return all, err
		}
		g := reading{Method: r.Method, Target: r.RequestURI, Body: latin(body)}
		g.Fields = append(fieldsOf(r.Header), field{"host", r.Host})
		g.Trailers = fieldsOf(r.Trailer)
		all = append(all, g)
	}
}

func fieldsOf(h http.Header) (fields []field) {
	for name, values := range h {
		for _, v := range values {
			fields = append(fields, field{latin([]byte(name)), latin([]byte(v))})
		}
	}
	return fields
}

// ask sends b to a server that answers each request with its reading.
func ask(address string, b []byte) (all []reading, err error) {
	nc, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	go func() { _, _ = nc.Write(b) }() // ends with nc
	br := bufio.NewReader(nc)
	for {
		if _, err := br.Peek(1); err == io.EOF {
			return all, nil
		}
		resp, err := http.ReadResponse(br, &http.Request{Method: http.MethodHead})
		if err != nil {
			return all, err
		}
		if resp.StatusCode/100 == 1 {
			continue
		}
		if resp.StatusCode != 200 {
			return all, fmt.Errorf("answered %s", resp.Status)
		}
		var r reading
		raw, err := base64.StdEncoding.DecodeString(resp.Header.Get("X-Reading"))
		if err == nil {
			err = json.Unmarshal(raw, &r)
		}
		if err != nil {
			return all, err
		}
		all = append(all, r)
	}
}

// startReader runs a server that prints its port and ends with its standard input.
func startReader(ctx context.Context, name string, args ...string) (address string, stop func(), err error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	stop = func() {
		in.Close()
		_ = cmd.Wait()
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	port, convErr := strconv.Atoi(strings.TrimSpace(line))
	if err = errors.Join(err, convErr); err != nil {
		stop()
		return "", nil, fmt.Errorf("%s: %w", name, err)
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), stop, nil
}

// stops are what ends things that were started, one after the other.
type stops []func()

// all ends them, the last first.
func (s *stops) all() {
	for _, stop := range slices.Backward(*s) {
		stop()
	}
}

// startReaders starts the parsers that are not in this process.
func startReaders(ctx context.Context, dir string) (all []*reader, stop func(), err error) {
	var stops stops
	stop = stops.all
	defer func() {
		if err != nil {
			stop()
		}
	}()
	for _, name := range []string{"reader.js", "Reader.java"} {
		b, err := readerFiles.ReadFile("readers/" + name)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), b, 0o600)
		}
		if err != nil {
			return nil, nil, err
		}
	}
	all = append(all, &reader{name: "Go", read: goReader, trailers: true})
	address, s, err := startReader(ctx, "node", filepath.Join(dir, "reader.js"))
	if err != nil {
		return nil, nil, err
	}
	stops = append(stops, s)
	all = append(all, &reader{name: "llhttp", trailers: true, read: func(b []byte) ([]reading, error) { return ask(address, b) }})
	jdk, s, err := startReader(ctx, "java", "-Dsun.net.httpserver.nodelay=true", "-Dsun.net.httpserver.maxReqHeaders=1000", "-Xmx256m", "-XX:+UseSerialGC",
		filepath.Join(dir, "Reader.java"))
	if err != nil {
		return nil, nil, err
	}
	stops = append(stops, s)
	all = append(all, &reader{name: "JDK", read: func(b []byte) ([]reading, error) { return ask(jdk, b) }})
	nginx, s, err := startNginx(ctx, dir)
	if err != nil {
		return nil, nil, err
	}
	stops = append(stops, s)
	all = append(all, &reader{name: "nginx", read: func(b []byte) ([]reading, error) { return ask(nginx, b) }})
	return all, stop, nil
}

const nginxConfig = `daemon off; master_process off; pid %[1]s/nginx.pid; error_log %[1]s/error.log info;
events { worker_connections 1024; }
http {
	access_log off;
	client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/f; uwsgi_temp_path %[1]s/u; scgi_temp_path %[1]s/s;
	large_client_header_buffers 16 128k; client_max_body_size 0; merge_slashes off;
	ignore_invalid_headers off; underscores_in_headers on;
	proxy_ignore_client_abort on; proxy_buffers 16 512k; proxy_buffer_size 512k; proxy_busy_buffers_size 1m;
	proxy_set_header Host $http_host;
	proxy_set_header Wire-Target $request_uri;
	proxy_set_header Wire-Connection $http_connection;
	proxy_set_header Wire-Upgrade $http_upgrade;
	proxy_set_header Wire-Expect $http_expect;
	proxy_set_header Wire-Te $http_te;
	server {
		listen 127.0.0.1:%[2]d default_server;
		error_page 405 = @read; # TRACE, which nginx reads and does not serve
		location / { proxy_pass http://127.0.0.1:%[3]d; }
		location @read { proxy_pass http://127.0.0.1:%[3]d; }
	}
}
`

// startNginx runs nginx before a server of this process, which answers with what nginx read: its own reading goes there as a request,
// with the target and the fields of the connection in fields of their own.
func startNginx(ctx context.Context, dir string) (address string, stop func(), err error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, err
	}
	srv := &http.Server{MaxHeaderBytes: 1 << 20, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		g := reading{Method: r.Method, Target: latin([]byte(r.Header.Get("Wire-Target"))), Body: latin(body)}
		for _, name := range []string{"Connection", "Upgrade", "Expect", "Te"} {
			r.Header.Del(name)
			if v, ok := r.Header["Wire-"+name]; ok {
				r.Header[name] = v
				r.Header.Del("Wire-" + name)
			}
		}
		r.Header.Del("Wire-Target")
		g.Fields = append(fieldsOf(r.Header), field{"host", r.Host})
		raw, _ := json.Marshal(g)
		w.Header().Set("X-Reading", base64.StdEncoding.EncodeToString(raw))
	})}
	go func() { _ = srv.Serve(l) }() // ends with srv
	port, err := freeport.Take()
	if err != nil {
		srv.Close()
		return "", nil, err
	}
	dir = filepath.Join(dir, "nginx")
	file := filepath.Join(dir, "nginx.conf")
	if err := errors.Join(os.Mkdir(dir, 0o700), os.WriteFile(file, fmt.Appendf(nil, nginxConfig, dir, port, l.Addr().(*net.TCPAddr).Port), 0o600)); err != nil {
		srv.Close()
		return "", nil, err
	}
	name := "nginx"
	if _, err := exec.LookPath(name); err != nil {
		name = "/usr/sbin/nginx"
	}
	cmd := exec.CommandContext(ctx, name, "-p", dir, "-e", filepath.Join(dir, "error.log"), "-c", file)
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Start(); err != nil {
		srv.Close()
		return "", nil, err
	}
	stop = func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
		srv.Close()
	}
	address = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	for end := time.Now().Add(patience); ; {
		nc, err := net.Dial("tcp", address)
		if err == nil {
			nc.Close()
			return address, stop, nil
		}
		if time.Now().After(end) {
			stop()
			return "", nil, fmt.Errorf("nginx does not serve: %s", out.String())
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// framingFields are read into the body, and not all parsers tell them.
var framingFields = []string{"content-length", "transfer-encoding", "trailer"}

// canonical makes readings comparable: names in lower case, sorted by name with the values in order, without what frames the message.
func canonical(fields []field) string {
	kept := make([]field, 0, len(fields))
	for _, f := range fields {
		name := strings.ToLower(f.Name)
		if !slices.Contains(framingFields, name) {
			kept = append(kept, field{name, f.Value})
		}
	}
	sort.SliceStable(kept, func(i, j int) bool { return kept[i].Name < kept[j].Name })
	var b strings.Builder
	for _, f := range kept {
		fmt.Fprintf(&b, "%s: %s\n", f.Name, f.Value)
	}
	return b.String()
}
