// Command inpod is the two ends of package access for pods.
//
//	inpod serve            records what comes to :8080 and :8082 until it is told to end; :8090 tells what of it should not have come
//	inpod attack ADDRESS   sends all ways to an address
//	inpod get URL          prints the status and the body of an answer
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/weirmesh/weir/test/access"
)

func main() {
	switch {
	case len(os.Args) == 2 && os.Args[1] == "serve":
		if err := serve(); err != nil {
			fmt.Println("error", err)
			os.Exit(1)
		}
	case len(os.Args) == 3 && os.Args[1] == "attack":
		sent, failed := access.Attack(os.Args[2])
		for _, f := range failed {
			fmt.Println("failed", f)
		}
		fmt.Println("sent", sent)
	case len(os.Args) == 3 && os.Args[1] == "get":
		answer, err := (&http.Client{Timeout: time.Minute}).Get(os.Args[2])
		if err != nil {
			fmt.Println("error", err)
			return
		}
		defer answer.Body.Close()
		body, _ := io.ReadAll(answer.Body)
		fmt.Printf("%d %s\n", answer.StatusCode, body)
	default:
		fmt.Println("error unknown arguments", os.Args[1:])
		os.Exit(1)
	}
}

func serve() error {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	var all []*access.Recorder
	for _, at := range []string{":8080", ":8082"} {
		l, err := net.Listen("tcp", at)
		if err != nil {
			return err
		}
		r := access.Record(l)
		defer r.Stop()
		all = append(all, r)
	}
	told := &http.Server{Addr: "127.0.0.1:8090", ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		sum := 0
		for _, r := range all {
			reached, wrong := r.Judge()
			for _, what := range wrong {
				fmt.Fprintln(w, "wrong", what)
			}
			sum += reached
		}
		fmt.Fprintln(w, "reached", sum)
	})}
	failed := make(chan error, 1)
	go func() { failed <- told.ListenAndServe() }()
	select {
	case err := <-failed:
		return err
	case <-ctx.Done():
		return told.Close()
	}
}
