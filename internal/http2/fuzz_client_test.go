package http2

import (
	"bytes"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"golang.org/x/net/http2"

	"github.com/weirmesh/weir/internal/http1"
)

// FuzzClientConn sends any frames to a client with open streams, after a valid beginning. The client must end with its
// peer, and so must all waiting goroutines; its results must be valid in HTTP/1.1.
func FuzzClientConn(f *testing.F) {
	seed := func(write func(*http2.Framer)) {
		var b bytes.Buffer
		write(http2.NewFramer(&b, nil))
		f.Add(b.Bytes())
	}
	answer := blockOf(":status", "200", "content-type", "application/grpc")
	seed(func(w *http2.Framer) {
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: blockOf(":status", "103", "link", "</a>"), EndHeaders: true})
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: answer, EndHeaders: true})
		w.WriteData(1, false, []byte("hello"))
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: blockOf("grpc-status", "0"), EndHeaders: true, EndStream: true})
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: blockOf(":status", "204"), EndHeaders: true, EndStream: true})
	})
	seed(func(w *http2.Framer) {
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: blockOf(":status", "200", "content-length", "5"), EndHeaders: true})
		w.WriteDataPadded(3, true, []byte("hello"), make([]byte, 5))
		w.WriteRSTStream(1, http2.ErrCodeRefusedStream)
		w.WriteGoAway(3, http2.ErrCodeNo, nil)
	})
	seed(func(w *http2.Framer) {
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 5, BlockFragment: answer[:3]})
		w.WriteContinuation(5, true, answer[3:])
		w.WriteRSTStream(5, http2.ErrCodeNo)
		w.WriteWindowUpdate(1, 1<<20)
		w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 0}, http2.Setting{ID: http2.SettingMaxConcurrentStreams})
		w.WritePing(false, [8]byte{})
		w.WritePushPromise(http2.PushPromiseParam{StreamID: 1, PromiseID: 2, BlockFragment: answer, EndHeaders: true})
	})
	f.Fuzz(func(t *testing.T, frames []byte) {
		if len(frames) > 1<<16 {
			return
		}
		ours, theirs := net.Pipe()
		c := NewClient(ours, Config{StallTimeout: 10 * time.Second})
		ended := make(chan error, 1)
		go func() { ended <- c.Run(nil, false) }()
		swallowed := make(chan struct{})
		go func() {
			defer close(swallowed)
			io.Copy(io.Discard, theirs)
		}()
		http2.NewFramer(theirs, nil).WriteSettings()
		awaitSettings(t, c)
		var wg sync.WaitGroup
		for _, h := range []*Head{
			{Method: "GET", Scheme: "http", Authority: "a", Path: "/"},
			{Method: "HEAD", Scheme: "http", Authority: "a", Path: "/"},
			{Method: "POST", Scheme: "http", Authority: "a", Path: "/", Body: http1.Body{Kind: http1.BodyChunked}},
		} {
			s, _, err := c.Begin(h, nil, h.Method != "POST", time.Time{})
			if err != nil {
				t.Fatal(err)
			}
			wg.Go(func() {
				defer s.Close()
				if h.Method == "POST" && s.Send(make([]byte, 100<<10), true) != nil {
					return
				}
				receive(t, s)
			})
		}
		theirs.Write(frames)
		theirs.Close()
		<-swallowed
		if err := <-ended; err == nil {
			t.Error("no reason for the end")
		}
		wg.Wait()
		if n := c.Streams(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
		if c.Available() != 0 {
			t.Error("it takes more streams")
		}
	})
}

// receive reads an answer to its end and checks that it can be passed on.
func receive(t *testing.T, s *Stream) {
	check := func(fields []http1.Field) {
		for _, f := range fields {
			if !http1.ValidFieldName(f.Name) || !http1.ValidFieldValue(f.Value) || f.ID.HopByHop() && f.ID != http1.FieldTE {
				t.Errorf("field %q: %q", f.Name, f.Value)
			}
		}
	}
	var body http1.Body
	for final := false; !final; {
		h, err := s.AwaitHead(time.Time{})
		if err != nil {
			return
		}
		if h.Status < 100 || h.Status > 999 || h.Status == 101 {
			t.Errorf("status %d", h.Status)
		}
		check(h.Fields)
		final, body = h.Status >= 200, h.Body
	}
	n := int64(0)
	for {
		p, err := s.Next(time.Time{})
		if n += int64(len(p)); err == nil {
			continue
		}
		if err == io.EOF {
			check(s.Trailers())
			if body.Kind == http1.BodyLength && n != body.Length || body.Kind == http1.BodyNone && n != 0 {
				t.Errorf("%d bytes of a body %+v", n, body)
			}
		}
		return
	}
}
