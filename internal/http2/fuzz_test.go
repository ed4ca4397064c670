package http2

import (
	"bytes"
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
)

// FuzzServerConn gives a server any frames behind a good beginning. It must end with its peer, its handlers with it.
func FuzzServerConn(f *testing.F) {
	seed := func(write func(*http2.Framer)) {
		var b bytes.Buffer
		write(http2.NewFramer(&b, nil))
		f.Add(b.Bytes())
	}
	request := blockOf(":method", "POST", ":scheme", "http", ":path", "/", ":authority", "a")
	seed(func(w *http2.Framer) {
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: request, EndHeaders: true})
		w.WriteData(1, false, []byte("hello"))
		w.WriteWindowUpdate(1, 100)
		w.WriteData(1, true, []byte("hello"))
	})
	seed(func(w *http2.Framer) {
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 3, BlockFragment: request[:5]})
		w.WriteContinuation(3, true, request[5:])
		w.WriteRSTStream(3, http2.ErrCodeCancel)
		w.WritePing(false, [8]byte{})
		w.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: 1}, http2.Setting{ID: http2.SettingHeaderTableSize})
		w.WritePriority(5, http2.PriorityParam{StreamDep: 3})
		w.WriteGoAway(0, http2.ErrCodeNo, nil)
	})
	seed(func(w *http2.Framer) {
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: request, EndHeaders: true})
		w.WriteDataPadded(1, false, []byte("x"), make([]byte, 5))
		w.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: blockOf("a", "b"), EndHeaders: true, EndStream: true})
	})
	f.Fuzz(func(t *testing.T, frames []byte) {
		if len(frames) > 1<<16 {
			return
		}
		ours, theirs := net.Pipe()
		c := NewServer(ours, Config{MaxStreams: 10, StallTimeout: 10 * time.Second}, echo)
		ended := make(chan error, 1)
		go func() { ended <- c.Run(nil, false) }()
		swallowed := make(chan struct{})
		go func() {
			defer close(swallowed)
			io.Copy(io.Discard, theirs)
		}()
		io.WriteString(theirs, Preface)
		w := http2.NewFramer(theirs, nil)
		w.WriteSettings()
		theirs.Write(frames)
		theirs.Close()
		<-swallowed
		if err := <-ended; err == nil {
			t.Error("no reason for the end")
		}
		if n := c.Streams(); n != 0 {
			t.Errorf("%d streams are left", n)
		}
	})
}
