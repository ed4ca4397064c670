package feed

import (
	"errors"
	"io"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

func TestProxyComesBackSoonAndNotAllAtOnce(t *testing.T) {
	away := status.Error(codes.Unavailable, "connection refused")
	refused := status.Error(codes.Unauthenticated, "the token is not good")
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		errs []error
		last time.Duration // the longest pause after the last of them
	}{
		"the first":                 {[]error{away}, 100 * ms},
		"the stream ended":          {[]error{io.EOF}, 100 * ms},
		"it doubles":                {[]error{away, away, away}, 400 * ms},
		"it is bounded":             {[]error{away, away, away, away, away, away, away, away}, 2 * time.Second},
		"no file":                   {[]error{errors.New("CA: no such file"), away}, 200 * ms},
		"refused, longer":           {[]error{refused, refused, refused, refused, refused, refused, refused, refused}, 10 * time.Second},
		"at first as if not":        {[]error{refused, refused}, 200 * ms},
		"refused, then not reached": {[]error{refused, refused, refused, refused, refused, refused, refused, refused, away}, 2 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			seen := map[time.Duration]bool{}
			for range 50 {
				var p pauses
				var pause time.Duration
				for _, err := range c.errs {
					pause = p.next(err)
				}
				if pause < c.last/2 || pause > c.last {
					t.Errorf("%v, want %v to %v", pause, c.last/2, c.last)
				}
				seen[pause] = true
				p.reset()
				if pause := p.next(away); pause > firstDelay {
					t.Errorf("%v after a good connection", pause)
				}
			}
			if len(seen) < 10 {
				t.Errorf("%d different pauses of 50: proxies come at once", len(seen))
			}
		})
	}
}

func TestConnectTriesWhatTheNameStandsFor(t *testing.T) {
	w := newWorld(t)
	address, stop := w.serve(w.server(), "")
	conn, err := connect(t.Context(), address)
	if err != nil {
		t.Fatal(err)
	}
	conn.Close()
	stop()
	for _, address := range []string{address, "127.0.0.1", "no host:1", ""} {
		if conn, err := connect(t.Context(), address); err == nil {
			conn.Close()
			t.Errorf("%q: connected", address)
		}
	}
}
