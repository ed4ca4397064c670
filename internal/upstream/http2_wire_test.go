package upstream

import (
	"bytes"
	"errors"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"

	"golang.org/x/net/http2"
)

// readOnly is a connection with something to read.
type readOnly struct {
	net.Conn
	io.Reader
}

func (r readOnly) Read(p []byte) (int, error) { return r.Reader.Read(p) }

func TestSettingsAreInForceWhenTheReaderComesBackForMore(t *testing.T) {
	var stream bytes.Buffer
	f := http2.NewFramer(&stream, nil)
	f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 7})
	first := stream.Len()
	f.WritePing(false, [8]byte{})
	for name, r := range map[string]io.Reader{
		"at once":      bytes.NewReader(stream.Bytes()),
		"byte by byte": iotest.OneByteReader(bytes.NewReader(stream.Bytes())),
		"in halves":    iotest.HalfReader(bytes.NewReader(stream.Bytes())),
	} {
		t.Run(name, func(t *testing.T) {
			w := &http2Wire{Conn: readOnly{Reader: r}, settled: make(chan struct{})}
			settled := func() bool {
				select {
				case <-w.settled:
					return true
				default:
					return false
				}
			}
			b := make([]byte, 64)
			for had := 0; ; {
				n, err := w.Read(b)
				if settled() != (had >= first) {
					t.Fatalf("settled is %t after %d of %d bytes were taken in", settled(), had, first)
				}
				had += n
				if err == io.EOF {
					break
				}
			}
			if !settled() {
				t.Error("never settled")
			}
		})
	}
}

func TestAnEndpointThatNeverSendsSettingsTimesOut(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0") // accepts by the kernel, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	e := one(t, newSet(t, Options{ConnectTimeout: 50 * time.Millisecond}), l.Addr().String())
	body := &trackedBody{}
	req := request(t, "POST", "/", nil)
	req.Body = body
	_, err = e.HTTP2().RoundTrip(req)
	var ce *ConnectError
	if !errors.As(err, &ce) || !ce.Timeout || ce.Reason != ConnectTimedOut {
		t.Errorf("%v", err)
	}
	if body.reads() != 0 || body.closes() != 1 {
		t.Errorf("the body was read %d and closed %d times", body.reads(), body.closes())
	}
	if st := e.Stats(); st.Failures != 1 || st.InFlight != 0 || st.HTTP2 != 0 {
		t.Errorf("%+v", st)
	}
}
