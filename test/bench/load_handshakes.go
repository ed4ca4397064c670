//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// generateHandshakes is the subcommand "handshakes": each request comes over a new TLS connection, in a closed loop. Cryptography is the cost on both
// sides, so the library's blocking connections will do.
func generateHandshakes(args []string, in io.Reader, out io.Writer) error {
	f := flag.NewFlagSet("handshakes", flag.ExitOnError)
	port := f.Int("port", 0, "port of the proxy")
	conns := f.Int("conns", 16, "connections at a time")
	duration := f.Duration("duration", 3*time.Second, "measured time")
	resume := f.Bool("resume", false, "resume the session of the connection before")
	_ = f.Parse(args)
	request, err := io.ReadAll(in)
	if err != nil {
		return fmt.Errorf("request on the standard input: %w", err)
	}
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(400)
	clients := make([]handshakes, *conns)
	var done sync.WaitGroup
	for i := range clients {
		c := &clients[i]
		c.port, c.source, c.request = *port, i%sources+1, request
		c.config = loadTLS("http/1.1")
		if *resume {
			c.config.ClientSessionCache = tls.NewLRUClientSessionCache(1)
			done.Go(c.begin)
		}
	}
	done.Wait() // however long the full handshakes take
	start := time.Now()
	for i := range clients {
		c := &clients[i]
		c.until = start.Add(*duration)
		done.Go(c.run)
	}
	done.Wait()
	var all loadResult
	var samples []int64
	var errs error
	for i := range clients {
		c := &clients[i]
		samples = append(samples, c.samples...)
		all.Broken += c.failed
		errs = errors.Join(errs, c.err)
	}
	all.OK, all.Elapsed = len(samples), int64(time.Since(start))
	all.Requests = all.OK + all.Broken
	all.quantiles(slices.Clip(samples))
	if all.OK == 0 {
		return fmt.Errorf("no request was answered: %w", errs)
	}
	return json.NewEncoder(out).Encode(all)
}

// handshakes is one client.
type handshakes struct {
	port, source int
	request      []byte
	config       *tls.Config
	until        time.Time
	samples      []int64
	failed       int
	err          error // the last one
}

// begin makes the first session, which is not resumed, nor counted.
func (c *handshakes) begin() { _, c.err = c.ask(make([]byte, 16<<10)) }

// run asks until the time is over, and at least once.
func (c *handshakes) run() {
	if c.err != nil {
		return
	}
	buf := make([]byte, 16<<10)
	for first := true; ; first = false {
		t := time.Now()
		if t.After(c.until) && !first {
			return
		}
		resumed, err := c.ask(buf)
		if err == nil && resumed != (c.config.ClientSessionCache != nil) {
			err = fmt.Errorf("resumed is %t", resumed)
		}
		if err != nil {
			c.failed++
			c.err = err
			continue
		}
		c.samples = append(c.samples, int64(time.Since(t)))
	}
}

// lateBind leaves the choice of the port to connect, as dial does.
func lateBind(_, _ string, raw syscall.RawConn) error {
	return raw.Control(func(fd uintptr) { _ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_BIND_ADDRESS_NO_PORT, 1) })
}

// ask connects, sends the request and reads its answer.
func (c *handshakes) ask(buf []byte) (resumed bool, err error) {
	d := net.Dialer{Timeout: 5 * time.Second, LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(c.source))}, Control: lateBind}
	raw, err := d.Dial("tcp4", address(c.port))
	if err != nil {
		return false, err
	}
	nc := tls.Client(raw, c.config)
	defer raw.Close()
	_ = raw.SetDeadline(time.Now().Add(5 * time.Second))
	if _, err := nc.Write(c.request); err != nil {
		return false, err
	}
	for n := 0; ; {
		m, err := nc.Read(buf[n:])
		if n += m; err != nil {
			return false, err
		}
		if end := bytes.Index(buf[:n], headEnd); end >= 0 {
			size, ok := answerHead(buf[:end+2])
			if size < 0 || !ok {
				return false, fmt.Errorf("answer %q", buf[:end])
			}
			if n >= end+len(headEnd)+size {
				return nc.ConnectionState().DidResume, nil
			}
		}
	}
}
