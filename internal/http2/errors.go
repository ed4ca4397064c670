package http2

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/net/http2"
)

// Code is an error code of RFC 9113 §7.
type Code = http2.ErrCode

const (
	NoError            = http2.ErrCodeNo
	ProtocolError      = http2.ErrCodeProtocol
	InternalError      = http2.ErrCodeInternal
	FlowControlError   = http2.ErrCodeFlowControl
	SettingsTimeout    = http2.ErrCodeSettingsTimeout
	StreamClosed       = http2.ErrCodeStreamClosed
	FrameSizeError     = http2.ErrCodeFrameSize
	RefusedStream      = http2.ErrCodeRefusedStream
	Cancel             = http2.ErrCodeCancel
	CompressionError   = http2.ErrCodeCompression
	ConnectError       = http2.ErrCodeConnect
	EnhanceYourCalm    = http2.ErrCodeEnhanceYourCalm
	InadequateSecurity = http2.ErrCodeInadequateSecurity
	HTTP11Required     = http2.ErrCodeHTTP11Required
)

// StreamError is why a stream ended before its time.
type StreamError struct {
	Stream uint32
	Code   Code
	// Remote: the peer reset the stream. Otherwise this side did, because of what the peer sent.
	Remote bool
	// Unprocessed: the peer has not acted on the request, so it may be sent again, whatever its method (RFC 9113 §8.7):
	// the peer refused the stream, or its GOAWAY says that it did not see it.
	Unprocessed bool
	// Detail describes the error in constant words, without quotes.
	Detail string
}

func (e *StreamError) Error() string {
	who := "reset"
	if e.Remote {
		who = "reset by the peer"
	}
	if e.Detail != "" {
		return fmt.Sprintf("http2: stream %d was %s: %v: %s", e.Stream, who, e.Code, e.Detail)
	}
	return fmt.Sprintf("http2: stream %d was %s: %v", e.Stream, who, e.Code)
}

// ConnError is why a connection ended, as Run and the calls on its streams return it.
type ConnError struct {
	// Code was, or would have been, sent or received with GOAWAY; NoError if the connection ended in order.
	Code Code
	// Remote: the peer ended it.
	Remote bool
	// Flood: the peer was sent away (ENHANCE_YOUR_CALM) because it made work without use.
	Flood bool
	// Unprocessed: nothing of the request was sent, or the peer said that it did not act on it; see StreamError.
	Unprocessed bool
	// Detail describes the error in constant words, without quotes.
	Detail string
	// Err is the cause below: of the network, if it was that.
	Err error
}

func (e *ConnError) Error() string {
	text := fmt.Sprintf("http2: connection ended: %v", e.Code)
	if e.Remote {
		text += " by the peer"
	}
	if e.Detail != "" {
		text += ": " + e.Detail
	}
	if e.Err != nil {
		text += ": " + e.Err.Error()
	}
	return text
}

func (e *ConnError) Unwrap() error { return e.Err }

var (
	// ErrInterrupted is returned by reading after Stream.Interrupt and Pause, and by every method after Abort.
	ErrInterrupted = errors.New("http2: read interrupted")
	// ErrTimeout is a deadline or StallTimeout that passed; it is os.ErrDeadlineExceeded too.
	ErrTimeout = fmt.Errorf("http2: %w", os.ErrDeadlineExceeded)
	// ErrNoMemory is the error of a client's stream that was reset, or whose answer was dropped, because Config.Memory
	// had no room for what its reader had not taken. Neither peer is to blame.
	ErrNoMemory = errors.New("http2: memory limit for unread data reached")
	// ErrUnavailable is returned by Open if the connection accepts no more streams now, or at all. Nothing was sent.
	ErrUnavailable = errors.New("http2: the connection accepts no more streams")
)

// Unprocessed reports whether the peer has not acted on the request, so that it may be sent again.
func Unprocessed(err error) bool {
	var se *StreamError
	var ce *ConnError
	switch {
	case errors.Is(err, ErrUnavailable):
		return true
	case errors.As(err, &se):
		return se.Unprocessed
	case errors.As(err, &ce):
		return ce.Unprocessed
	}
	return false
}
