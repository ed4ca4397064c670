package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"
)

// sentinel follows each case: whoever reads the case in another way reads no sentinel.
const sentinel = "GET /sentinel HTTP/1.1\r\nHost: sentinel.example\r\nConnection: close\r\n\r\n"

// expectation is what a stream of bytes from a client should come to.
type expectation struct {
	forwarded []message
	// answers are the statuses of all good messages.
	answers [][]int
	// last is what the grammar says of the message behind them, if that is not good.
	last outcome
}

func expect(stream []byte) (e expectation) {
	for len(stream) > 0 {
		m, n, o := readRequest(stream)
		if o.verdict != good {
			e.last = o
			return e
		}
		stream = stream[n:]
		if m.Local != 0 {
			e.answers = append(e.answers, []int{m.Local})
		} else {
			e.forwarded = append(e.forwarded, m)
			e.answers = append(e.answers, []int{200})
		}
		if !m.KeepAlive || m.Method == "CONNECT" {
			return e
		}
	}
	return e
}

// exchange sends the stream over one connection and gives the statuses of the answers, and what was wrong with them.
func exchange(address string, stream []byte) (statuses []int, problem string) {
	nc, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return nil, err.Error()
	}
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	var wrote sync.WaitGroup
	wrote.Go(func() {
		_, _ = nc.Write(stream) // it need not take all
		_ = nc.(*net.TCPConn).CloseWrite()
	})
	raw, err := io.ReadAll(nc)
	nc.Close()
	wrote.Wait()
	if err != nil && len(raw) == 0 {
		return nil, "the connection broke: " + err.Error()
	}
	br := bufio.NewReader(bytes.NewReader(raw))
	for rest := stream; ; {
		if _, err := br.Peek(1); err == io.EOF {
			return statuses, ""
		}
		this := rest
		m, n, _ := readRequest(rest)
		rest = rest[n:]
		if bytes.HasPrefix(bytes.TrimPrefix(this, []byte("\r\n")), []byte("HEAD ")) {
			m.Method = http.MethodHead // whatever else is wrong
		}
		resp, err := http.ReadResponse(br, &http.Request{Method: m.Method})
		if err == nil {
			_, err = io.Copy(io.Discard, resp.Body)
		}
		if err != nil {
			return statuses, fmt.Sprintf("the answer %q cannot be read: %v", raw, err)
		}
		if resp.StatusCode == 100 {
			rest = this // the final answer follows
			continue
		}
		statuses = append(statuses, resp.StatusCode)
	}
}

// judge compares what became of a case with what should have.
func judge(k *kase, e *expectation, statuses []int, records []*record) (problems []string) {
	complain := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	var whole []*record
	for _, r := range records {
		if r.whole {
			whole = append(whole, r)
		}
	}
	if len(whole) != len(e.forwarded) {
		complain("%d requests reached the backend, should be %d", len(whole), len(e.forwarded))
	}
	answers := e.answers
	if e.last.verdict == badHead || e.last.verdict == badBody {
		answers = append(slices.Clone(answers), e.last.statuses)
	}
	for i, want := range answers {
		if i >= len(statuses) {
			complain("no answer, should be %v (%s)", want, e.last.why)
			break
		}
		if !slices.Contains(want, statuses[i]) {
			complain("answered %d, should be %v (%s)", statuses[i], want, e.last.why)
		}
	}
	for _, s := range statuses[min(len(answers), len(statuses)):] {
		if e.last.verdict != incomplete || !slices.Contains(append([]int{400, 408, 414, 431}, e.last.statuses...), s) {
			complain("answered %d beyond %v", s, answers)
		}
	}
	if k.want > 0 && (len(statuses) == 0 || !slices.Contains(statuses, k.want)) {
		complain("answered %v, the seed says %d", statuses, k.want)
	}
	if k.want == 0 && (len(statuses) == 0 || statuses[0] != 200) {
		complain("answered %v, the seed says that it is forwarded", statuses)
	}
	return problems
}

// pseudonym is the proxy's name in Via.
const pseudonym = "wire"

// own are fields that the proxy writes itself or keeps back.
var own = []string{"connection", "content-length", "expect", "host", "http2-settings", "keep-alive", "proxy-authenticate", "proxy-authorization", "proxy-connection",
	"te", "transfer-encoding", "upgrade", "weir-mirrored", "x-forwarded-for", "x-forwarded-host", "x-forwarded-port", "x-forwarded-proto",
	"x-real-ip", "x-request-id", "forwarded"}

// alike finds names with other characters than letters, digits and hyphens, likened those that a backend may read as one of the proxy's: of own, or
// one that is answered for.
var (
	alike   = regexp.MustCompile(`[^A-Za-z0-9-]`)
	likened = regexp.MustCompile(`^(x-forwarded-.*|x-real-ip|weir-via|trailer|via|forwarded)$`)
)

// kept are the fields of a request that should arrive, canonical.
func kept(fields []field) string {
	named := members(fields, "connection")
	var all []field
	for _, f := range fields {
		name := strings.ToLower(f.Name)
		if as := alike.ReplaceAllString(name, "-"); as != name && (slices.Contains(own, as) || likened.MatchString(as)) {
			continue
		}
		if name == "via" && strings.HasSuffix(f.Value, " "+pseudonym) {
			continue
		}
		if !slices.Contains(own, name) && (!slices.Contains(named, name) || name == "via") && !strings.HasPrefix(name, "x-forwarded-") {
			all = append(all, f)
		}
	}
	return canonical(all)
}

// compare replays a forwarded request to every parser.
func (s *suite) compare(raw []byte, m *message) (problems []string) {
	var first *reading
	for i, p := range s.readers {
		b, undo := allowed(p.name, raw, m)
		got, err := p.read(b)
		if err != nil {
			problems = append(problems, fmt.Sprintf("%s: %v", p.name, err))
			s.disagree(p.name)
			continue
		}
		if len(got) != 2 && !(len(got) == 1 && !bytes.HasSuffix(b, []byte(sentinel))) || len(got) == 2 && got[1].Target != "/sentinel" {
			problems = append(problems, fmt.Sprintf("%s: reads %d requests: %+v", p.name, len(got), got))
			s.disagree(p.name)
			continue
		}
		g := &got[0]
		undo(g)
		if i == 0 {
			first = g
			if g.Method != m.Method || g.Target != m.Target || g.Body != latin([]byte(m.Body)) || kept(g.Fields) != kept(m.Fields) {
				problems = append(problems, fmt.Sprintf("the backend is asked something else:\n%+v\nfor\n%+v", *g, *m))
			}
			if head, _, _ := bytes.Cut(raw, []byte("\r\n\r\n")); m.Body == "" && bytes.Contains(head, []byte("\r\nExpect:")) && !bytes.Contains(head, []byte("\r\nTransfer-Encoding:")) {
				problems = append(problems, "the backend is to give leave to content that there is not (RFC 9110 §10.1.1)")
			}
			continue
		}
		if first == nil {
			continue
		}
		if g.Method != first.Method || g.Target != first.Target || g.Body != first.Body || canonical(g.Fields) != canonical(first.Fields) ||
			p.trailers && canonical(g.Trailers) != canonical(first.Trailers) {
			problems = append(problems, fmt.Sprintf("%s reads\n%+v\nnot\n%+v", p.name, *g, *first))
			s.disagree(p.name)
		}
	}
	return problems
}

// methods are those that llhttp knows; nginx refuses none of them but TRACE.
const methods = "DELETE GET HEAD POST PUT OPTIONS TRACE COPY LOCK MKCOL MOVE PROPFIND PROPPATCH SEARCH UNLOCK REPORT M-SEARCH NOTIFY SUBSCRIBE PATCH PURGE"

// allowed is what a parser gets to read: Weir's bytes and the sentinel, but for what a parser refuses that the documents ask it to take.
// There it gets the rest of the request, and undo completes its reading. These are all the exceptions there are.
func allowed(reader string, raw []byte, m *message) (b []byte, undo func(*reading)) {
	b, undo = slices.Clone(raw), func(*reading) {}
	switch {
	case reader == "llhttp" && !slices.Contains(strings.Fields(methods), m.Method), reader == "nginx" && m.Method == "TRACE":
		// Methods can be added (RFC 9110 §9.1, §16.1), llhttp's list is closed. nginx reads TRACE, but does not serve it (§9.3.8).
		b = append([]byte("NOTIFY"), raw[len(m.Method):]...)
		undo = func(g *reading) {
			if g.Method == "NOTIFY" {
				g.Method = m.Method
			}
		}
	case reader == "JDK" && strings.HasPrefix(m.Target, "//"):
		// A target that begins with a slash is a path (RFC 9112 §3.2.1), the JDK takes the first segment of this one for an authority.
		b = bytes.Replace(b, []byte(" //"), []byte(" /-/"), 1)
		undo = func(g *reading) { g.Target = strings.Replace(g.Target, "/-/", "//", 1) }
	case reader == "JDK" && len(m.Trailers) > 0:
		// A recipient may drop trailer fields (RFC 9110 §6.5.1), the JDK refuses them.
		if i := bytes.LastIndex(b, []byte("\r\n0\r\n")); i >= 0 {
			b = append(b[:i+5], "\r\n"...)
		}
	case reader == "llhttp" && len(values(m.Fields, "upgrade")) > 0 && bytes.Contains(raw, []byte("\r\nConnection: Upgrade\r\n")):
		// A client waits for the answer before it sends more (RFC 9110 §7.8), and llhttp reads no further.
		return b, undo
	}
	if reader == "JDK" {
		// It replaces a tab by a space, which RFC 9110 §5.6.3 allows.
		undo = also(undo, func(g *reading) {
			for i := range g.Fields {
				for _, f := range m.Fields {
					if f.Value != g.Fields[i].Value && strings.EqualFold(f.Name, g.Fields[i].Name) && strings.ReplaceAll(f.Value, "\t", " ") == g.Fields[i].Value {
						g.Fields[i].Value = f.Value
						break
					}
				}
			}
		})
	}
	return append(b, sentinel...), undo
}

func also(f, g func(*reading)) func(*reading) {
	return func(r *reading) {
		f(r)
		g(r)
	}
}

// runRequests sends all cases.
func (s *suite) runRequests(ctx context.Context, cases []kase) error {
	var workers sync.WaitGroup
	work := make(chan *kase)
	errs := make(chan error, len(s.lanes))
	for _, lane := range s.lanes {
		workers.Go(func() {
			for k := range work {
				if err := s.request(lane, k); err != nil {
					errs <- err
					return
				}
			}
		})
	}
	var err error
feed:
	for i := range cases {
		select {
		case work <- &cases[i]:
		case err = <-errs:
			break feed
		case <-ctx.Done():
			err = ctx.Err()
			break feed
		}
	}
	close(work)
	workers.Wait()
	return err
}

func (s *suite) request(l *lane, k *kase) error {
	stream := append(slices.Clone(k.bytes), sentinel...)
	e := expect(stream)
	statuses, problem := exchange(l.address, stream)
	records, err := l.backend.take()
	if err != nil {
		return err
	}
	problems := judge(k, &e, statuses, records)
	if problem != "" {
		problems = append(problems, problem)
	}
	i := 0
	for _, r := range records {
		if !r.whole {
			// A broken-off request: no parser may take it for a whole one.
			if got, err := goReader(r.bytes); err == nil || len(got) > 0 {
				problems = append(problems, fmt.Sprintf("a request that was broken off reads as whole: %q", r.bytes))
			}
			continue
		}
		if i < len(e.forwarded) && s.first(r.bytes) {
			problems = append(problems, s.compare(r.bytes, &e.forwarded[i])...)
		}
		i++
	}
	s.count(k, &e, statuses, problems)
	return nil
}

// runSlow sends heads that do not end and expects 408 (RFC 9110 §15.5.9).
func (s *suite) runSlow(cases []kase) {
	var all sync.WaitGroup
	for i := range cases {
		all.Go(func() {
			k := &cases[i]
			var problems []string
			nc, err := net.DialTimeout("tcp", s.slow.address, patience)
			if err != nil {
				s.count(k, &expectation{}, nil, []string{err.Error()})
				return
			}
			defer nc.Close()
			_ = nc.SetDeadline(time.Now().Add(2 * patience))
			_, _ = nc.Write(k.bytes)
			var statuses []int
			resp, err := http.ReadResponse(bufio.NewReader(nc), nil)
			if err != nil {
				problems = append(problems, err.Error())
			} else {
				statuses = []int{resp.StatusCode}
				resp.Body.Close()
				if resp.StatusCode != k.want {
					problems = append(problems, fmt.Sprintf("answered %d, should be %d", resp.StatusCode, k.want))
				}
			}
			s.count(k, &expectation{last: outcome{verdict: incomplete}}, statuses, problems)
		})
	}
	all.Wait()
	if records, err := s.slow.backend.take(); err != nil || len(records) > 0 {
		s.fail("heads that do not end", fmt.Sprintf("%d of them reached the backend, %v", len(records), err))
	}
}

// slowCases are truncated heads.
func slowCases() (all []kase) {
	for _, b := range []string{"G", "GET", "GET /", "GET / HTTP/1.", "GET / HTTP/1.1\r", "GET / HTTP/1.1\r\n", "GET / HTTP/1.1\r\nHost", "GET / HTTP/1.1\r\nHost: a", "GET / HTTP/1.1\r\nHost: a.example\r\n",
		"GET / HTTP/1.1\r\nHost: a.example\r\n\r", "\r\n", "\r", "POST / HTTP/1.1\r\nHost: a.example\r\nContent-Length: 5\r\n"} {
		all = append(all, kase{fmt.Sprintf("RFC 9110 §15.5.9: %q and no more", b), 408, []byte(b)})
	}
	return all
}
