package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"syscall"
	"time"
)

const (
	// pressEvery is the time between two requests, messages or lines of a client of press.
	pressEvery = 40 * time.Millisecond
	// pressPatience is longer than any fault that is not to fail a request.
	pressPatience = 90 * time.Second
)

// tally is what became of the requests of a kind since it was last reported.
type tally struct {
	Answered int                 `json:"answered"`
	Slowest  int64               `json:"slowest"` // of those that were answered, in ms
	Failed   map[string]*failure `json:"failed,omitempty"`
}

// failure is how requests failed: how many, and when the first and the last of them did, in ms since 1970.
type failure struct {
	N           int
	First, Last int64
}

// book has the tallies of all kinds.
type book struct {
	mu    sync.Mutex
	kinds map[string]*tally
}

// note what became of a request: nothing wrong is an answer.
func (b *book) note(kind, wrong string, began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.kinds[kind]
	if t == nil {
		t = &tally{Failed: map[string]*failure{}}
		b.kinds[kind] = t
	}
	now := time.Now()
	if wrong == "" {
		t.Answered++
		t.Slowest = max(t.Slowest, now.Sub(began).Milliseconds())
		return
	}
	f := t.Failed[wrong]
	if f == nil {
		f = &failure{First: now.UnixMilli()}
		t.Failed[wrong] = f
	}
	f.N, f.Last = f.N+1, now.UnixMilli()
}

// ServeHTTP reports what became of requests since the last time.
func (b *book) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	b.mu.Lock()
	kinds := b.kinds
	b.kinds = map[string]*tally{}
	b.mu.Unlock()
	_ = json.NewEncoder(w).Encode(kinds)
}

// takes is for how long a server keeps requests of press, so that a fault meets some of them on their way.
const takes = pressEvery

// press calls a host in all ways until it is killed. Its clients forgive nothing: what fails is not tried again.
func press(host string) error {
	b := &book{kinds: map[string]*tally{}}
	second := func() *http.Client {
		return &http.Client{Timeout: pressPatience, Transport: &http.Transport{Protocols: protocols(false)}}
	}
	multiplexed := "http://" + host + ":9002/"
	for _, c := range []struct {
		kind string
		ask  func() string
	}{
		{"HTTP/1.1 GET", (&first{address: host + ":80", method: "GET", keep: true}).ask},
		{"HTTP/1.1 PUT", (&first{address: host + ":80", method: "PUT", keep: true}).ask},
		{"HTTP/1.1 POST", (&first{address: host + ":80", method: "POST", keep: true}).ask},
		{"HTTP/1.1 GET, new connections", (&first{address: host + ":80", method: "GET"}).ask},
		{"HTTP/1.1 POST, new connections", (&first{address: host + ":80", method: "POST"}).ask},
		{"HTTP/2 GET", over(second(), "GET", multiplexed)},
		{"HTTP/2 POST", over(second(), "POST", multiplexed)},
		{"gRPC", unary(second(), multiplexed)},
		{"gRPC stream", lasting(func() (session, error) { return stream(&http.Client{Transport: second().Transport}, multiplexed) })},
		{"WebSocket", lasting(func() (session, error) { return webSocket(host + ":80") })},
		{"TCP", lasting(func() (session, error) { return dialLines(host + ":9001") })},
		{"TCP, new connections", func() string {
			s, err := dialLines(host + ":9001")
			if err != nil {
				return "connect: " + cause(err)
			}
			defer s.Close()
			if err := s.say("once"); err != nil {
				return "new connection: " + cause(err)
			}
			return ""
		}},
	} {
		go func() {
			for {
				began := time.Now()
				b.note(c.kind, c.ask(), began)
				time.Sleep(pressEvery)
			}
		}()
	}
	return http.ListenAndServe(":9100", b)
}

// cause is an error without addresses, so that equal ones count together.
func cause(err error) string {
	var errno syscall.Errno
	var timeout net.Error
	switch {
	case errors.As(err, &errno):
		return errno.Error()
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.ErrClosedPipe):
		return "EOF"
	case errors.As(err, &timeout) && timeout.Timeout():
		return "timeout"
	}
	text := err.Error()
	return text[max(0, strings.LastIndex(text, `": `)+1):]
}

// refusal is a status with the reason that a proxy gives.
func refusal(status int, text string) string {
	reason, _, _ := strings.Cut(strings.TrimSpace(text), ":")
	return fmt.Sprint(status, " ", reason[:min(len(reason), 60)])
}

// first is a client of HTTP/1.1, of one connection at a time.
type first struct {
	address, method string
	keep            bool
	c               net.Conn
	in              *bufio.Reader
	used            bool
}

func (f *first) ask() (wrong string) {
	if f.c == nil {
		c, err := net.DialTimeout("tcp", f.address, pressPatience)
		if err != nil {
			return "connect: " + cause(err)
		}
		f.c, f.in, f.used = c, bufio.NewReader(c), false
	}
	kind, keep := "new connection: ", false
	if f.used {
		kind = "kept connection: "
	}
	defer func() {
		if f.used = true; !keep {
			f.c.Close()
			f.c = nil
		}
	}()
	body, end := "", ""
	if f.method != "GET" {
		body = "what is sent"
	}
	if !f.keep {
		end = "Connection: close\r\n"
	}
	_ = f.c.SetDeadline(time.Now().Add(pressPatience))
	if _, err := fmt.Fprintf(f.c, "%s /take HTTP/1.1\r\nHost: press\r\nContent-Length: %d\r\n%s\r\n%s", f.method, len(body), end, body); err != nil {
		return kind + cause(err)
	}
	answer, err := http.ReadResponse(f.in, nil)
	if err != nil {
		return kind + cause(err)
	}
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		return kind + "half an answer: " + cause(err)
	}
	keep = f.keep && !answer.Close
	if answer.StatusCode != http.StatusOK {
		return refusal(answer.StatusCode, string(text))
	}
	return ""
}

// over is a client of HTTP/2.
func over(client *http.Client, method, url string) func() string {
	return func() string {
		body := io.Reader(nil)
		if method != "GET" {
			body = strings.NewReader("what is sent")
		}
		request, err := http.NewRequest(method, url+"take", body)
		if err != nil {
			return err.Error()
		}
		request.GetBody = nil // it is not sent again
		answer, err := client.Do(request)
		if err != nil {
			return "connection: " + cause(err)
		}
		defer answer.Body.Close()
		text, err := io.ReadAll(answer.Body)
		switch {
		case err != nil:
			return "half an answer: " + cause(err)
		case answer.StatusCode != http.StatusOK:
			return refusal(answer.StatusCode, string(text))
		}
		return ""
	}
}

// unary is a client of gRPC.
func unary(client *http.Client, url string) func() string {
	return func() string {
		request, err := http.NewRequest(http.MethodPost, url+"caller.Echo/Once", strings.NewReader(string(messageOf("once"))))
		if err != nil {
			return err.Error()
		}
		request.GetBody = nil // it is not sent again
		request.Header.Set("Content-Type", grpcType)
		request.Header.Set("TE", "trailers")
		answer, err := client.Do(request)
		if err != nil {
			return "connection: " + cause(err)
		}
		defer answer.Body.Close()
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return "half an answer: " + cause(err)
		}
		if answer.StatusCode != http.StatusOK {
			return refusal(answer.StatusCode, "")
		}
		status, message := answer.Trailer.Get("Grpc-Status"), answer.Trailer.Get("Grpc-Message")
		if status == "" {
			status, message = answer.Header.Get("Grpc-Status"), answer.Header.Get("Grpc-Message")
		}
		if status != "0" {
			return "grpc-status " + status + " " + strings.TrimPrefix(refusal(0, message), "0 ")
		}
		return ""
	}
}

// session is a connection or stream that lasts, on which each text is answered with one that ends as it does.
type session interface {
	say(text string) error
	io.Closer
}

// lasting says texts in a session, and opens another one when that has ended.
func lasting(open func() (session, error)) func() string {
	var s session
	return func() string {
		if s == nil {
			var err error
			if s, err = open(); err != nil {
				s = nil
				return "open: " + cause(err)
			}
		}
		if err := s.say(time.Now().Format(time.RFC3339Nano)); err != nil {
			s.Close()
			s = nil
			return "while it lasts: " + cause(err)
		}
		return ""
	}
}

// linesOf is a session of lines over a connection.
type linesOf struct {
	net.Conn
	in *bufio.Reader
}

func (l *linesOf) say(text string) error {
	_ = l.SetDeadline(time.Now().Add(pressPatience))
	if _, err := fmt.Fprintln(l, text); err != nil {
		return err
	}
	line, err := l.in.ReadString('\n')
	if err == nil && !strings.HasSuffix(line, text+"\n") {
		err = fmt.Errorf("another answer")
	}
	return err
}

func dialLines(address string) (*linesOf, error) {
	c, err := net.DialTimeout("tcp", address, pressPatience)
	if err != nil {
		return nil, err
	}
	return &linesOf{c, bufio.NewReader(c)}, nil
}

// webSocket is a session after an upgrade, of which there is what proxies see: the upgrade, and bytes in both directions.
func webSocket(address string) (session, error) {
	s, err := dialLines(address)
	if err != nil {
		return nil, err
	}
	_ = s.SetDeadline(time.Now().Add(pressPatience))
	fmt.Fprint(s, "GET /ws HTTP/1.1\r\nHost: press\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n")
	answer, err := http.ReadResponse(s.in, nil)
	if err == nil && answer.StatusCode != http.StatusSwitchingProtocols {
		text, _ := io.ReadAll(answer.Body)
		err = errors.New(refusal(answer.StatusCode, string(text)))
	}
	if err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// upgraded answers a request for a WebSocket: with each byte that comes.
func upgraded(w http.ResponseWriter) {
	c, both, err := http.NewResponseController(w).Hijack()
	if err != nil {
		return
	}
	defer c.Close()
	fmt.Fprint(c, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Accept: s3pPLMBiTxaQ9kYGzzhZRbK+xOo=\r\n\r\n")
	_, _ = io.Copy(c, both)
}

// streamOf is a gRPC stream.
type streamOf struct {
	to   *io.PipeWriter
	from io.ReadCloser
}

func stream(client *http.Client, url string) (session, error) {
	body, to := io.Pipe()
	request, err := http.NewRequest(http.MethodPost, url+"caller.Echo/Talk", body)
	if err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", grpcType)
	request.Header.Set("TE", "trailers")
	answer, err := client.Do(request)
	if err != nil {
		to.Close()
		return nil, err
	}
	if status := answer.Header.Get("Grpc-Status"); answer.StatusCode != http.StatusOK || status != "" {
		to.Close()
		answer.Body.Close()
		return nil, errors.New(refusal(answer.StatusCode, "grpc-status "+status+" "+answer.Header.Get("Grpc-Message")))
	}
	return &streamOf{to, answer.Body}, nil
}

func (s *streamOf) say(text string) error {
	limit := time.AfterFunc(pressPatience, func() { _ = s.from.Close() })
	defer limit.Stop()
	if _, err := s.to.Write(messageOf(text)); err != nil {
		return err
	}
	back, err := message(s.from)
	if err == nil && string(back[5:]) != text {
		err = fmt.Errorf("another answer")
	}
	return err
}

func (s *streamOf) Close() error { return errors.Join(s.to.Close(), s.from.Close()) }
