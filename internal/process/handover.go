package process

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"

	"github.com/weirmesh/weir/internal/socket"
)

// Handover passes the sockets that clients come to, for connections and for datagrams, from a process to the one that replaces it, over a Unix
// socket in the file system. Both accept from the same sockets until the older one has stopped, so that nothing waits in a queue that is thrown
// away, as it would if each had sockets of its own (SO_REUSEPORT).
//
// The newcomer connects and is sent messages, each a line with the names (socket.Name), as JSON, of the sockets that come with it, the last of
// them empty; it answers each with a line that says that it takes sockets for datagrams, too. These come after the others, and not to a newcomer
// of a release that does not know them, whose lines are empty. Once it serves, it answers with the names of those that it uses, and the older
// process drains. If it ends before, the older one serves on as if nothing had been.
//
// Methods of a nil handover work without one.
type Handover struct {
	path string
	log  *slog.Logger

	predecessor *net.UnixConn // nil: there was none

	mu        sync.Mutex
	inherited map[socket.Name]socket.Bound // that nobody has asked for yet
	used      []string                     // names of those that somebody has

	listener *net.UnixListener // where the successor comes
	given    []string          // the names of those that the successor uses
}

// Bounds of a handover.
const (
	handoverStep    = 5 * time.Second // to send or answer a message
	handoverStart   = 2 * time.Minute // for the newcomer to read its configuration and begin to serve
	socketsAtOnce   = 64              // in one message; Linux allows 253 descriptors
	handoverMessage = 64 << 10
)

// takesPackets is what a newcomer answers each message with that takes sockets for datagrams.
const takesPackets = "packets\n"

// errHandover is what the user is told first when something went wrong.
func errHandover(err error) error { return fmt.Errorf("--handover: %w", err) }

// NewHandover fetches the sockets of the process that offers them at path, if there is one.
func NewHandover(path string, log *slog.Logger) (*Handover, error) {
	h := &Handover{path: path, log: log, inherited: map[socket.Name]socket.Bound{}}
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
		names, err := namesOf(line, sockets)
		if err != nil {
			for _, s := range sockets {
				s.Close()
			}
			return err
		}
		for i, name := range names {
			h.inherited[name] = sockets[i]
		}
		if _, err := io.WriteString(h.predecessor, takesPackets); err != nil {
			return err
		}
		if len(names) == 0 {
			return nil
		}
	}
}

// namesOf reads the names in a message, of the sockets that came with it.
func namesOf(line []byte, sockets []socket.Bound) ([]socket.Name, error) {
	var texts []string
	if err := json.Unmarshal(line, &texts); err != nil || len(texts) != len(sockets) {
		return nil, fmt.Errorf("%d sockets came with the message %q", len(sockets), line)
	}
	names := make([]socket.Name, len(texts))
	for i, text := range texts {
		names[i] = socket.ParseName(text)
		if got := sockets[i].Network(); got != names[i].Network {
			return nil, fmt.Errorf("the socket %q is of the network %s", text, got)
		}
	}
	return names, nil
}

// Listen returns a function that opens sockets by open, but gives the inherited one if there is one of the network and address.
func (h *Handover) Listen(open socket.Opener) socket.Opener {
	return func(network, address string) (socket.Bound, error) {
		if b, ok := h.inherit(socket.Name{Network: network, Address: address}); ok {
			return b, nil
		}
		return open(network, address)
	}
}

// Taken are the sockets that the successor uses, once offer has returned.
func (h *Handover) Taken() []socket.Name {
	var names []socket.Name
	for _, text := range h.given {
		names = append(names, socket.ParseName(text))
	}
	return names
}

// inherit returns the inherited socket of that name, if nobody has it yet.
func (h *Handover) inherit(name socket.Name) (socket.Bound, bool) {
	if h == nil {
		return socket.Bound{}, false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	b, ok := h.inherited[name]
	if ok {
		delete(h.inherited, name)
		h.used = append(h.used, name.String())
	}
	return b, ok
}

// Close lets the predecessor continue to serve, unless it was told to drain, and closes the sockets that were not
// requested.
func (h *Handover) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	for _, b := range h.inherited {
		b.Close()
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

// Offer waits, after serving, for a successor that serves; sockets calls its argument with each socket, and may be called several times. The error
// is ctx's, or why there can be no successor.
func (h *Handover) Offer(ctx context.Context, sockets Sockets) error {
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

// Sockets calls pass with each socket to hand over, and stops at the first error, which it returns.
type Sockets = func(pass func(socket.Name, socket.Bound) error) error

// give hands the sockets to a newcomer and waits until it serves.
func (h *Handover) give(ctx context.Context, nc *net.UnixConn, sockets Sockets) error {
	defer context.AfterFunc(ctx, func() { nc.Close() })()
	g := giver{nc: nc, in: bufio.NewReaderSize(nc, handoverMessage)}
	left := 0
	err := sockets(func(name socket.Name, s socket.Bound) error {
		if s.Packet != nil {
			left++
			return nil
		}
		return g.add(name, s)
	})
	if err == nil {
		err = g.flush()
	}
	if err == nil && left > 0 {
		// A newcomer that has been sent nothing has said nothing.
		if g.packets || !g.answered {
			err = sockets(func(name socket.Name, s socket.Bound) error {
				if s.Packet == nil {
					return nil
				}
				return g.add(name, s)
			})
		} else {
			h.log.Warn("the process that is taking over does not take sockets for datagrams", "sockets", left)
		}
	}
	if err == nil {
		err = g.flush()
	}
	if err == nil {
		err = g.send()
	}
	if err != nil {
		return err
	}
	nc.SetDeadline(time.Now().Add(handoverStart))
	line, err := g.in.ReadSlice('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, &h.given)
}

// giver sends sockets to a newcomer.
type giver struct {
	nc    *net.UnixConn
	in    *bufio.Reader
	names []string // of batch
	batch []socket.Bound
	// answered: the newcomer has answered a message; packets: it takes sockets for datagrams.
	answered, packets bool
}

func (g *giver) add(name socket.Name, s socket.Bound) error {
	g.names, g.batch = append(g.names, name.String()), append(g.batch, s)
	if len(g.batch) < socketsAtOnce {
		return nil
	}
	return g.send()
}

// flush sends what there is.
func (g *giver) flush() error {
	if len(g.batch) == 0 {
		return nil
	}
	return g.send()
}

// send sends a message, which without sockets is the last, and waits for the answer.
func (g *giver) send() error {
	g.nc.SetDeadline(time.Now().Add(handoverStep))
	line, _ := json.Marshal(append([]string{}, g.names...)) // of strings; never null
	if err := sendSockets(g.nc, append(line, '\n'), g.batch); err != nil {
		return err
	}
	g.names, g.batch = g.names[:0], g.batch[:0]
	answer, err := g.in.ReadSlice('\n')
	g.answered, g.packets = true, string(answer) == takesPackets
	return err
}

// listenPrivately listens at path, for the owner of the process alone, in place of whoever did before.
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
