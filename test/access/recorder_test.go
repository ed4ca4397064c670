package access

import (
	"bufio"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// recorder is a backend that notes what it receives and answers 200, or 101 below /public/switch to whatever is asked.
type recorder struct {
	net.Listener
	mu       sync.Mutex
	requests []received
	tunnels  []string // what came behind an answer of 101, behind the protocol's name
	faults   []string
}

// record starts a recorder, which the test's end stops.
func record(t *testing.T) *recorder {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &recorder{Listener: l}
	var all sync.WaitGroup
	var mu sync.Mutex
	open := map[net.Conn]bool{}
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			mu.Lock()
			open[c] = true
			mu.Unlock()
			all.Go(func() {
				defer c.Close()
				r.serve(c)
				mu.Lock()
				delete(open, c)
				mu.Unlock()
			})
		}
	})
	t.Cleanup(func() {
		l.Close()
		mu.Lock()
		for c := range open {
			c.Close()
		}
		mu.Unlock()
		all.Wait()
	})
	return r
}

// take returns what came since the last time.
func (r *recorder) take() (requests []received, tunnels, faults []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests, tunnels, faults = r.requests, r.tunnels, r.faults
	r.requests, r.tunnels, r.faults = nil, nil, nil
	return
}

func (r *recorder) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *recorder) serve(c net.Conn) {
	in := bufio.NewReader(c)
	for {
		got, err := readHead(in)
		if err != nil {
			if got.raw != "" {
				r.note(func() { r.faults = append(r.faults, "half a head: "+got.raw) })
			}
			return
		}
		body := io.LimitReader(in, 0)
		if v := got.values("content-length"); len(v) > 0 {
			n, err := strconv.ParseUint(v[0], 10, 31)
			if err != nil {
				r.note(func() { r.faults = append(r.faults, "Content-Length: "+v[0]) })
				return
			}
			body = io.LimitReader(in, int64(n))
		}
		complete := true
		if len(got.values("transfer-encoding")) > 0 {
			got.trailers, complete = readChunks(in)
		} else if _, err := io.Copy(io.Discard, body); err != nil {
			complete = false
		}
		r.note(func() { r.requests = append(r.requests, got) })
		if !complete {
			return
		}
		if up := got.values("upgrade"); len(up) > 0 && strings.Contains(got.line, " /public/switch") {
			io.WriteString(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: "+up[0]+"\r\n\r\n")
			rest, _ := io.ReadAll(in)
			r.note(func() { r.tunnels = append(r.tunnels, up[0]+": "+string(rest)) })
			return
		}
		if _, err := io.WriteString(c, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"); err != nil {
			return
		}
	}
}

// readHead reads up to the empty line.
func readHead(in *bufio.Reader) (received, error) {
	var r received
	for first := true; ; first = false {
		line, err := in.ReadString('\n')
		r.raw += line
		if err != nil {
			return r, err
		}
		line = strings.TrimSuffix(strings.TrimSuffix(line, "\n"), "\r")
		switch {
		case first:
			r.line = line
		case line == "":
			return r, nil
		default:
			r.fields = append(r.fields, fieldOf(line))
		}
	}
}

func fieldOf(line string) [2]string {
	name, value, _ := strings.Cut(line, ":")
	return [2]string{name, strings.Trim(value, " \t")}
}

func readChunks(in *bufio.Reader) (trailers [][2]string, ok bool) {
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return nil, false
		}
		n, err := strconv.ParseUint(strings.TrimSpace(cut(line, ";")), 16, 31)
		if err != nil {
			return nil, false
		}
		if n > 0 {
			if _, err := io.CopyN(io.Discard, in, int64(n)+2); err != nil {
				return nil, false
			}
			continue
		}
		for {
			line, err := in.ReadString('\n')
			if err != nil {
				return trailers, false
			}
			if line = strings.TrimRight(line, "\r\n"); line == "" {
				return trailers, true
			}
			trailers = append(trailers, fieldOf(line))
		}
	}
}
