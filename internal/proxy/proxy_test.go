package proxy

import (
	"fmt"
	"io"
	"net/http"
	"testing"
)

func TestRequestIsForwardedAndAnswered(t *testing.T) {
	addr := backend(t, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("X-Path", r.RequestURI)
		fmt.Fprintf(w, "hello %s %s", r.Host, r.Header.Get("X-Forwarded-For"))
	})
	s := serve(t, plain(addr))
	c := newClient(t)
	for range 3 {
		resp, err := c.Get("http://" + s.addr() + "/a//b%41?x=1&&y")
		if err != nil {
			t.Fatal(err)
		}
		body, err := io.ReadAll(resp.Body)
		resp.Body.Close()
		if err != nil || resp.StatusCode != 200 {
			t.Fatalf("status %d, error %v", resp.StatusCode, err)
		}
		if want := "hello " + s.addr() + " 127.0.0.1"; string(body) != want {
			t.Errorf("body %q, want %q", body, want)
		}
		if got := resp.Header.Get("X-Path"); got != "/a//b%41?x=1&&y" {
			t.Errorf("path %q", got)
		}
	}
}
