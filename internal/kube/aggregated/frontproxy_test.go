package aggregated

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestKeepsUpWithTheAPIServer: before it is known nobody is served; what it says last holds while it cannot be read; and
// if it sends nobody on, nobody is served.
func TestKeepsUpWithTheAPIServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first, second := newAuthority(t), newAuthority(t)
		s := &apiServer{err: errors.New("it begins")}
		var log strings.Builder
		a := &API{Client: s, Logger: slog.New(slog.NewTextHandler(&log, nil))}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- a.Run(ctx) }()
		by := func(of *authority) int {
			synctest.Wait()
			return ask(a, "/x", of.issue("front-proxy-client", nil), "").Code
		}
		if code := by(first); code != 503 || a.Ready() {
			t.Errorf("at first: %d", code)
		}
		time.Sleep(100 * time.Millisecond)
		s.set(func(s *apiServer) { s.err, s.data = nil, first.config() })
		time.Sleep(retry)
		if code := by(first); code != 401 || !a.Ready() { // the user is missing
			t.Errorf("known: %d", code)
		}
		served := func(of *authority) bool {
			synctest.Wait()
			p := a.proxy.Load()
			return p != nil && p.data["requestheader-client-ca-file"] == of.config()["requestheader-client-ca-file"]
		}
		s.set(func(s *apiServer) { s.err = errors.New("it is away") })
		time.Sleep(10 * look)
		if !served(first) {
			t.Error("forgotten while it is away")
		}
		s.set(func(s *apiServer) { s.err, s.data = nil, second.config() })
		time.Sleep(look)
		if !served(second) {
			t.Error("the next authority is not taken")
		}
		before := a.proxy.Load()
		time.Sleep(10 * look)
		if a.proxy.Load() != before {
			t.Error("read anew without a change")
		}
		s.set(func(s *apiServer) { s.data = map[string]string{"client-ca-file": "x"} })
		time.Sleep(look)
		if synctest.Wait(); a.Ready() {
			t.Error("still served without its authority")
		}
		s.set(func(s *apiServer) { s.data = second.config() })
		time.Sleep(look)
		s.set(func(s *apiServer) { s.data = nil })
		time.Sleep(look)
		if synctest.Wait(); a.Ready() {
			t.Error("still served without the ConfigMap")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for text, n := range map[string]int{"it begins": 1, "it is away": 1, "--requestheader-client-ca-file": 1, "not found": 1} {
			if got := strings.Count(log.String(), text); got != n {
				t.Errorf("%q is logged %d times:\n%s", text, got, &log)
			}
		}
	})
}

func TestConfigMapsThatAreOfNoUse(t *testing.T) {
	good := newAuthority(t).config()
	for want, edit := range map[string]func(map[string]string){
		"requestheader-client-ca-file: is missing":         func(m map[string]string) { delete(m, "requestheader-client-ca-file") },
		"requestheader-client-ca-file: has no certificate": func(m map[string]string) { m["requestheader-client-ca-file"] = "x" },
		"requestheader-username-headers: ":                 func(m map[string]string) { m["requestheader-username-headers"] = "X-Remote-User" },
		"requestheader-allowed-names: ":                    func(m map[string]string) { m["requestheader-allowed-names"] = "[1]" },
	} {
		m := maps.Clone(good)
		edit(m)
		if p, err := newFrontProxy(m); p != nil || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	for _, key := range []string{"requestheader-uid-headers", "requestheader-allowed-names"} { // older API servers say nothing of the first
		m := maps.Clone(good)
		delete(m, key)
		if _, err := newFrontProxy(m); err != nil {
			t.Errorf("without %s: %v", key, err)
		}
	}
}

// FuzzFrontProxy: whatever the ConfigMap has, it is read or an error.
func FuzzFrontProxy(f *testing.F) {
	good := newAuthority(f).config()
	f.Add(good["requestheader-client-ca-file"], `["a"]`, `["X-Remote-User"]`)
	f.Add("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", `[`, `null`)
	f.Fuzz(func(t *testing.T, ca, names, users string) {
		m := maps.Clone(good)
		m["requestheader-client-ca-file"], m["requestheader-allowed-names"], m["requestheader-username-headers"] = ca, names, users
		if p, err := newFrontProxy(m); (p == nil) != (err != nil) {
			t.Errorf("%v, %v", p, err)
		}
	})
}
