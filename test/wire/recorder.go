package main

import (
	"bufio"
	"bytes"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// record is what came over one connection to the backend.
type record struct {
	bytes []byte
	whole bool // a request was read to its end
}

// recorder is a backend that keeps every byte it is sent. It answers each connection's request and ends the connection.
type recorder struct {
	l       net.Listener
	arrived chan struct{} // one for each barrier
	ended   sync.WaitGroup

	mu   sync.Mutex
	all  []*record
	open sync.WaitGroup
}

const barrier = "BARRIER\n"

func newRecorder() (*recorder, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	r := &recorder{l: l, arrived: make(chan struct{}, 1)}
	r.ended.Go(r.accept)
	return r, nil
}

func (r *recorder) port() int { return r.l.Addr().(*net.TCPAddr).Port }

func (r *recorder) close() {
	r.l.Close()
	r.ended.Wait()
}

func (r *recorder) accept() {
	for {
		nc, err := r.l.Accept()
		if err != nil {
			return
		}
		rec := &record{}
		r.mu.Lock()
		r.all = append(r.all, rec)
		r.mu.Unlock()
		r.open.Add(1)
		go func() {
			defer r.open.Done()
			r.serve(nc, rec)
		}()
	}
}

// tap keeps what is read.
type tap struct {
	nc  net.Conn
	rec *record
}

func (t tap) Read(p []byte) (int, error) {
	n, err := t.nc.Read(p)
	t.rec.bytes = append(t.rec.bytes, p[:n]...)
	return n, err
}

func (r *recorder) serve(nc net.Conn, rec *record) {
	defer nc.Close()
	_ = nc.SetDeadline(time.Now().Add(patience))
	br := bufio.NewReader(tap{nc, rec})
	if b, _ := br.Peek(1); len(b) == 1 && b[0] == barrier[0] {
		if line, _ := br.ReadString('\n'); line == barrier {
			r.arrived <- struct{}{}
			return
		}
		return // no method of the corpus begins so
	}
	req, err := http.ReadRequest(br)
	if err == nil {
		_, err = io.Copy(io.Discard, req.Body)
	}
	if err != nil && (err == io.EOF || err == io.ErrUnexpectedEOF) {
		return
	}
	rec.whole = true // or not to be read; the parsers will tell
	_, _ = io.WriteString(nc, "HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
	_, _ = io.Copy(io.Discard, br)
}

// take waits for the connections to end and gives what came over those since the last take.
func (r *recorder) take() ([]*record, error) {
	nc, err := net.Dial("tcp", r.l.Addr().String())
	if err != nil {
		return nil, err
	}
	if _, err := io.WriteString(nc, barrier); err != nil {
		return nil, err
	}
	<-r.arrived // connections are accepted in their order
	nc.Close()
	r.open.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	var all []*record
	for _, rec := range r.all {
		if len(rec.bytes) > 0 && !bytes.Equal(rec.bytes, []byte(barrier)) {
			all = append(all, rec)
		}
	}
	r.all = nil
	return all, nil
}
