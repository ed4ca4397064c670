package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Handover passes listening sockets from a process to the one that replaces it, over a Unix socket in the file system.
// Both accept from the same sockets until the older one has stopped. So no connection waits in a queue that is thrown
// away, as it would if each process had its own sockets (SO_REUSEPORT).
//
// The new process connects and gets messages, each a line with the addresses, as JSON, of the sockets that come with
// it; the last has none. It answers each with a newline. Once it serves, it answers with the addresses that it uses,
// and the older process drains. If it ends before, the older one continues to serve.
//
// Methods of a nil handover work without one.
type Handover struct {
	path string
	log  *slog.Logger

	predecessor *net.UnixConn // nil: there was none

	mu        sync.Mutex
	inherited map[string]net.Listener // not requested yet
	used      []string                // addresses of the requested ones

	listener *net.UnixListener // where the successor connects
	given    []string          // the addresses that the successor uses
}

// Bounds of a handover.
const (
	handoverStep    = 5 * time.Second // to send or answer a message
	handoverStart   = 2 * time.Minute // for the newcomer to read its configuration and begin to serve
	socketsAtOnce   = 64              // in one message; Linux allows 253 descriptors
	handoverMessage = 64 << 10
)

// errHandover is the beginning of the message to the user.
func errHandover(err error) error { return fmt.Errorf("--handover: %w", err) }

// NewHandover fetches the sockets of the process that offers them at path, if there is one.
func NewHandover(path string, log *slog.Logger) (*Handover, error) {
	h := &Handover{path: path, log: log, inherited: map[string]net.Listener{}}
	nc, err := net.DialTimeout("unix", path, handoverStep)
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ECONNREFUSED) {
		return h, nil // there is no process, or no longer
	}
	if err != nil {
		return nil, errHandover(err)
	}
	h.predecessor = nc.(*net.UnixConn)
	if err := h.fetch(); err != nil {
		h.Close()
		return nil, errHandover(fmt.Errorf("the process at %s did not pass on its sockets: %w", path, err))
	}
	log.Info("taking over from another process", "sockets", len(h.inherited))
	return h, nil
}

func (h *Handover) fetch() error {
	for {
		h.predecessor.SetDeadline(time.Now().Add(handoverStep))
		line, sockets, err := receiveSockets(h.predecessor)
		if err != nil {
			return err
		}
		var addresses []string
		if err := json.Unmarshal(line, &addresses); err != nil || len(addresses) != len(sockets) {
			for _, s := range sockets {
				s.Close()
			}
			return fmt.Errorf("%d sockets came with the message %q", len(sockets), line)
		}
		for i, a := range addresses {
			h.inherited[a] = sockets[i]
		}
		if _, err := h.predecessor.Write([]byte{'\n'}); err != nil {
			return err
		}
		if len(addresses) == 0 {
			return nil
		}
	}
}

// listenFunc opens a listening socket.
type listenFunc = func(network, address string) (net.Listener, error)

// Listen returns a function that opens sockets by open, but returns the inherited one if there is one for the address.
func (h *Handover) Listen(open listenFunc) listenFunc {
	return func(network, address string) (net.Listener, error) {
		if l := h.inherit(address); l != nil {
			return l, nil
		}
		return open(network, address)
	}
}

// Taken are the addresses that the successor uses, once offer has returned.
func (h *Handover) Taken() []string { return h.given }

// inherit returns the inherited socket for the address, unless it was already taken.
func (h *Handover) inherit(address string) net.Listener {
	if h == nil {
		return nil
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	l := h.inherited[address]
	if l != nil {
		delete(h.inherited, address)
		h.used = append(h.used, address)
	}
	return l
}

// Close lets the predecessor continue to serve, unless it was told to drain, and closes the sockets that were not
// requested.
func (h *Handover) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	for _, l := range h.inherited {
		l.Close()
	}
	clear(h.inherited)
	h.mu.Unlock()
	if h.predecessor != nil {
		h.predecessor.Close()
		h.predecessor = nil
	}
}

// Serving is called when the process serves: it takes the predecessor's place for the next process, and tells the
// predecessor to drain.
func (h *Handover) Serving() error {
	if h == nil {
		return nil
	}
	l, err := listenPrivately(h.path)
	h.listener = l
	if p := h.predecessor; p != nil {
		h.mu.Lock()
		line, _ := json.Marshal(h.used) // of strings
		h.mu.Unlock()
		p.SetDeadline(time.Now().Add(handoverStep))
		if _, err := p.Write(append(line, '\n')); err != nil {
			h.log.Warn("cannot tell the previous process to end", "reason", err)
		}
	}
	h.Close()
	if err != nil {
		return errHandover(err)
	}
	return nil
}

// Offer waits, after serving, for a successor that serves; sockets calls its argument with each listening socket. The error is ctx's, or why there
// can be no successor.
func (h *Handover) Offer(ctx context.Context, sockets func(pass func(address string, socket net.Listener) error) error) error {
	if h.listener == nil {
		<-ctx.Done() // serving has said why
		return ctx.Err()
	}
	defer h.listener.Close()
	defer context.AfterFunc(ctx, func() { h.listener.Close() })()
	for {
		nc, err := h.listener.Accept()
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil {
			return errHandover(err)
		}
		err = h.give(ctx, nc.(*net.UnixConn), sockets)
		nc.Close()
		if err == nil {
			return nil
		}
		h.log.Warn("the process that was taking over did not start serving", "reason", err)
	}
}

// give hands the sockets to a newcomer and waits until it serves.
func (h *Handover) give(ctx context.Context, nc *net.UnixConn, sockets func(func(string, net.Listener) error) error) error {
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	var addresses []string
	var batch []net.Listener
	in := bufio.NewReaderSize(nc, handoverMessage)
	send := func() error {
		nc.SetDeadline(time.Now().Add(handoverStep))
		line, _ := json.Marshal(addresses) // of strings
		if err := sendSockets(nc, append(line, '\n'), batch); err != nil {
			return err
		}
		addresses, batch = []string{}, batch[:0]
		_, err := in.ReadSlice('\n')
		return err
	}
	err := sockets(func(address string, socket net.Listener) error {
		addresses, batch = append(addresses, address), append(batch, socket)
		if len(batch) < socketsAtOnce {
			return nil
		}
		return send()
	})
	if err == nil && len(batch) > 0 {
		err = send()
	}
	if addresses = []string{}; err == nil {
		err = send()
	}
	if err != nil {
		return err
	}
	nc.SetDeadline(time.Now().Add(handoverStart))
	line, err := in.ReadSlice('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, &h.given)
}

// listenPrivately listens at path, for the owner of the process only, in place of an earlier listener.
func listenPrivately(path string) (*net.UnixListener, error) {
	dir, err := os.MkdirTemp(filepath.Dir(path), ".weir") // mode 0700
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	temporary := filepath.Join(dir, "s")
	l, err := net.ListenUnix("unix", &net.UnixAddr{Name: temporary, Net: "unix"})
	if err != nil {
		return nil, err
	}
	l.SetUnlinkOnClose(false) // by then it may be the successor's
	if err = os.Chmod(temporary, 0o600); err == nil {
		err = os.Rename(temporary, path)
	}
	if err != nil {
		l.Close()
		return nil, err
	}
	return l, nil
}
