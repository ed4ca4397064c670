package proxy

import (
	"io"
	"net"
	"os"
	"syscall"

	"github.com/weirmesh/weir/internal/socket"
)

// rawIO reads and writes the socket below TLS without telling the scheduler of each system call: its monitor, which that keeps awake, costs more than the
// call. One goroutine may read while another writes.
type rawIO struct {
	raw        syscall.RawConn
	pull, push func(fd uintptr) bool

	in       []byte
	got      int
	readErr  error
	out      []byte
	writeErr error
}

// newRawIO is nil if the socket cannot be used so.
func newRawIO(raw syscall.RawConn) *rawIO {
	if raw == nil || !socket.CanPoll {
		return nil
	}
	r := &rawIO{raw: raw}
	r.pull, r.push = r.pullStep, r.pushStep
	return r
}

func (r *rawIO) pullStep(fd uintptr) bool {
	r.got, r.readErr = socket.Read(fd, r.in)
	return r.readErr != syscall.EAGAIN
}

func (r *rawIO) read(p []byte) (int, error) {
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

func (r *rawIO) pushStep(fd uintptr) bool {
	done, err := socket.WriteAll(fd, &r.out)
	r.writeErr = err
	return done
}

func (r *rawIO) write(p []byte) (int, error) {
	r.out, r.writeErr = p, nil
	err := r.raw.Write(r.push)
	n := len(p) - len(r.out)
	r.out = nil
	if err == nil && r.writeErr != nil {
		err = failed("write", r.writeErr)
	}
	return n, err
}

// failed is a system call's error as the library has it.
func failed(call string, err error) error {
	return &net.OpError{Op: call, Net: "tcp", Err: os.NewSyscallError(call, err)}
}
