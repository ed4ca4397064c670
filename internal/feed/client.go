package feed

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"slices"
	"sync"
	"time"

	discovery "github.com/envoyproxy/go-control-plane/envoy/service/discovery/v3"

	"github.com/weirmesh/weir/internal/loglimit"
	"github.com/weirmesh/weir/internal/model"
	"github.com/weirmesh/weir/internal/statefile"
)

const (
	// saveEvery is the least time between two writes of the state file.
	saveEvery = time.Second
	// maxConfig bounds the encoding of a configuration that a proxy keeps, in bytes.
	maxConfig = 256 << 20
)

// Client gets the configuration of a proxy. Address, CAFile and TokenFile are required. No field may be changed after
// Run.
type Client struct {
	// Address of a control plane, "host:port".
	Address string
	// ServerName is the name that the control plane's certificate must have; empty means Address's host.
	ServerName string
	// CAFile holds the certificates that may have signed the control plane's, TokenFile the token that identifies the
	// proxy. Both are read again for each connection.
	CAFile, TokenFile string
	// Owner is for whom the proxy serves and the state is kept: the state of another owner is not used. It does not
	// decide what the control plane sends: if the token belongs to a proxy of another owner, nothing is sent.
	Owner model.Owner
	// StateFile is where the last configuration that was applied is kept, with its keys in the clear: it belongs on
	// memory. Empty is nowhere.
	StateFile string
	// Unserved, if set, returns the listeners of the configuration that cannot be served, for their ports; see Tell.
	Unserved func() []Unserved
	// Ends, if set, returns when the proxy's own identity ends, zero if it has none; see Tell.
	Ends func() time.Time
	// LeftOut, if set, returns the parts of the last applied configuration that could not be served.
	LeftOut func() []model.Omission
	// Taps, if set, uses a second stream of each connection until it ends, for taps of requests; end ends it. A control
	// plane of an older release has none.
	Taps func(s *Stream, end func()) error
	// Destinations, if set, asks for what connections need when they are begun. A control plane of an older release sends
	// everything instead.
	Destinations *Destinations
	// Logger, if set, logs connections and configurations that cannot be applied.
	Logger *slog.Logger

	mu     sync.Mutex
	status Status
	told   sync.Once
	tell   chan struct{}
}

// Status is where a Client stands.
type Status struct {
	// Connected is true while the control plane is heard of.
	Connected bool `json:"connected"`
	// Version is the version of the configuration that was applied last, "" if none was; Applied is the time.
	Version string    `json:"version,omitempty"`
	Applied time.Time `json:"applied,omitzero"`
	// Err is why a newer one was not applied.
	Err string `json:"err,omitempty"`
	// LeftOut are the parts of Version that are not served, and why.
	LeftOut []model.Omission `json:"leftOut,omitempty"`
}

// Status may be called from any goroutine.
func (c *Client) Status() Status {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.status
}

func (c *Client) setStatus(change func(*Status)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(&c.status)
}

// Run applies the configuration in the state file, if it is valid, and then what the control plane sends, until ctx
// ends, which is not an error. apply makes a configuration the current one, or fails and does not change the current
// one. It is called from one goroutine, may keep the configuration, and may not change it. Unreadable and invalid parts
// are left out before: see model.Config.Sound. If apply fails, it is tried again from time to time.
func (c *Client) Run(ctx context.Context, apply func(*model.Config) error) error {
	if c.Address == "" || c.CAFile == "" || c.TokenFile == "" {
		return errors.New("feed: a client needs an address, a file of CAs and a file with a token")
	}
	l := c.Logger
	if l == nil {
		l = slog.New(slog.DiscardHandler)
	}
	r := &receiver{client: c, log: l, apply: apply}
	r.restore()
	var pauses pauses
	for ctx.Err() == nil {
		err := r.stream(ctx)
		c.setStatus(func(s *Status) { s.Connected = false })
		if ctx.Err() != nil {
			break
		}
		if r.heard {
			pauses.reset()
		}
		pause := pauses.next(err)
		if errors.Is(err, io.EOF) {
			l.Info("control plane ended the stream; connecting again", "address", c.Address)
		} else {
			r.failures.Log(l, slog.LevelWarn, "stream", "no configuration from the control plane; connecting again", "address", c.Address, "error", err, "in", pause)
		}
		r.idle(ctx, pause)
	}
	r.save()
	return nil
}

// receiver is a Client while it runs. One goroutine uses it.
type receiver struct {
	client   *Client
	log      *slog.Logger
	apply    func(*model.Config) error
	failures loglimit.Limiter

	has     assembly   // what the proxy has, as the control plane knows it
	applied assembly   // what is served
	heard   bool       // the stream brought something
	beside  func()     // begins the connection's second stream
	answers []question // that are true once has is applied

	again    time.Time     // when to try has again, which was refused; zero is not
	delay    time.Duration // to the attempt after that
	unsaved  bool          // applied is not in the state file
	lastSave time.Time
}

// restore applies the state file.
func (r *receiver) restore() {
	path := r.client.StateFile
	if path == "" {
		return
	}
	data, err := statefile.Read(path, maxConfig+maxMessage)
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	var a *assembly
	var destinations []question
	if err == nil {
		a, destinations, err = decodeState(data, r.client.Owner, maxConfig)
	}
	if err != nil {
		r.log.Warn("state file is not used", "file", path, "error", err)
		return
	}
	r.has = *a
	r.client.Destinations.restore(destinations) // before connections come
	if err := r.take(); err != nil {
		r.log.Warn("configuration of the state file is not served", "file", path, "error", err)
		r.has = assembly{}
		r.client.Destinations.restore(nil)
		return
	}
	r.unsaved = false
	r.log.Info("serving the configuration of the state file", "file", path, "version", r.client.Status().Version)
}

// take applies what the proxy has.
func (r *receiver) take() error {
	version := r.has.version()
	config, left := r.has.config()
	if err := r.apply(config); err != nil {
		if r.again.IsZero() {
			r.delay = time.Second
		}
		r.again = time.Now().Add(r.delay)
		r.delay = min(2*r.delay, 30*time.Second)
		r.client.setStatus(func(s *Status) { s.Err = err.Error() })
		return err
	}
	r.again = time.Time{}
	r.deliver()
	if r.client.LeftOut != nil {
		left = append(left, r.client.LeftOut()...)
	}
	if left = model.SortOmissions(left); len(left) > 0 && !slices.Equal(left, r.client.Status().LeftOut) {
		r.log.Warn("parts of the configuration are not served; the rest is", "parts", len(left), "first", printable(left[0].String(), maxError), "version", version)
	}
	r.applied, r.unsaved = r.has, true
	r.client.setStatus(func(s *Status) { s.Version, s.Applied, s.Err, s.LeftOut = version, time.Now(), "", left })
	return nil
}

// deliver gives the answers to those who asked: what they need is applied.
func (r *receiver) deliver() {
	if r.heard {
		r.client.Destinations.applied(r.answers)
		r.answers = nil
	}
}

// partly describes the parts of the last applied configuration that are not served; empty if all are.
func (r *receiver) partly() string {
	left := r.client.Status().LeftOut
	if len(left) == 0 {
		return ""
	}
	text := "not served: " + left[0].String()
	if len(left) > 1 {
		text = fmt.Sprintf("%d parts not served, such as %s", len(left), left[0])
	}
	return printable(text, maxError)
}

// response takes a response of the control plane. complete means that it is the last of its step; refusal is why the
// step cannot be applied. An error ends the stream.
func (r *receiver) response(d *discovery.DeltaDiscoveryResponse) (complete bool, refusal, err error) {
	r.again = time.Time{}
	r.answers = append(r.answers, takeAnswers(d)...)
	if err := r.has.update(d, maxConfig); err != nil {
		r.has = r.applied
		return false, nil, err
	}
	if d.SystemVersionInfo == "" {
		return false, nil, nil
	}
	if v := r.has.version(); v != d.SystemVersionInfo {
		r.has = assembly{} // everything is sent again
		return false, nil, errors.New("the received configuration differs from the control plane's: version " + v + ", want " + printable(d.SystemVersionInfo, 64))
	}
	if r.has.version() == r.client.Status().Version && r.client.Status().Err == "" {
		r.unsaved = r.unsaved || len(r.answers) > 0
		r.deliver()
		return true, nil, nil // connected again without a change
	}
	return true, r.take(), nil
}

// save writes the state file if there is something to write.
func (r *receiver) save() {
	if !r.unsaved || r.client.StateFile == "" {
		return
	}
	r.unsaved, r.lastSave = false, time.Now()
	data, err := encodeState(r.client.Owner, r.applied.parts, r.client.Destinations.names()...)
	if err == nil {
		err = statefile.Write(r.client.StateFile, data)
	}
	if err != nil {
		r.unsaved = true
		r.failures.Log(r.log, slog.LevelWarn, "state", "state file cannot be written", "file", r.client.StateFile, "error", err)
	}
}

// due is the time of the next save or second attempt; zero means never.
func (r *receiver) due() time.Time {
	at := r.again
	if r.unsaved && r.client.StateFile != "" {
		if t := r.lastSave.Add(saveEvery); at.IsZero() || t.Before(at) {
			at = t
		}
	}
	return at
}

// work does what is due, and reports whether a refused configuration has now been applied.
func (r *receiver) work() (applied bool) {
	now := time.Now()
	if !r.again.IsZero() && !now.Before(r.again) {
		applied = r.take() == nil
	}
	if r.unsaved && !now.Before(r.lastSave.Add(saveEvery)) {
		r.save()
	}
	return applied
}

// idle waits, and does what becomes due in the meantime.
func (r *receiver) idle(ctx context.Context, pause time.Duration) {
	end := time.Now().Add(pause)
	for {
		next := end
		if due := r.due(); !due.IsZero() && due.Before(next) {
			next = due
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(max(0, time.Until(next))):
		}
		if !time.Now().Before(end) {
			return
		}
		r.work()
	}
}

// wait returns a channel that fires when something becomes due, nil if nothing will.
func (r *receiver) wait() <-chan time.Time {
	due := r.due()
	if due.IsZero() {
		return nil
	}
	return time.After(max(cmp.Or(time.Until(due), 0), 0))
}
