package socket

import (
	"io"
	"net"
	"os"
	"syscall"
)

// Stream reads and writes the socket below TLS without telling the scheduler of each system call: its monitor, which that keeps awake, costs more than the
// call. One goroutine may read while another writes.
type Stream struct {
	raw        syscall.RawConn
	pull, push func(fd uintptr) bool

	in       []byte
	got      int
	readErr  error
	out      []byte
	writeErr error
}

// NewStream is nil if the socket cannot be used so.
func NewStream(raw syscall.RawConn) *Stream {
	if raw == nil || !CanPoll {
		return nil
	}
	r := &Stream{raw: raw}
	r.pull, r.push = r.pullStep, r.pushStep
	return r
}

func (r *Stream) pullStep(fd uintptr) bool {
	r.got, r.readErr = Read(fd, r.in)
	return r.readErr != syscall.EAGAIN
}

func (r *Stream) Read(p []byte) (int, error) {
	r.in, r.got, r.readErr = p, 0, nil
	err := r.raw.Read(r.pull)
	r.in = nil
	switch {
	case err != nil:
		return 0, err
	case r.readErr != nil:
		return 0, failed("read", r.readErr)
	case r.got == 0 && len(p) > 0:
		return 0, io.EOF
	}
	return r.got, nil
}

func (r *Stream) pushStep(fd uintptr) bool {
	done, err := WriteAll(fd, &r.out)
	r.writeErr = err
	return done
}

func (r *Stream) Write(p []byte) (int, error) {
	r.out, r.writeErr = p, nil
	err := r.raw.Write(r.push)
	n := len(p) - len(r.out)
	r.out = nil
	if err == nil && r.writeErr != nil {
		err = failed("write", r.writeErr)
	}
	return n, err
}

// failed wraps a system call's error as the library does.
func failed(call string, err error) error {
	return &net.OpError{Op: call, Net: "tcp", Err: os.NewSyscallError(call, err)}
}
