package exchange

import (
	"errors"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/weirmesh/weir/internal/http1"
)

// silentClient sends a piece of its body for each value of pieces, and nothing more until it is interrupted.
type silentClient struct {
	Client
	pieces  chan []byte
	stopped chan struct{}
}

func newSilentClient() *silentClient {
	return &silentClient{pieces: make(chan []byte), stopped: make(chan struct{}, 1)}
}

func (c *silentClient) Next() ([]byte, error) {
	select {
	case p := <-c.pieces:
		return p, nil
	case <-c.stopped:
		return nil, FailInterrupted
	}
}

func (c *silentClient) Interrupt() { c.stopped <- struct{}{} }
func (c *silentClient) Resume()    {}

// startSilent begins an exchange that reads its client's body to an error, which it sends.
func startSilent(t *testing.T, p *Pipeline, shard uint32, from string, edit func(*Exchange)) (*silentClient, chan error) {
	t.Helper()
	c, done := newSilentClient(), make(chan error, 1)
	ex := &Exchange{pipe: p, from: Origin{Client: c, Shard: shard, Peer: &Peer{Address: netip.MustParseAddr(from)}}}
	ex.req.Body = http1.Body{Kind: http1.BodyLength, Length: 100}
	if edit != nil {
		edit(ex)
	}
	if err := errors.Join(ex.enter(), ex.claim()); err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			p, err := ex.read()
			if ex.in += int64(len(p)); err != nil {
				ex.leave()
				done <- err
				return
			}
		}
	}()
	synctest.Wait()
	return c, done
}

func TestTheClientThatIsSilentLongestGivesWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := NewPipeline(Options{MaxInFlight: 100}, Around{})
		g := &p.gate
		room := func(want bool) {
			t.Helper()
			time.Sleep(silentPause)
			if got := g.makeRoom(nil); got != want {
				t.Fatalf("room was made: %v, want %v", got, want)
			}
			synctest.Wait()
			if n := g.ending.Load(); n != 0 {
				t.Fatalf("%d exchanges are ending", n)
			}
		}
		ended := func(done chan error, want bool) {
			t.Helper()
			select {
			case err := <-done:
				if err != failSilent || !want {
					t.Fatalf("ended with %v, want an end: %v", err, want)
				}
			default:
				if want {
					t.Fatal("has not ended")
				}
			}
		}
		_, first := startSilent(t, p, 7, "192.0.2.1", nil)
		begun, second := startSilent(t, p, 8, "192.0.2.1", nil)
		begun.pieces <- []byte("x")
		stream, third := startSilent(t, p, 9, "192.0.2.1", func(ex *Exchange) { ex.req.GRPC = true })
		stream.pieces <- []byte("x")
		time.Sleep(silentAge / 2)
		_, fourth := startSilent(t, p, 7, "192.0.2.1", nil)
		room(false) // none is silent long enough
		time.Sleep(silentAge / 2)
		room(true)
		ended(first, true)
		room(false)
		time.Sleep(silentAge)
		room(true)
		ended(fourth, true)
		ended(second, false)
		time.Sleep(pausedAge)
		room(true)
		ended(second, true)
		time.Sleep(time.Hour)
		room(false)
		ended(third, false)

		// Those beyond their client's part go first.
		_, other := startSilent(t, p, 1, "198.51.100.1", nil)
		time.Sleep(time.Minute)
		var crowd []chan error
		for range 60 {
			_, done := startSilent(t, p, 2, "203.0.113.1", nil)
			crowd = append(crowd, done)
		}
		time.Sleep(silentAge)
		room(true)
		ended(other, false)
		ended(crowd[0], true)
		if g.inFlight.Load() != 61 || g.shares.count() != 3 {
			t.Errorf("%d in flight, %d clients", g.inFlight.Load(), g.shares.count())
		}
		for range 61 {
			time.Sleep(pausedAge)
			g.makeRoom(nil)
			synctest.Wait()
		}
		stream.Interrupt()
		synctest.Wait()
		if err := <-third; err != FailInterrupted {
			t.Errorf("the stream ended with %v", err)
		}
		if g.inFlight.Load() != 0 || g.ending.Load() != 0 || g.shares.count() != 0 {
			t.Errorf("%d in flight, %d ending, %d clients are left", g.inFlight.Load(), g.ending.Load(), g.shares.count())
		}
	})
}
