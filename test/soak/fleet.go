//go:build unix

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fleet is the processes under test.
type fleet struct {
	s *soak
	// files is held while a process starts and while what the files say is broken: a process has no last good version to begin with.
	files sync.Mutex

	mu      sync.Mutex
	live    []*process // that follow the files
	leaving []*process // that drain, and go by what they had
	count   int
	ended   time.Time // when the last of them did
}

// process is a weir.
type process struct {
	s     *soak
	name  string
	cmd   *exec.Cmd
	log   *os.File
	admin string // URL, ending in a slash
	done  chan struct{}
	err   error // valid after done

	config, cert int64 // what the process is known to serve; fleet.mu

	mu   sync.Mutex
	said []logLine
	news chan struct{} // closed and replaced at each line
	sick []string      // lines of warnings and errors
}

type logLine struct {
	Level, Msg, Admin string
}

var admin = &http.Client{Timeout: 30 * time.Second}

// start runs weir and returns when it serves the newest files.
func (f *fleet) start(name, address string, more ...string) (*process, error) {
	f.files.Lock()
	defer f.files.Unlock()
	s := f.s
	f.mu.Lock()
	f.count++
	file := filepath.Join(s.dir, fmt.Sprintf("%02d-%s.log", f.count, name))
	f.mu.Unlock()
	args := append([]string{"run", s.edge.files, s.edge.folder, "--address", address, "--admin", "127.0.0.1:0", "--log-format", "json",
		"--drain-timeout", s.drainTimeout.String()}, more...)
	p := &process{s: s, name: name, cmd: s.command(args...), done: make(chan struct{}), news: make(chan struct{})}
	var err error
	if p.log, err = os.Create(file); err != nil {
		return nil, err
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go p.follow(stderr)
	if err := p.await("serving"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	f.live = append(f.live, p)
	f.mu.Unlock()
	if err := p.serves(s.truth.written.Load(), s.truth.certWritten.Load()); err != nil {
		return nil, err
	}
	f.settle()
	return p, nil
}

func (p *process) follow(stderr io.Reader) {
	defer close(p.done)
	scanner := bufio.NewScanner(stderr)
	scanner.Buffer(nil, 1<<20)
	for scanner.Scan() {
		fmt.Fprintf(p.log, "%s\n", scanner.Bytes())
		var l logLine
		_ = json.Unmarshal(scanner.Bytes(), &l) // a panic's lines are no JSON
		p.mu.Lock()
		p.said = append(p.said, l)
		if l.Level != "INFO" && len(p.sick) < 20 {
			p.sick = append(p.sick, scanner.Text())
		}
		close(p.news)
		p.news = make(chan struct{})
		p.mu.Unlock()
	}
	p.err = p.cmd.Wait()
	p.log.Close()
	p.s.fleet.left(p)
}

// await waits for a log line with the message.
func (p *process) await(message string) error {
	limit := time.NewTimer(patience)
	defer limit.Stop()
	for {
		p.mu.Lock()
		said, news := p.said, p.news
		p.mu.Unlock()
		for _, l := range said {
			if l.Msg == message {
				if l.Admin != "" {
					p.admin = l.Admin
				}
				return nil
			}
		}
		select {
		case <-news:
		case <-p.done:
			p.mu.Lock()
			defer p.mu.Unlock()
			return fmt.Errorf("%s ended (%w) without logging %q:\n%s", p.name, errors.Join(p.err), message, strings.Join(p.sick, "\n"))
		case <-limit.C:
			return fmt.Errorf("%s did not log %q: %w", p.name, message, errGaveUp)
		}
	}
}

func (p *process) terminate() error { return p.cmd.Process.Signal(syscall.SIGTERM) }

// wait waits for the process to end well.
func (p *process) wait() error {
	select {
	case <-p.done:
	case <-time.After(patience):
		return fmt.Errorf("%s did not end: %w", p.name, errGaveUp)
	}
	if p.err != nil {
		return fmt.Errorf("%s ended badly: %w\n%s", p.name, p.err, strings.Join(p.sick, "\n"))
	}
	return nil
}

func (p *process) get(path string) (int, string, error) {
	resp, err := admin.Get(p.admin + path)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(body), err
}

// until asks the admin endpoint until the answer holds, or the process ends.
func (p *process) until(path string, holds func(status int, body string) bool) error {
	for begun := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		status, body, err := p.get(path)
		switch {
		case err == nil && holds(status, body):
			return nil
		case p.gone():
			return nil // others matter
		case time.Since(begun) > patience:
			return fmt.Errorf("%s: /%s does not say what it should: %w\n%s\n%.2000s", p.name, path, errGaveUp, strings.Join(p.sick, "\n"), body)
		}
	}
}

// gone is true when the process no longer follows the files.
func (p *process) gone() bool {
	p.s.fleet.mu.Lock()
	defer p.s.fleet.mu.Unlock()
	return !slices.Contains(p.s.fleet.live, p)
}

// serves waits until a process serves configuration and certificate of these numbers.
func (p *process) serves(config, cert int64) error {
	route, folder := strconv.Quote(number(config)), folderMark(p.s.edge.folderNumber.Load())
	err := p.until("config", func(_ int, body string) bool { return strings.Contains(body, route) && strings.Contains(body, folder) })
	f := &p.s.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if err == nil && slices.Contains(f.live, p) {
		p.config, p.cert = config, cert
	}
	return err
}

// confirm waits until all live processes serve what was written last.
func (f *fleet) confirm() error {
	f.mu.Lock()
	live := slices.Clone(f.live)
	f.mu.Unlock()
	for _, p := range live {
		if err := p.serves(f.s.truth.written.Load(), f.s.truth.certWritten.Load()); err != nil {
			return err
		}
	}
	f.settle()
	return nil
}

// settle notes what no process is behind of.
func (f *fleet) settle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := &f.s.truth
	config, cert := t.written.Load(), t.certWritten.Load()
	for _, p := range slices.Concat(f.live, f.leaving) {
		config, cert = min(config, p.config), min(cert, p.cert)
	}
	t.confirmed.Store(config)
	t.certConfirmed.Store(cert)
}

// all asks each live process until the answer holds.
func (f *fleet) all(path string, holds func(status int, body string) bool) error {
	f.mu.Lock()
	live := slices.Clone(f.live)
	f.mu.Unlock()
	for _, p := range live {
		if err := p.until(path, holds); err != nil {
			return err
		}
	}
	return nil
}

// leave says that a process is going to drain.
func (f *fleet) leave(p *process) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.live = slices.DeleteFunc(f.live, func(q *process) bool { return q == p })
	select {
	case <-p.done:
	default:
		f.leaving = append(f.leaving, p)
	}
}

// left says that a process has ended.
func (f *fleet) left(p *process) {
	f.mu.Lock()
	f.ended = time.Now()
	f.leaving = slices.DeleteFunc(f.leaving, func(q *process) bool { return q == p })
	f.live = slices.DeleteFunc(f.live, func(q *process) bool { return q == p })
	f.mu.Unlock()
	if p.err == nil {
		f.s.diary.drained.Add(1)
	} else if f.s.ctx.Err() == nil {
		f.s.diary.fail(p.name, fmt.Errorf("the process ended: %w", p.err))
	}
	f.settle()
}

// stale waits until the processes that drain now have ended: they may still use what was removed.
func (f *fleet) stale() {
	f.mu.Lock()
	leaving := slices.Clone(f.leaving)
	f.mu.Unlock()
	for _, p := range leaving {
		<-p.done
	}
}

// drainedLately is true while a process drains, and shortly after.
func (f *fleet) drainedLately() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.leaving) > 0 || time.Since(f.ended) < 5*time.Second
}

// stopAll ends the processes and expects them to end well.
func (f *fleet) stopAll() error {
	f.mu.Lock()
	all := slices.Concat(f.live, f.leaving)
	f.mu.Unlock()
	var errs []error
	for _, p := range all {
		f.leave(p)
		errs = append(errs, p.terminate())
	}
	for _, p := range all {
		errs = append(errs, p.wait())
	}
	return errors.Join(errs...)
}

// kill ends what is left, when the soak was broken off.
func (f *fleet) kill() {
	f.mu.Lock()
	all := slices.Concat(f.live, f.leaving)
	f.mu.Unlock()
	for _, p := range all {
		_ = p.cmd.Process.Kill()
		<-p.done
	}
}

var (
	goroutineCount = regexp.MustCompile(`goroutine profile: total (\d+)`)
	heapSize       = regexp.MustCompile(`# HeapAlloc = (\d+)`)
	residentSize   = regexp.MustCompile(`VmRSS:\s+(\d+) kB`)
)

// footprint looks at what the process holds, after a collection.
func (p *process) footprint() (f footprint, err error) {
	find := func(pattern *regexp.Regexp, path string) (n int64) {
		_, body, gerr := p.get(path)
		if m := pattern.FindStringSubmatch(body); m != nil {
			n, _ = strconv.ParseInt(m[1], 10, 64)
			return n
		}
		err = errors.Join(err, gerr, fmt.Errorf("/%s of %s lacks %v", path, p.name, pattern))
		return 0
	}
	f.goroutines = int(find(goroutineCount, "debug/pprof/goroutine?debug=1"))
	find(heapSize, "debug/pprof/heap?debug=1&gc=1")
	f.heap = find(heapSize, "debug/pprof/heap?debug=1&gc=1") // the second collection frees what pools held
	if status, rerr := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid)); rerr == nil {
		if m := residentSize.FindSubmatch(status); m != nil {
			kib, _ := strconv.ParseInt(string(m[1]), 10, 64)
			f.rss = kib << 10
		}
	}
	return f, err
}
