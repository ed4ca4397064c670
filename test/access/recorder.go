package access

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/net/http2"
)

// Recorder is a backend that notes what it receives and answers 200, or 101 below /public/switch to whatever is asked. Connections
// that begin as those of HTTP/2 do are served as such.
type Recorder struct {
	net.Listener
	mu       sync.Mutex
	requests []received
	tunnels  []string // what came behind an answer of 101, behind the protocol's name
	faults   []string
	second   int // how many connections were of HTTP/2
	open     map[net.Conn]bool
	all      sync.WaitGroup
}

// Record starts a Recorder, which Stop ends.
func Record(l net.Listener) *Recorder {
	r := &Recorder{Listener: l, open: map[net.Conn]bool{}}
	r.all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			r.note(func() { r.open[c] = true })
			r.all.Go(func() {
				defer c.Close()
				r.serve(c)
				r.note(func() { delete(r.open, c) })
			})
		}
	})
	return r
}

// Stop closes the listener and all connections.
func (r *Recorder) Stop() {
	r.Listener.Close()
	r.note(func() {
		for c := range r.open {
			c.Close()
		}
	})
	r.all.Wait()
}

// Judge takes what came since the last time, and returns how many requests it was, but for those that end a way, and what
// of it should not have come.
func (r *Recorder) Judge() (reached int, wrong []string) {
	requests, tunnels, faults := r.take()
	for i := range requests {
		r := &requests[i]
		if strings.Contains(r.line, " /public/end ") {
			continue
		}
		reached++
		if why := r.forbidden(); why != "" {
			wrong = append(wrong, fmt.Sprintf("%s; the backend got\n%q, trailers %q", why, r.raw, r.trailers))
		}
	}
	for _, tunnel := range tunnels {
		if protocol, _, _ := strings.Cut(tunnel, ": "); !strings.EqualFold(protocol, "websocket") {
			wrong = append(wrong, fmt.Sprintf("bytes pass that no rule judges: %q", tunnel))
		}
	}
	return reached, append(wrong, faults...)
}

// take returns what came since the last time.
func (r *Recorder) take() (requests []received, tunnels, faults []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	requests, tunnels, faults = r.requests, r.tunnels, r.faults
	r.requests, r.tunnels, r.faults = nil, nil, nil
	return
}

func (r *Recorder) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

func (r *Recorder) serve(c net.Conn) {
	in := bufio.NewReader(c)
	if begin, _ := in.Peek(4); string(begin) == http2.ClientPreface[:4] {
		r.note(func() { r.second++ })
		r.serve2(c, in)
		return
	}
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
