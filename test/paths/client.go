package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// patience is how long any step may take before it counts as failed.
const patience = 20 * time.Second

// client asks for targets as they are written.
type client struct {
	address string
	// host is "localhost" if empty.
	host string
	conn net.Conn
	in   *bufio.Reader
}

// answer is what a server says of a target: reads is "admin" or "other", by its own field; empty if it did not serve it.
type answer struct {
	status int
	reads  string
}

// cell says it in the table: "yes" if the path is read as one of /admin, "no" if as another, else the status.
func (a answer) cell() string {
	switch {
	case a.status >= 300 && a.status < 400:
		return fmt.Sprint(a.status)
	case a.reads == "admin":
		return "yes"
	case a.reads == "other":
		return "no"
	}
	return fmt.Sprint(a.status)
}

func (c *client) close() {
	if c.conn != nil {
		c.conn.Close()
		c.conn = nil
	}
}

// get asks over a connection that is kept as long as the server likes, and once more over a new one if that had ended.
func (c *client) get(target string) (a answer, err error) {
	for range 2 {
		kept := c.conn != nil
		if a, err = c.try(target); err == nil || !kept {
			return a, err
		}
	}
	return a, err
}

func (c *client) try(target string) (answer, error) {
	if c.conn == nil {
		conn, err := net.DialTimeout("tcp", c.address, patience)
		if err != nil {
			return answer{}, err
		}
		c.conn, c.in = conn, bufio.NewReader(conn)
	}
	_ = c.conn.SetDeadline(time.Now().Add(patience))
	_, err := fmt.Fprintf(c.conn, "GET %s HTTP/1.1\r\nHost: %s\r\n\r\n", target, cmp.Or(c.host, "localhost"))
	if err != nil {
		c.close()
		return answer{}, err
	}
	r, err := http.ReadResponse(c.in, nil)
	if err != nil {
		c.close()
		return answer{}, err
	}
	_, err = io.Copy(io.Discard, r.Body)
	if err != nil || r.Close {
		c.close()
	}
	a := answer{r.StatusCode, r.Header.Get("X-Reads")}
	switch { // of Apache httpd, whose rules can only say it so
	case a.status == http.StatusGone:
		a.reads = "admin"
	case a.status == http.StatusNotAcceptable:
		a.reads = "other"
	}
	return a, nil
}
