// Command caller is what tests run in pods: services of several protocols, and a client to execute beside them.
//
//	caller serve NAME [LAG]  HTTP at :8080, a greeting at :9000, lines back at :9001, HTTP/2 and gRPC at :9002; until LAG after it
//	                         is told to end, a duration; 3s if it is left out. /counted is how many requests were for /count
//	caller get URL [N]       N requests, one connection each; prints a line for each: the status and the body, or "error ..."
//	caller load URL          requests from four clients that keep their connections, each every 10 ms, GET and POST in turn, until its
//	                         input ends; prints how many were answered by whom, and those that failed
//	caller record URL SECONDS   requests one after the other, 5 ms apart, GET and POST in turn and every other pair over a connection of its
//	                         own; prints for each when it began, in milliseconds since 1970, and the status and body
//	caller steady HOST SECONDS  requests and connections of every protocol, long ones among them; prints how many were answered of
//	                         each, and those that failed
//	caller press HOST        requests, streams and connections of every kind until it is killed, each kind by one client that tries
//	                         nothing again; :9100 reports what became of them, as JSON, since it was last asked
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
	"sync"
	"sync/atomic"
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
	case (len(args) == 2 || len(args) == 3) && args[0] == "serve":
		lag := 3 * time.Second
		if len(args) == 3 {
			var err error
			if lag, err = time.ParseDuration(args[2]); err != nil {
				return err
			}
		}
		return serve(args[1], lag)
	case len(args) >= 2 && args[0] == "get":
		n := 1
		if len(args) > 2 {
			n, _ = strconv.Atoi(args[2])
		}
		return get(args[1], n)
	case len(args) == 3 && (args[0] == "steady" || args[0] == "record"):
		seconds, err := strconv.Atoi(args[2])
		if err != nil {
			return err
		}
		map[string]func(string, time.Duration){"steady": steady, "record": record}[args[0]](args[1], time.Duration(seconds)*time.Second)
		return nil
	case len(args) == 2 && args[0] == "load":
		load(args[1])
		return nil
	case len(args) == 2 && args[0] == "press":
		return press(args[1])
	case len(args) == 3 && args[0] == "say":
		return say(args[1], args[2])
	}
	return fmt.Errorf("unknown arguments %q", args)
}

func serve(name string, lag time.Duration) error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	failed := make(chan error, 4)
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
	var counted atomic.Int64
	web := &http.Server{Addr: ":8080", ReadHeaderTimeout: patience, Protocols: protocols(true), Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch {
		case r.URL.Path == "/counted":
			fmt.Fprint(w, counted.Load())
			return
		case r.URL.Path == "/count":
			counted.Add(1)
		case r.URL.Path == "/ws":
			upgraded(w)
			return
		case r.URL.Path == "/take":
			time.Sleep(takes)
		case r.Header.Get("Content-Type") == grpcType:
			if strings.HasSuffix(r.URL.Path, "/Once") {
				time.Sleep(takes)
			}
			echo(w, r)
			return
		}
		fmt.Fprintf(w, "%s %s", name, strings.Join(r.Header["X-Forwarded-For"], ","))
	})}
	go func() { failed <- web.ListenAndServe() }()
	second, err := net.Listen("tcp", ":9002")
	if err != nil {
		return err
	}
	go func() { failed <- web.Serve(second) }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		time.Sleep(lag) // others still take the pod for an endpoint
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

// send sends a GET or a POST, and returns the status and body, with the method of a POST that failed.
func send(client *http.Client, post bool, url string) string {
	failed := ""
	answer, err := (*http.Response)(nil), error(nil)
	if post {
		failed = "POST "
		answer, err = client.Post(url, "text/plain", strings.NewReader(url))
	} else {
		answer, err = client.Get(url)
	}
	if err != nil {
		return failed + "error " + err.Error()
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	what := fmt.Sprint(answer.StatusCode, " ", strings.TrimSpace(string(body)))
	switch {
	case err != nil:
		return failed + "error " + err.Error()
	case answer.StatusCode != http.StatusOK:
		return failed + what
	}
	return what
}

func load(url string) {
	var mu sync.Mutex
	counts := map[string]int{}
	var all sync.WaitGroup
	var ended atomic.Bool
	for range 4 {
		all.Go(func() {
			client := &http.Client{Timeout: patience, Transport: &http.Transport{}}
			for post := false; !ended.Load(); post = !post {
				what := send(client, post, url)
				mu.Lock()
				counts[what]++
				mu.Unlock()
				time.Sleep(10 * time.Millisecond)
			}
		})
	}
	_, _ = io.Copy(io.Discard, os.Stdin)
	ended.Store(true)
	all.Wait()
	for what, n := range counts {
		fmt.Println(n, what)
	}
}

// record sends requests in an order that is that of its lines.
func record(url string, d time.Duration) {
	kept := &http.Client{Timeout: patience, Transport: &http.Transport{}}
	fresh := &http.Client{Timeout: patience, Transport: &http.Transport{DisableKeepAlives: true}}
	out := bufio.NewWriter(os.Stdout)
	defer out.Flush()
	until := time.Now().Add(d)
	for n := 0; time.Now().Before(until); n++ {
		client := kept
		if n%4 > 1 {
			client = fresh
		}
		began := time.Now()
		fmt.Fprintln(out, began.UnixMilli(), send(client, n%2 == 1, url))
		time.Sleep(between / 2)
	}
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
