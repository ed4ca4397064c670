package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"
)

// grpcType marks gRPC, of which there is what proxies see: messages with a prefix, and a status in trailers.
const grpcType = "application/grpc"

// between is the time between two requests, messages or lines of a client.
const between = 10 * time.Millisecond

// protocols are HTTP/2 in cleartext, and HTTP/1 if both are to be served.
func protocols(both bool) *http.Protocols {
	p := &http.Protocols{}
	p.SetHTTP1(both)
	p.SetUnencryptedHTTP2(true)
	return p
}

// echo answers each message of a gRPC call with the same.
func echo(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("Content-Type", grpcType)
	w.Header().Set("Trailer", "Grpc-Status")
	flush := http.NewResponseController(w).Flush
	_ = flush()
	for {
		m, err := message(r.Body)
		if err == nil {
			_, err = w.Write(m)
		}
		if err != nil {
			break
		}
		_ = flush()
	}
	w.Header().Set("Grpc-Status", "0")
}

// message reads one with its prefix, of up to 1 KiB.
func message(from io.Reader) ([]byte, error) {
	m := make([]byte, 5)
	if _, err := io.ReadFull(from, m); err != nil {
		return nil, err
	}
	n := binary.BigEndian.Uint32(m[1:])
	if n > 1<<10 {
		return nil, fmt.Errorf("a message of %d bytes", n)
	}
	m = append(m, make([]byte, n)...)
	_, err := io.ReadFull(from, m[5:])
	return m, err
}

func messageOf(text string) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(text))), text...)
}

// steady runs all clients side by side for a time.
func steady(host string, d time.Duration) {
	until := time.Now().Add(d)
	kept := &http.Client{Timeout: patience, Transport: &http.Transport{}}
	fresh := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	second := &http.Client{Timeout: patience, Transport: &http.Transport{Protocols: protocols(false)}}
	web, multiplexed := "http://"+host+"/", "http://"+host+":9002/"
	var all sync.WaitGroup
	var mu sync.Mutex
	run := func(kind string, client func(count func()) error) {
		all.Go(func() {
			n := 0
			err := client(func() { n++ })
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				fmt.Println("failed", kind, "after", n, err)
				return
			}
			fmt.Println("answered", n, kind)
		})
	}
	requests := func(client *http.Client, url string) func(func()) error {
		return func(count func()) error {
			for post := false; time.Now().Before(until); post = !post {
				if what := send(client, post, url); !strings.HasPrefix(what, "200 ") {
					return errors.New(what)
				}
				count()
				time.Sleep(between)
			}
			return nil
		}
	}
	run("HTTP/1.1", requests(kept, web))
	run("HTTP/1.1, new connections", requests(fresh, web))
	run("HTTP/2", requests(second, multiplexed))
	run("gRPC", func(count func()) error {
		for time.Now().Before(until) {
			if err := call(second, multiplexed, func(say func(string) error) error { return say("once") }); err != nil {
				return err
			}
			count()
			time.Sleep(between)
		}
		return nil
	})
	endless := &http.Client{Transport: second.Transport}
	run("gRPC, one stream", func(count func()) error {
		return call(endless, multiplexed, func(say func(string) error) error {
			for time.Now().Before(until) {
				if err := say(time.Now().String()); err != nil {
					return err
				}
				count()
				time.Sleep(between)
			}
			return nil
		})
	})
	run("TCP, one connection", func(count func()) error { return lines(host+":9001", until, count) })
	all.Wait()
}

// call makes a gRPC call, of which talk says messages and waits for the answer to each.
func call(client *http.Client, url string, talk func(say func(string) error) error) error {
	body, to := io.Pipe()
	defer to.Close()
	request, err := http.NewRequest(http.MethodPost, url+"caller.Echo/Talk", body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", grpcType)
	request.Header.Set("TE", "trailers")
	answer, err := client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return errors.New(answer.Status)
	}
	err = talk(func(text string) error {
		if _, err := to.Write(messageOf(text)); err != nil {
			return err
		}
		back, err := message(answer.Body)
		if err == nil && string(back[5:]) != text {
			err = fmt.Errorf("the answer to %q is %q", text, back)
		}
		return err
	})
	if err != nil {
		return err
	}
	to.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil {
		return err
	}
	if status := answer.Trailer.Get("Grpc-Status"); status != "0" {
		return fmt.Errorf("the call ended with the status %q", status)
	}
	return nil
}

// lines says lines over one connection, and waits for the answer to each.
func lines(address string, until time.Time, count func()) error {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	in := bufio.NewReader(c)
	for n := 0; time.Now().Before(until); n++ {
		_ = c.SetDeadline(time.Now().Add(patience))
		if _, err := fmt.Fprintln(c, n); err != nil {
			return err
		}
		if line, err := in.ReadString('\n'); err != nil || !strings.HasSuffix(line, fmt.Sprintf(" says %d\n", n)) {
			return fmt.Errorf("the answer to %d is %q, %w", n, line, err)
		}
		count()
		time.Sleep(between)
	}
	return nil
}
