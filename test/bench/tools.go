//go:build linux

package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measured is what a load tool saw.
type measured struct {
	requests int // answered
	failed   int // not answered, or not with 2xx
	elapsed  time.Duration
	p50, p99 time.Duration
}

// load puts load on a proxy.
func (b *bench) load(s scenario, p *proxy, duration time.Duration) (measured, error) {
	switch s.tool {
	case toolWrk:
		return b.wrk(p, duration)
	case toolH2:
		return b.h2load(p, duration)
	}
	var r loadResult
	var err error
	args := b.security(p.setting)
	switch {
	case s.tool == toolGRPC:
		args = append(args, fmt.Sprint("-conns=", max(1, b.conns/h2Streams)), fmt.Sprint("-messages=", p.setting.GRPC))
		r, err = b.own("", "grpcload", p.port, duration, args...)
	case s.tool == toolHandshakes || s.tool == toolResume:
		r, err = b.own(lastRequest(), "handshakes", p.port, duration, fmt.Sprint("-resume=", s.tool == toolResume))
	case s.tool == toolChurn:
		r, err = b.generate(p.port, 0, duration, 0, lastRequest(), append(args, "-churn")...)
	case p.setting.Routes > 0:
		r, err = b.generate(p.port, 0, duration, 0, routesRequests(p.setting), append(args, "-many")...)
	default:
		r, err = b.generate(p.port, 0, duration, 0, plainRequest(), args...)
	}
	return measured{r.OK, r.Requests - r.OK, time.Duration(r.Elapsed), time.Duration(r.P50), time.Duration(r.P99)}, err
}

// security are the flags by which the generators speak to a proxy as its clients are to.
func (b *bench) security(s setting) (args []string) {
	if s.TLS {
		args = append(args, "-tls")
	}
	if s.TLS && s.Sidecars > 0 {
		args = append(args, "-certificate="+b.trust.client)
	}
	return args
}

// run runs a load tool to its end, on the load's processor.
func (b *bench) run(stdin string, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(b.ctx, name, args...)
	var out, errs bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(stdin), &out, &errs
	if err := cmd.Run(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s%s", filepath.Base(name), errors.Join(err, b.ctx.Err()), out.String(), errs.String())
	}
	return out.String(), nil
}

// seconds rounds up to what the tools understand.
func seconds(d time.Duration) string {
	return strconv.Itoa(max(1, int((d+time.Second-1)/time.Second)))
}

func (b *bench) wrk(p *proxy, duration time.Duration) (measured, error) {
	args := []string{"-t1", fmt.Sprint("-c", b.conns), "-d" + seconds(duration) + "s", "--latency", "-H", "Host: " + hostname}
	for _, h := range headers {
		args = append(args, "-H", h[0]+": "+h[1])
	}
	out, err := b.run("", "wrk", append(args, fmt.Sprintf("%s://127.0.0.1:%d%s", p.scheme(), p.port, requestPath))...)
	if err != nil {
		return measured{}, err
	}
	return parseWrk(out)
}

var (
	wrkQuantile = regexp.MustCompile(`(?m)^\s+(50|99)%\s+(\S+)$`)
	wrkTotal    = regexp.MustCompile(`(\d+) requests in (\S+),`)
	wrkErrors   = regexp.MustCompile(`Socket errors: connect (\d+), read (\d+), write (\d+), timeout (\d+)`)
	wrkStatus   = regexp.MustCompile(`Non-2xx or 3xx responses: (\d+)`)
)

// parseWrk reads wrk's report.
func parseWrk(out string) (m measured, err error) {
	total := wrkTotal.FindStringSubmatch(out)
	if total == nil {
		return m, fmt.Errorf("wrk said:\n%s", out)
	}
	m.requests, _ = strconv.Atoi(total[1])
	if m.elapsed, err = time.ParseDuration(total[2]); err != nil {
		return m, fmt.Errorf("wrk said: %w\n%s", err, out)
	}
	for _, q := range wrkQuantile.FindAllStringSubmatch(out, -1) {
		d, err := time.ParseDuration(q[2])
		if err != nil {
			return m, fmt.Errorf("wrk said: %w\n%s", err, out)
		}
		if q[1] == "50" {
			m.p50 = d
		} else {
			m.p99 = d
		}
	}
	for _, re := range []*regexp.Regexp{wrkErrors, wrkStatus} {
		if found := re.FindStringSubmatch(out); found != nil {
			for _, n := range found[1:] {
				v, _ := strconv.Atoi(n)
				m.failed += v
			}
		}
	}
	if status := wrkStatus.FindStringSubmatch(out); status != nil {
		n, _ := strconv.Atoi(status[1])
		m.requests -= n
	}
	return m, nil
}

// h2Streams is how many requests are in flight on a connection; there are as many connections as make -conns requests.
const h2Streams = 4

func (b *bench) h2load(p *proxy, duration time.Duration) (measured, error) {
	log := filepath.Join(b.dir, "h2load.log")
	_ = os.Remove(log)
	args := []string{"-t1", fmt.Sprint("-c", max(1, b.conns/h2Streams)), fmt.Sprint("-m", h2Streams), "-D" + seconds(duration),
		"--tls13-ciphers=" + cipher, "--log-file=" + log, fmt.Sprint("--connect-to=127.0.0.1:", p.port)}
	for _, h := range headers {
		args = append(args, "-H", strings.ToLower(h[0])+": "+h[1])
	}
	if _, err := b.run("", "h2load", append(args, fmt.Sprintf("%s://%s:%d%s", p.scheme(), hostname, p.port, requestPath))...); err != nil {
		return measured{}, err
	}
	f, err := os.Open(log)
	if err != nil {
		return measured{}, err
	}
	defer f.Close()
	return parseH2load(f)
}

// parseH2load reads h2load's log: start in microseconds since the epoch, status, microseconds to the answer's end.
// Its report has no quantiles.
func parseH2load(f *os.File) (m measured, err error) {
	var took []int
	var first, last int
	for lines := bufio.NewScanner(f); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) < 3 {
			continue // the last line may be torn
		}
		start, err1 := strconv.Atoi(fields[0])
		us, err2 := strconv.Atoi(fields[2])
		if err := errors.Join(err1, err2); err != nil {
			return m, fmt.Errorf("h2load's log: %w", err)
		}
		if first == 0 || start < first {
			first = start
		}
		last = max(last, start+us)
		if !strings.HasPrefix(fields[1], "2") {
			m.failed++
			continue
		}
		took = append(took, us)
	}
	if len(took) == 0 {
		return m, errors.New("h2load got no answer")
	}
	slices.Sort(took)
	m.requests, m.elapsed = len(took), time.Duration(last-first)*time.Microsecond
	m.p50 = time.Duration(took[len(took)/2]) * time.Microsecond
	m.p99 = time.Duration(took[len(took)*99/100]) * time.Microsecond
	return m, nil
}

// plainRequest is the request of the generator, the same as wrk's.
func plainRequest() string { return request(hostname, requestPath) }

// lastRequest asks for the end of the connection.
func lastRequest() string {
	return strings.TrimSuffix(plainRequest(), "\r\n") + "Connection: close\r\n\r\n"
}

func request(host, path string) string {
	var r strings.Builder
	r.WriteString("GET " + path + " HTTP/1.1\r\nHost: " + host + "\r\n")
	for _, h := range headers {
		r.WriteString(h[0] + ": " + h[1] + "\r\n")
	}
	return r.String() + "\r\n"
}

// routesRequests are requests to the routes that are asked for, in a fixed order that jumps about.
func routesRequests(s setting) string {
	var all strings.Builder
	for i := range s.Asked {
		host, prefix := s.route(i * 7919 % s.Asked * (s.Routes / s.Asked))
		all.WriteString(request(host, prefix+"items"))
	}
	return all.String()
}

// generate runs the generator; without a rate it is a closed loop.
func (b *bench) generate(port, rate int, duration, warmup time.Duration, request string, args ...string) (r loadResult, err error) {
	args = append([]string{fmt.Sprint("-rate=", rate), fmt.Sprint("-conns=", b.conns), fmt.Sprint("-warmup=", warmup)}, args...)
	return b.own(request, "load", port, duration, args...)
}

// own runs one of the generators that are here.
func (b *bench) own(request, subcommand string, port int, duration time.Duration, args ...string) (r loadResult, err error) {
	self, err := os.Executable()
	if err != nil {
		return r, err
	}
	args = append([]string{subcommand, fmt.Sprint("-port=", port), fmt.Sprint("-duration=", duration)}, args...)
	out, err := b.run(request, self, args...)
	if err != nil {
		return r, err
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return r, fmt.Errorf("generator: %w", err)
	}
	return r, nil
}
