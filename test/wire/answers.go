package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// answer is what a backend says to one request.
type answer struct {
	name   string
	method string
	bytes  []byte
	// late follows once the client has its answer, if the connection is still there.
	late []byte
	// keep: the backend does not close the connection behind bytes.
	keep bool
}

// answerSeeds are written from RFC 9112 §4 to §9 and RFC 9110 §15.
func answerSeeds() []answer {
	const ok = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello"
	const coded = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
	const poison = "HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\npoison"
	all := []answer{
		{name: "plain", bytes: []byte(ok)},
		{name: "chunked", bytes: []byte(coded + "5\r\nhello\r\n0\r\n\r\n")},
		{name: "chunked with extensions and trailers", bytes: []byte(coded + "5;a=\"b\"\r\nhello\r\n0\r\nX: y\r\n\r\n")},
		{name: "until the connection ends", bytes: []byte("HTTP/1.1 200 OK\r\n\r\nhello")},
		{name: "1.0", bytes: []byte("HTTP/1.0 200 OK\r\n\r\nhello")},
		{name: "no reason and no space", bytes: []byte("HTTP/1.1 200\r\nContent-Length: 0\r\n\r\n")},
		{name: "no reason", bytes: []byte("HTTP/1.1 200 \r\nContent-Length: 0\r\n\r\n")},
		{name: "interim answers", bytes: []byte("HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\nHTTP/1.1 102 Processing\r\n\r\n" + ok)},
		{name: "interim answers without end", bytes: []byte(strings.Repeat("HTTP/1.1 103 Early Hints\r\n\r\n", 10000) + ok)},
		{name: "204 with content", bytes: []byte("HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\nhello")},
		{name: "204 with chunks", bytes: []byte("HTTP/1.1 204 No Content\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
		{name: "304 with length", bytes: []byte("HTTP/1.1 304 Not Modified\r\nContent-Length: 5\r\n\r\n")},
		{name: "101 unasked", bytes: []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: foo\r\n\r\nhello")},
		{name: "101 to nothing", bytes: []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\n\r\nhello")},
		{name: "101 to several", bytes: []byte("HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: foo, bar\r\n\r\nhello")},
		{name: "high bytes", bytes: []byte("HTTP/1.1 200 \xff\r\nX: \xff\r\nContent-Length: 0\r\n\r\n")},
		{name: "same length twice", bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nContent-Length: 5\r\n\r\nhello")},
		{name: "nothing"},
		{name: "HTTP/0.9", bytes: []byte("<html>hello</html>")},
		{name: "another protocol", bytes: []byte("SSH-2.0-OpenSSH_9.2\r\n")},
		{name: "a head without end", bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n")},
		{name: "half a status line", bytes: []byte("HTTP/1.1 2")},
		{name: "content too short", bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\nhello")},
		{name: "no content", bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 50\r\n\r\n")},
		{name: "content too short by far", bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 5000000\r\n\r\n" + strings.Repeat("x", 200000))},
		{name: "chunks without end", bytes: []byte(coded + "5\r\nhello\r\n")},
		{name: "chunks without trailer's end", bytes: []byte(coded + "5\r\nhello\r\n0\r\n")},
		{name: "half a chunk", bytes: []byte(coded + "5\r\nhel")},
		{name: "content too long", keep: true, bytes: []byte(ok + " and more")},
		{name: "two answers", keep: true, bytes: []byte(ok + poison)},
		{name: "chunks and more", keep: true, bytes: []byte(coded + "5\r\nhello\r\n0\r\n\r\n" + poison)},
		{name: "an interim answer behind it", keep: true, bytes: []byte(ok + "HTTP/1.1 103 Early Hints\r\n\r\n")},
		{name: "chunks and an interim answer", keep: true, bytes: []byte(coded + "5\r\nhello\r\n0\r\n\r\nHTTP/1.1 100 Continue\r\n\r\n")},
		{name: "an octet behind it", keep: true, bytes: []byte(ok + "H")},
		{name: "chunks for HEAD", method: "HEAD", keep: true, bytes: []byte(coded + "5\r\nhello\r\n0\r\n\r\n")},
		{name: "204 and an answer", keep: true, bytes: []byte("HTTP/1.1 204 No Content\r\n\r\n" + poison)},
		{name: "204 with content kept open", keep: true, bytes: []byte("HTTP/1.1 204 No Content\r\nContent-Length: 80\r\n\r\n" + poison)},
		{name: "304 and an answer", keep: true, bytes: []byte("HTTP/1.1 304 Not Modified\r\n\r\n" + poison)},
		{name: "content for HEAD", method: "HEAD", keep: true, bytes: []byte(ok)},
		{name: "an answer for HEAD", method: "HEAD", keep: true, bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n" + poison)},
		{name: "HEAD", method: "HEAD", keep: true, bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")},
		{name: "kept", keep: true, bytes: []byte(ok)},
		{name: "kept, chunked", keep: true, bytes: []byte(coded + "5\r\nhello\r\n0\r\n\r\n")},
		{name: "closed", keep: true, bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello")},
	}
	for _, late := range []string{poison, "garbage", "HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n", "\r\n", "HTTP/1.1 100 Continue\r\n\r\n", "H"} {
		all = append(all,
			answer{name: fmt.Sprintf("later %.20q", late), keep: true, bytes: []byte(ok), late: []byte(late)},
			answer{name: fmt.Sprintf("POST, later %.20q", late), method: "POST", keep: true, bytes: []byte(ok), late: []byte(late)},
			answer{name: fmt.Sprintf("HEAD, later %.20q", late), method: "HEAD", keep: true, bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 44\r\n\r\n"), late: []byte(late)})
	}
	for _, l := range []string{"HTTP/2.0 200 OK", "HTTP/1.2 200 OK", "HTTP/0.9 200 OK", "http/1.1 200 OK", "HTTP/1.1  200 OK", "HTTP/1.1\t200 OK", "HTTP/1.1 20 OK", "HTTP/1.1 2000 OK", "HTTP/1.1 099 OK",
		"HTTP/1.1 600 OK", "HTTP/1.1 +20 OK", "HTTP/1.1 2x0 OK", "HTTP/1.1 OK", "HTTP/1.1", "HTTP/1.1 200OK", "HTTP/1.1 200\tOK", "HTTP/1.1 200 O\x00K", "HTTP/1.1 200 O\rK", "HTTP/1.1 200 O\nK", "HTTP/1.1 200 \x1b", "ICY 200 OK",
		" HTTP/1.1 200 OK", "\r\nHTTP/1.1 200 OK", "HTTP/1.1 200 " + strings.Repeat("a", 9000), "\xef\xbb\xbfHTTP/1.1 200 OK", "HTTP/1.1 000 OK", "HTTP/1.1 999 OK"} {
		all = append(all, answer{name: fmt.Sprintf("status line %.30q", l), bytes: []byte(l + "\r\nContent-Length: 5\r\n\r\nhello")})
	}
	for _, l := range []string{"X : y", "X", ": y", "X: a\x00b", "X: a\x7f", "X: a\rb", "X: a\nb", "X: a\r\n b", " X: y", "X\x00: y", "X\xff: y", "\"X\": y", "X: " + strings.Repeat("a", 70000), strings.Repeat("X: y\r\n", 200) + "X: y",
		"Content-Length: 6", "Content-Length: +5", "Content-Length: 5, 5", "Content-Length: ", "Content-Length: -1", "Content-Length: 0x5", "Content-Length: 99999999999999999999", "Content-Length : 5",
		"Transfer-Encoding: chunked", "Transfer-Encoding: identity", "Transfer-Encoding: gzip, chunked", "Transfer-Encoding: x", "Transfer-Encoding:", "Transfer-Encoding : chunked", "Transfer-Encoding: \vchunked"} {
		all = append(all, answer{name: fmt.Sprintf("field line %.30q", l), bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n" + l + "\r\n\r\nhello")})
	}
	for _, l := range []string{"Transfer-Encoding: gzip, chunked", "Transfer-Encoding: chunked, gzip", "Transfer-Encoding: chunked, chunked", "Transfer-Encoding: gzip", "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked",
		"Transfer-Encoding: ,chunked", "Transfer-Encoding: xchunked"} {
		all = append(all, answer{name: l, bytes: []byte("HTTP/1.1 200 OK\r\n" + l + "\r\n\r\n5\r\nhello\r\n0\r\n\r\n")})
	}
	all = append(all, answer{name: "chunked in 1.0", bytes: []byte("HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n")},
		answer{name: "bare LF", bytes: []byte("HTTP/1.1 200 OK\nContent-Length: 5\n\nhello")},
		answer{name: "bare CR", bytes: []byte("HTTP/1.1 200 OK\rContent-Length: 5\r\rhello")},
		answer{name: "bare LF ends the head", bytes: []byte("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\nhello")})
	for _, body := range []string{"+5\r\nhello\r\n0\r\n\r\n", "-5\r\nhello\r\n0\r\n\r\n", "0x5\r\nhello\r\n0\r\n\r\n", " 5\r\nhello\r\n0\r\n\r\n", "5 \r\nhello\r\n0\r\n\r\n", "g\r\nhello\r\n0\r\n\r\n", "\r\nhello\r\n0\r\n\r\n",
		"10000000000000005\r\nhello\r\n0\r\n\r\n", "5\nhello\r\n0\r\n\r\n", "5\rhello\r\n0\r\n\r\n", "5\r\nhello\n0\r\n\r\n", "5\r\nhello0\r\n\r\n", "5\r\nhello!\r\n0\r\n\r\n", "6\r\nhello\r\n0\r\n\r\n", "5;\r\nhello\r\n0\r\n\r\n",
		"5;a=\r\nhello\r\n0\r\n\r\n", "5;a\nb\r\nhello\r\n0\r\n\r\n", "5\r\nhello\r\n0\r\nX\r\n\r\n", "5\r\nhello\r\n0\r\nX : y\r\n\r\n", "5\r\nhello\r\n0\r\nX: a\r\n b\r\n\r\n", "5\r\nhello\r\n0\r\nX: \x00\r\n\r\n", "5\r\nhello\r\n0\n\r\n",
		"5\r\nhello\r\n0\r\n\n", "hello"} {
		all = append(all, answer{name: fmt.Sprintf("chunks %.30q", body), bytes: []byte(coded + body)})
		all = append(all, answer{name: fmt.Sprintf("much content and chunks %.30q", body), bytes: []byte(coded + "186a0\r\n" + strings.Repeat("x", 100000) + "\r\n" + body)})
	}
	for i := range all {
		if all[i].method == "" {
			all[i].method = "GET"
		}
	}
	return all
}

// answerCorpus is the seeds and count mutations.
func answerCorpus(count int) []answer {
	all := answerSeeds()
	seen := map[string]bool{}
	var base []seed
	for i := range all {
		seen[string(all[i].bytes)] = true
		if len(all[i].bytes) < 3000 {
			base = append(base, seed{name: all[i].name, bytes: string(all[i].bytes)})
		}
	}
	r := rand.New(rand.NewPCG(9112, 9110))
	for n := 0; n < count; {
		s := &base[r.IntN(len(base))]
		b := []byte(s.bytes)
		for range 1 + r.IntN(2) {
			b = mutate(r, b, base, n%3 == 0)
		}
		if seen[string(b)] {
			continue
		}
		seen[string(b)] = true
		all = append(all, answer{name: fmt.Sprintf("mutation %d of %q", n, s.name), method: []string{"GET", "GET", "POST", "HEAD"}[r.IntN(4)], bytes: b})
		n++
	}
	return all
}

// scripted is a backend that says what it is told to.
type scripted struct {
	l       net.Listener
	address string // of weir's listener before it
	open    sync.WaitGroup

	mu    sync.Mutex
	now   *answer
	conns []*scriptedConn
}

type scriptedConn struct {
	nc     net.Conn
	cases  int  // requests of the case that it answered
	probes int  // and of probes behind those
	gone   bool // closed by the other side, or this one
}

func newScripted() (*scripted, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	b := &scripted{l: l}
	b.open.Go(b.accept)
	return b, nil
}

func (b *scripted) port() int { return b.l.Addr().(*net.TCPAddr).Port }

func (b *scripted) close() {
	b.l.Close()
	b.mu.Lock()
	for _, c := range b.conns {
		c.nc.Close()
	}
	b.mu.Unlock()
	b.open.Wait()
}

func (b *scripted) accept() {
	for {
		nc, err := b.l.Accept()
		if err != nil {
			return
		}
		c := &scriptedConn{nc: nc}
		b.mu.Lock()
		b.conns = append(b.conns, c)
		b.mu.Unlock()
		b.open.Go(func() {
			b.serve(c)
			nc.Close()
			b.mu.Lock()
			c.gone = true
			b.mu.Unlock()
		})
	}
}

func (b *scripted) serve(c *scriptedConn) {
	br := bufio.NewReader(c.nc)
	for {
		req, err := http.ReadRequest(br)
		if err != nil {
			return
		}
		_, _ = io.Copy(io.Discard, req.Body)
		b.mu.Lock()
		probe, now := req.URL.Path != "/case", b.now
		if probe {
			if c.cases > 0 {
				c.probes++
			}
		} else {
			c.cases++
		}
		b.mu.Unlock()
		if probe {
			fmt.Fprintf(c.nc, "HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s", len(req.URL.Path), req.URL.Path)
			continue
		}
		if _, err := c.nc.Write(now.bytes); err != nil || !now.keep {
			return
		}
	}
}

// begin takes up the next answer; the connections of the last one are forgotten.
func (b *scripted) begin(a *answer) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.now = a
	for _, c := range b.conns {
		c.nc.Close()
	}
	b.conns = nil
}

// late says what the answer leaves for later, where that is possible.
func (b *scripted) late() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		if c.cases > 0 && !c.gone {
			_, _ = c.nc.Write(b.now.late)
		}
	}
}

// reused is how many probes came over connections that had served the case.
func (b *scripted) reused() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.conns {
		n += c.probes
	}
	return n
}

// told is what a client makes of an answer.
type told struct {
	status int
	body   string
	err    error // the answer did not come to its end
	raw    []byte
}

// tell asks weir and reads the answer strictly: by the grammar and by net/http.
func tell(address, method, path string) (t told, err error) {
	nc, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return t, err
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	fmt.Fprintf(nc, "%s %s HTTP/1.1\r\nHost: a.example\r\nConnection: close\r\n\r\n", method, path)
	if t.raw, err = io.ReadAll(nc); err != nil {
		return t, err
	}
	br := bufio.NewReader(bytes.NewReader(t.raw))
	for {
		resp, err := http.ReadResponse(br, &http.Request{Method: method})
		if err != nil {
			t.err = err
			return t, nil
		}
		if resp.StatusCode/100 == 1 {
			continue
		}
		body, err := io.ReadAll(resp.Body)
		t.status, t.body, t.err = resp.StatusCode, string(body), err
		if err == nil && br.Buffered() > 0 {
			t.err = errors.New("bytes behind the answer")
		}
		return t, nil
	}
}

func (s *suite) runAnswers(ctx context.Context, all []answer, every int) error {
	mutationsFrom := len(answerSeeds())
	before := s.failures("default/answers")
	for i := range all {
		if i >= mutationsFrom && (i-mutationsFrom)%every != 0 {
			continue
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		a := &all[i]
		s.answers.begin(a)
		got, err := tell(s.answers.address, a.method, "/case")
		if err != nil {
			return fmt.Errorf("answer %s: %w", a.name, err)
		}
		m, n, o := readAnswer(a.method, a.bytes)
		var problems []string
		complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
		after := s.failures("default/answers")
		blamed := 0
		for reason, n := range after {
			d := n - before[reason]
			if d == 0 {
				continue
			}
			if reason != "malformed_response" && reason != "backend_reset" {
				complain("counted as %s", reason)
			}
			blamed += d
		}
		before = after
		kind := ""
		switch o.verdict {
		case good:
			kind = "passed on"
			if got.err != nil || got.status != m.Status || a.method != "HEAD" && m.Status != 204 && m.Status != 304 && got.body != m.Body {
				complain("the client was told %d %.60q (%v), should be %d %.60q", got.status, got.body, got.err, m.Status, m.Body)
			}
			if blamed != 0 {
				complain("counted as a failure of the backend")
			}
		case badHead:
			kind = "502"
			if got.status != 502 || got.err != nil {
				complain("the client was told %d (%v), should be 502: %s", got.status, got.err, o.why)
			}
			if blamed != 1 {
				complain("counted %d times as a failure of the backend", blamed)
			}
		default:
			kind = "broken off"
			if got.status == 502 && got.err == nil {
				kind = "502"
			} else if got.err == nil {
				complain("the client was told %d %.60q, without noticing: %s", got.status, got.body, o.why)
			} else if !errors.Is(got.err, io.ErrUnexpectedEOF) {
				complain("the client was told what it cannot read: %v", got.err)
			}
			if blamed != 1 {
				complain("counted %d times as a failure of the backend", blamed)
			}
		}
		if a.late != nil {
			s.answers.late()
		}
		probe := fmt.Sprintf("/probe-%d", i)
		again, err := tell(s.answers.address, "GET", probe)
		if err != nil {
			return fmt.Errorf("behind answer %s: %w", a.name, err)
		}
		if again.status != 200 || again.body != probe || again.err != nil {
			complain("the next request was answered with %d %.80q (%v)", again.status, again.body, again.err)
		}
		if s.answers.reused() > 0 && (o.verdict != good || !m.KeepAlive || n != len(a.bytes) || a.late != nil) {
			complain("the connection was used again")
		}
		if a.keep && a.late == nil && o.verdict == good && m.KeepAlive && n == len(a.bytes) && s.answers.reused() == 0 {
			complain("the connection was not used again")
		}
		s.mu.Lock()
		s.outcomes[kind]++
		s.mu.Unlock()
		for _, p := range problems {
			s.fail("answer "+a.name, fmt.Sprintf("%s\n\t%s %.400q", p, a.method, a.bytes))
		}
		// What the probe left would be counted with the next case.
		before = s.failures("default/answers")
	}
	return nil
}
