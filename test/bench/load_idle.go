//go:build linux

package main

import (
	"bytes"
	"crypto/tls"
	"errors"
	"flag"
	"fmt"
	"io"
)

// holdIdle is the subcommand "idle": it opens connections, sends a request on each, writes a line, and keeps them. When the
// standard input brings a byte it sends another request on each: they must all have been kept.
func holdIdle(args []string, in io.Reader, out io.Writer) error {
	f := flag.NewFlagSet("idle", flag.ExitOnError)
	port := f.Int("port", 0, "port of the proxy")
	conns := f.Int("conns", 10_000, "connections")
	secure := f.Bool("tls", false, "use TLS")
	_ = f.Parse(args)
	var config *tls.Config
	if *secure {
		config = loadTLS("http/1.1")
	}
	request := []byte(plainRequest())
	buf := make([]byte, 16<<10)
	all := make([]*link, *conns)
	for i := range all {
		var err error
		if all[i], err = connectLink(*port, i%sources+1, config); err == nil {
			err = all[i].ask(request, buf)
		}
		if err != nil {
			return fmt.Errorf("connection %d: %w", i, err)
		}
	}
	if _, err := out.Write([]byte("\n")); err != nil {
		return err
	}
	if _, err := in.Read(buf[:1]); err != nil {
		return err
	}
	for i, l := range all {
		if err := l.ask(request, buf); err != nil {
			return fmt.Errorf("connection %d was not kept: %w", i, err)
		}
	}
	return nil
}

// ask sends a request and waits for the whole answer.
func (l *link) ask(request, buf []byte) error {
	if n, err := l.write(request); err != nil || n < len(request) || l.flush() != nil || len(l.sealed) > 0 {
		return errors.Join(err, errors.New("the request does not fit into the socket's buffer"))
	}
	for n := 0; ; {
		m, eof, err := l.read(buf[n:])
		if err != nil || eof {
			return errors.Join(err, errors.New("the connection ended"))
		}
		if n += m; m == 0 {
			if err := l.wait(); err != nil {
				return err
			}
			continue
		}
		if end := bytes.Index(buf[:n], headEnd); end >= 0 {
			size, ok := answerHead(buf[:end+2])
			if size < 0 || !ok {
				return fmt.Errorf("answer %q", buf[:end])
			}
			if n >= end+len(headEnd)+size {
				return nil
			}
		}
	}
}
