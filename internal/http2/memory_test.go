package http2

import (
	"bytes"
	"io"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/http1"
	"github.com/weirmesh/weir/test/size"
)

// purse is a Memory of a fixed size, or one that refuses at random.
type purse struct {
	mu         sync.Mutex
	left       int
	drawn      int
	refuse     func() bool
	unfinished int
	peak       int
}

func (p *purse) Draw(n int, _ bool) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn+n > p.left || p.refuse != nil && p.refuse() {
		return false
	}
	p.drawn += n
	p.peak = max(p.peak, p.drawn)
	return true
}

func (p *purse) Give(n int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.drawn -= n; p.drawn < 0 {
		panic("more is given back than was drawn")
	}
}

func (p *purse) Unfinished(is bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if is {
		p.unfinished++
	} else {
		p.unfinished--
	}
}

func (p *purse) now() (drawn, unfinished int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.drawn, p.unfinished
}

func (p *purse) empties(t *testing.T) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		drawn, unfinished := p.now()
		if drawn == 0 && unfinished == 0 {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("%d bytes are still drawn, %d blocks unfinished", drawn, unfinished)
		}
	}
}

// An answer that arrived completely, and was dropped before it was read, must not look like a shorter complete one.
func TestAnAnswerThatIsDroppedForMemoryIsNotTakenForWhole(t *testing.T) {
	for _, x := range []struct{ size, left int }{{100, 0}, {40_000, 0}, {200_000, 0}, {200_000, 64 << 10}} {
		size := x.size
		s := serve(t, Config{}, func(s *Stream) {
			s.Answer(&Head{Status: 200, Body: http1.Body{Kind: http1.BodyChunked}}, make([]byte, size), true)
		})
		p := &purse{left: x.left}
		c := open(t, s.addr, Config{Memory: p})
		st, err := c.Open(get("/"), nil, true)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := st.AwaitHead(time.Time{}); err != nil && err != ErrNoMemory {
			t.Fatal(err)
		}
		for c.Streams() > 0 {
			time.Sleep(time.Millisecond) // until it is whole or dropped
		}
		b, err := readAll(st)
		if small := size < inFree; small && (err != nil || len(b) != size) || !small && err != ErrNoMemory {
			t.Errorf("%d bytes: %d were read, %v", size, len(b), err)
		}
		st.Close()
		p.empties(t)
		// The connection continues.
		if st, err = c.Open(get("/"), nil, true); err != nil {
			t.Fatal(err)
		}
		st.Close()
	}
}

// A header block that does not end is drawn for, and gives everything back, whichever way the connection ends.
func TestAnUnfinishedHeaderBlockIsDrawnFor(t *testing.T) {
	for _, evict := range []bool{false, true} {
		p := &purse{left: 1 << 20}
		s := serve(t, Config{Memory: p}, hello)
		r := connect(t, s.addr)
		r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 16<<10)})
		for {
			if drawn, unfinished := p.now(); drawn >= 64<<10 && unfinished == 1 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		if evict {
			s.conns[0].Evict("others need it")
			if code := goAway(t, r); code != http2.ErrCodeEnhanceYourCalm {
				t.Errorf("the peer was told %v", code)
			}
		} else {
			r.Close()
		}
		p.empties(t)
	}
	// Without memory the connection ends.
	p := &purse{}
	s := serve(t, Config{Memory: p}, hello)
	r := connect(t, s.addr)
	r.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: make([]byte, 16<<10)})
	if code := goAway(t, r); code != http2.ErrCodeEnhanceYourCalm {
		t.Errorf("the peer was told %v", code)
	}
	p.empties(t)
}

// connect is a client made of frames.
func connect(t *testing.T, addr string) *raw {
	t.Helper()
	nc := dialRaw(t, addr)
	io.WriteString(nc, Preface)
	r := &raw{Framer: http2.NewFramer(nc, nc), Conn: nc}
	r.AllowIllegalWrites = true
	r.WriteSettings()
	r.WriteSettingsAck()
	return r
}

// goAway is what the server's GOAWAY says.
func goAway(t *testing.T, r *raw) http2.ErrCode {
	t.Helper()
	for {
		f, err := r.ReadFrame()
		if err != nil {
			t.Fatal(err)
		}
		if g, ok := f.(*http2.GoAwayFrame); ok {
			return g.ErrCode
		}
	}
}

// Whatever is refused, a body comes whole or with an error, and in the end nothing is drawn.
func TestNothingIsLostSilentlyNorKeptWhenMemoryIsRefused(t *testing.T) {
	body := make([]byte, 300_000)
	for i := range body {
		body[i] = byte(i * 7)
	}
	for seed := range uint64(size.Of(2, 20)) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		refuse := func() bool { return rnd.IntN(4) == 0 }
		ours, theirs := &purse{left: 2 << 20, refuse: refuse}, &purse{left: 2 << 20, refuse: nil}
		s := serve(t, Config{Memory: theirs}, echo)
		c := open(t, s.addr, Config{Memory: ours})
		var wg sync.WaitGroup
		var mu sync.Mutex
		whole, broken := 0, 0
		for i := range 20 {
			wg.Go(func() {
				n := 1 + (i*37_003)%len(body)
				h := &Head{Method: "POST", Scheme: "http", Authority: "a.example", Path: "/" + strconv.Itoa(i), Body: http1.Body{Kind: http1.BodyChunked},
					Fields: []http1.Field{{Name: "x", Value: string(bytes.Repeat([]byte("v"), i*1000))}}}
				st, err := c.Open(h, nil, false)
				if err != nil {
					return // it ended meanwhile
				}
				defer st.Close()
				sent := make(chan struct{})
				go func() {
					defer close(sent)
					st.Send(body[:n], true)
				}()
				b, err := []byte(nil), error(nil)
				if _, err = st.AwaitHead(time.Now().Add(10 * time.Second)); err == nil {
					b, err = readAll(st)
				}
				st.Abort()
				<-sent
				mu.Lock()
				defer mu.Unlock()
				if err == nil && !bytes.Equal(b, body[:n]) {
					t.Errorf("%d of %d bytes came, without an error", len(b), n)
				}
				if err == nil {
					whole++
				} else {
					broken++
				}
			})
		}
		wg.Wait()
		if seed < 4 {
			ours.empties(t) // though the connection stays
		}
		c.Close()
		ours.empties(t)
		theirs.empties(t)
		t.Logf("%d whole, %d broken off, at most %d drawn", whole, broken, ours.peak)
	}
}

func dialRaw(t *testing.T, addr string) net.Conn {
	t.Helper()
	nc, err := net.Dial("tcp", addr)
	if err != nil {
		t.Fatal(err)
	}
	nc.SetDeadline(time.Now().Add(20 * time.Second))
	t.Cleanup(func() { nc.Close() })
	return nc
}
