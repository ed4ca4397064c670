// Command caller is what tests run in pods: services of several protocols, and a client to execute beside them.
//
//	caller serve NAME        HTTP at :8080, a greeting at :9000, lines back at :9001; until it is told to end
//	caller get URL [N]       N requests, one connection each; prints a line for each: the status and the body, or "error ..."
//	caller say ADDRESS TEXT  what a server says at a connection, after the text unless that is empty, up to the end of a line
package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const patience = 10 * time.Second

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Println("error", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 2 && args[0] == "serve":
		return serve(args[1])
	case len(args) >= 2 && args[0] == "get":
		n := 1
		if len(args) > 2 {
			n, _ = strconv.Atoi(args[2])
		}
		return get(args[1], n)
	case len(args) == 3 && args[0] == "say":
		return say(args[1], args[2])
	}
	return fmt.Errorf("unknown arguments %q", args)
}

func serve(name string) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	failed := make(chan error, 3)
	for address, answer := range map[string]func(net.Conn){
		":9000": func(c net.Conn) {
			fmt.Fprintf(c, "hello from %s\n", name)
			io.Copy(io.Discard, c)
		},
		":9001": func(c net.Conn) {
			for lines := bufio.NewScanner(c); lines.Scan(); {
				fmt.Fprintf(c, "%s says %s\n", name, lines.Text())
			}
		},
	} {
		l, err := net.Listen("tcp", address)
		if err != nil {
			return err
		}
		go func() {
			for {
				c, err := l.Accept()
				if err != nil {
					failed <- err
					return
				}
				go func() { defer c.Close(); answer(c) }()
			}
		}()
	}
	web := &http.Server{Addr: ":8080", ReadHeaderTimeout: patience, Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		fmt.Fprintf(w, "%s %s", name, strings.Join(r.Header["X-Forwarded-For"], ","))
	})}
	go func() { failed <- web.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		ctx, stop := context.WithTimeout(context.Background(), patience)
		defer stop()
		return web.Shutdown(ctx)
	}
}

func get(url string, n int) error {
	client := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	for range n {
		answer, err := client.Get(url)
		if err != nil {
			fmt.Println("error", err)
			continue
		}
		body, err := io.ReadAll(answer.Body)
		answer.Body.Close()
		if err != nil {
			fmt.Println("error", err)
			continue
		}
		fmt.Println(answer.StatusCode, strings.TrimSpace(string(body)))
	}
	return nil
}

func say(address, text string) error {
	c, err := net.DialTimeout("tcp", address, patience)
	if err != nil {
		return err
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(patience))
	if text != "" {
		if _, err := fmt.Fprintln(c, text); err != nil {
			return err
		}
	}
	line, err := bufio.NewReader(c).ReadString('\n')
	fmt.Print(line)
	return err
}
