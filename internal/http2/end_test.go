package http2

import (
	"errors"
	"io"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/internal/pace"
)

// pipe is a connection to a server in this process, inside a synctest bubble. Its frames are gathered as they come.
type pipe struct {
	raw
	frames chan *seen
	ended  chan error // of Run
	conn   *Conn
}

// newPipe runs a server, or a client that the test plays the server of, behind a pipe. The test begins with the peer's preface.
func newPipe(cfg Config, h func(*Stream)) *pipe {
	ours, theirs := net.Pipe()
	p := &pipe{raw: raw{Framer: http2.NewFramer(theirs, theirs), Conn: theirs}, frames: make(chan *seen, 1000), ended: make(chan error, 1)}
	if h != nil {
		p.conn = NewServer(ours, cfg, h)
	} else {
		p.conn = NewClient(ours, cfg)
	}
	p.AllowIllegalWrites = true
	go func() { p.ended <- p.conn.Run(nil, false) }()
	go func() {
		defer close(p.frames)
		if h == nil {
			io.ReadFull(theirs, make([]byte, len(Preface)))
		}
		for {
			f, err := p.ReadFrame()
			if err != nil {
				return
			}
			p.frames <- note(f)
		}
	}()
	if h != nil {
		io.WriteString(theirs, Preface)
	}
	return p
}

// seen is a frame that was read.
type seen struct {
	http2.FrameHeader
	code http2.ErrCode
	last uint32
	ping [8]byte
}

func note(f http2.Frame) *seen {
	s := &seen{FrameHeader: f.Header()}
	switch f := f.(type) {
	case *http2.GoAwayFrame:
		s.code, s.last = f.ErrCode, f.LastStreamID
	case *http2.RSTStreamFrame:
		s.code = f.ErrCode
	case *http2.PingFrame:
		s.ping = f.Data
	}
	return s
}

// begin sends settings and acknowledges the others'.
func (p *pipe) begin(settings ...http2.Setting) {
	p.WriteSettings(settings...)
	p.WriteSettingsAck()
}

// next is the next frame of the type; nil if the connection ended before.
func (p *pipe) next(kind http2.FrameType) *seen {
	for f := range p.frames {
		if f.Type == kind {
			return f
		}
	}
	return nil
}

// end closes the peer's side and gives what Run returned.
func (p *pipe) end() error {
	p.Conn.Close()
	for range p.frames {
	}
	return <-p.ended
}

func TestShutdownTellsTwiceAndServesWhatWasOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := newPipe(Config{}, func(s *Stream) {
			<-release
			hello(s)
		})
		p.begin()
		block := blockOf(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a")
		p.headers(1, true, block)
		synctest.Wait()
		p.conn.Shutdown()
		first := p.next(http2.FrameGoAway)
		if first.last != 1<<31-1 || first.code != http2.ErrCodeNo {
			t.Errorf("%v", first)
		}
		ping := p.next(http2.FramePing)
		p.headers(3, true, block) // was under way
		p.WritePing(true, ping.ping)
		if second := p.next(http2.FrameGoAway); second.last != 3 || second.code != http2.ErrCodeNo {
			t.Errorf("%v", second)
		}
		p.headers(5, true, block) // came too late: ignored
		synctest.Wait()
		close(release)
		for range 2 {
			if h := p.next(http2.FrameHeaders); h == nil || h.StreamID == 5 {
				t.Errorf("%v", h)
			}
		}
		if err := <-p.ended; !errors.As(err, new(*ConnError)) {
			t.Errorf("%v", err)
		}
		p.Conn.Close()
		for f := range p.frames {
			if f.Type != http2.FrameData {
				t.Errorf("%v", f)
			}
		}
	})
}

func TestShutdownDoesNotWaitForASilentPeer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(Config{}, hello)
		p.begin()
		synctest.Wait()
		p.conn.Shutdown()
		p.next(http2.FrameGoAway)
		if g := p.next(http2.FrameGoAway); g == nil {
			t.Error("no second GOAWAY")
		}
		p.end()
	})
}

func TestSilentPeersAreAskedAndEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		block := make(chan struct{})
		p := newPipe(Config{PingAfter: 20 * time.Second, PingTimeout: 5 * time.Second}, func(s *Stream) { <-block })
		p.begin()
		p.headers(1, true, blockOf(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a"))
		start := time.Now()
		ping := p.next(http2.FramePing)
		if d := time.Since(start); d < 19*time.Second || d > 22*time.Second {
			t.Errorf("asked after %v", d)
		}
		p.WritePing(true, ping.ping)
		start = time.Now()
		p.next(http2.FramePing)
		if p.next(http2.FrameGoAway) != nil {
			t.Error("GOAWAY for one who is not there")
		}
		if d := time.Since(start); d < 24*time.Second || d > 28*time.Second {
			t.Errorf("ended after %v", d)
		}
		close(block)
		if err := p.end(); !errors.Is(err, ErrTimeout) {
			t.Errorf("%v", err)
		}
	})
}

func TestIdleConnectionsEndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(Config{IdleTimeout: time.Minute}, hello)
		p.begin()
		block := blockOf(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a")
		for id := uint32(1); id < 10; id += 2 {
			time.Sleep(50 * time.Second) // not idle for long enough
			p.headers(id, true, block)
			if p.next(http2.FrameHeaders) == nil {
				t.Fatal("ended")
			}
		}
		start := time.Now()
		if g := p.next(http2.FrameGoAway); g == nil || g.code != http2.ErrCodeNo || g.last != 9 {
			t.Errorf("%v", g)
		}
		if d := time.Since(start); d < 59*time.Second || d > 63*time.Second {
			t.Errorf("ended after %v", d)
		}
		p.end()
	})
}

func TestSendingGivesUpWhenNoWindowComes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		result := make(chan error, 1)
		p := newPipe(Config{StallTimeout: 30 * time.Second, PingAfter: -1}, func(s *Stream) {
			result <- s.Answer(&Head{Status: 200, Body: http1.Body{Kind: http1.BodyChunked}}, make([]byte, 100), true)
		})
		p.begin(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 50})
		p.headers(1, true, blockOf(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a"))
		time.Sleep(20 * time.Second)
		p.WriteWindowUpdate(1, 20) // it goes on: the time begins anew
		time.Sleep(20 * time.Second)
		select {
		case err := <-result:
			t.Errorf("gave up early: %v", err)
		default:
		}
		if err := <-result; err != ErrTimeout {
			t.Errorf("%v", err)
		}
		if f := p.next(http2.FrameRSTStream); f == nil {
			t.Error("the stream was not reset")
		}
		p.end()
	})
}

func TestSendingGivesUpOnPeersThatAreTooSlow(t *testing.T) {
	for _, patient := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			result := make(chan error, 1)
			p := newPipe(Config{Pace: pace.Rule{Rate: 100, Grace: 10 * time.Second}, PingAfter: -1}, func(s *Stream) {
				if patient {
					s.Patient()
				}
				result <- s.Answer(&Head{Status: 200, Body: http1.Body{Kind: http1.BodyChunked}}, make([]byte, 5000), true)
			})
			p.begin(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0})
			p.headers(1, true, blockOf(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a"))
			for range 10 { // fast enough
				time.Sleep(5 * time.Second)
				p.WriteWindowUpdate(1, 400)
			}
			for range 10 { // too slow
				time.Sleep(5 * time.Second)
				p.WriteWindowUpdate(1, 100)
			}
			if err := <-result; patient != (err == nil) {
				t.Errorf("patient %t: %v", patient, err)
			}
			p.end()
		})
	}
}

func TestClientLearnsWhatWasNotProcessed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPipe(Config{}, nil)
		if n := p.conn.Available(); n != 0 {
			t.Errorf("%d streams before the settings", n)
		}
		p.begin(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 3})
		awaitSettings(t, p.conn)
		var all []*Stream
		for range 3 {
			s, err := p.conn.Open(get("/"), nil, true)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, s)
		}
		if _, err := p.conn.Open(get("/"), nil, true); err != ErrUnavailable || !Unprocessed(err) {
			t.Errorf("a fourth stream: %v", err)
		}
		p.WriteRSTStream(all[1].ID(), http2.ErrCodeRefusedStream)
		if _, err := all[1].AwaitHead(time.Time{}); !Unprocessed(err) {
			t.Errorf("refused: %v", err)
		}
		p.WriteGoAway(all[0].ID(), http2.ErrCodeNo, nil)
		if _, err := all[2].AwaitHead(time.Time{}); !Unprocessed(err) {
			t.Errorf("above GOAWAY's last stream: %v", err)
		}
		if _, err := p.conn.Open(get("/"), nil, true); err == nil || !Unprocessed(err) || p.conn.Available() != 0 {
			t.Errorf("behind GOAWAY: %v", err)
		}
		// The first stream continues.
		p.headers(1, false, blockOf(":status", "103", "link", "x"))
		if h, err := all[0].AwaitHead(time.Time{}); err != nil || h.Status != 103 {
			t.Errorf("%v, %v", h, err)
		}
		if _, err := all[0].AwaitHead(time.Now().Add(5 * time.Second)); err != ErrTimeout {
			t.Errorf("%v", err)
		}
		p.headers(1, false, blockOf(":status", "200", "content-length", "5"))
		p.WriteData(1, true, []byte("hello"))
		h, err := all[0].AwaitHead(time.Time{})
		if err != nil || h.Status != 200 || h.Body != (http1.Body{Kind: http1.BodyLength, Length: 5}) {
			t.Errorf("%+v, %v", h, err)
		}
		if b, err := readAll(all[0]); string(b) != "hello" || err != nil {
			t.Errorf("%q, %v", b, err)
		}
		for _, s := range all {
			s.Close()
		}
		if err := <-p.ended; err == nil {
			t.Error("no reason for the end")
		}
		p.Conn.Close()
		for range p.frames {
		}
	})
}

func TestAnswersThatCannotBeEndTheirStreamAlone(t *testing.T) {
	for name, write := range map[string]func(*pipe){
		"invalid :status":       func(p *pipe) { p.headers(1, true, blockOf("a", "b")) },
		"connection-specific":   func(p *pipe) { p.headers(1, true, blockOf(":status", "200", "transfer-encoding", "chunked")) },
		"an interim answer end": func(p *pipe) { p.headers(1, true, blockOf(":status", "103")) },
		"switching protocols":   func(p *pipe) { p.headers(1, false, blockOf(":status", "101")) },
		"DATA before the head":  func(p *pipe) { p.WriteData(1, false, []byte("x")) },
		"body is shorter":       func(p *pipe) { p.headers(1, true, blockOf(":status", "200", "content-length", "3")) },
		"body is longer": func(p *pipe) {
			p.headers(1, false, blockOf(":status", "200", "content-length", "3"))
			p.WriteData(1, true, []byte("1234"))
		},
		"a body behind 204": func(p *pipe) {
			p.headers(1, false, blockOf(":status", "204"))
			p.WriteData(1, true, []byte("1"))
		},
		"LF in a field": func(p *pipe) { p.headers(1, true, blockOf(":status", "200", "a", "b\nc: d")) },
		"too many 1xx responses": func(p *pipe) {
			for range maxInterim + 1 {
				p.headers(1, false, blockOf(":status", "103"))
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := newPipe(Config{}, nil)
				p.begin()
				awaitSettings(t, p.conn)
				s, err := p.conn.Open(get("/"), nil, true)
				if err != nil {
					t.Fatal(err)
				}
				go write(p)
				for err == nil {
					if _, err = s.AwaitHead(time.Time{}); err == nil {
						_, err = s.Next(time.Now().Add(time.Millisecond))
						if err == ErrTimeout {
							err = nil
						}
					}
				}
				var se *StreamError
				if !errors.As(err, &se) || se.Remote || Unprocessed(err) {
					t.Errorf("%v", err)
				}
				s.Close()
				if p.conn.Err() != nil {
					t.Errorf("the connection ended: %v", p.conn.Err())
				}
				p.conn.Close()
				p.end()
			})
		})
	}
}

func TestWatchersHearOfTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		told := make(chan bool, 3)
		p := newPipe(Config{}, func(s *Stream) {
			heard := aborter(make(chan struct{}))
			s.Watch(heard)
			if s.ID() == 1 {
				told <- s.Unwatch()
				return
			}
			<-heard
			told <- s.Unwatch()
		})
		p.begin()
		block := blockOf(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a")
		p.headers(1, true, block)
		if !<-told {
			t.Error("gone before anything happened")
		}
		p.headers(3, true, block)
		p.headers(5, true, block)
		synctest.Wait()
		p.WriteRSTStream(3, http2.ErrCodeCancel)
		if <-told {
			t.Error("the reset was not noticed")
		}
		p.end()
		if <-told {
			t.Error("the connection's end was not noticed")
		}
	})
}

type aborter chan struct{}

func (a aborter) Abort() { close(a) }

func TestStreamsBeyondTheMostAreRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		p := newPipe(Config{MaxStreams: 2}, func(s *Stream) {
			<-release
			hello(s)
		})
		p.begin()
		block := blockOf(":method", "GET", ":scheme", "http", ":path", "/", ":authority", "a")
		for id := uint32(1); id <= 5; id += 2 {
			p.headers(id, true, block)
		}
		if f := p.next(http2.FrameRSTStream); f.StreamID != 5 || f.code != http2.ErrCodeRefusedStream {
			t.Errorf("%v", f)
		}
		// A stream that is reset keeps its place as long as its handler runs.
		p.WriteRSTStream(1, http2.ErrCodeCancel)
		p.headers(7, true, block)
		if f := p.next(http2.FrameRSTStream); f.StreamID != 7 || f.code != http2.ErrCodeRefusedStream {
			t.Errorf("%v", f)
		}
		close(release)
		synctest.Wait()
		p.headers(9, true, block)
		for {
			if f := p.next(http2.FrameHeaders); f == nil || f.StreamID == 9 {
				break
			}
		}
		p.end()
	})
}
