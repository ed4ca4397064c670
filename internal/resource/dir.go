package resource

import (
	"context"
	"io"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/weirmesh/weir/internal/spare"
)

// Dir is a Source over files and folders on disk. It reads them at the start and after each change. If a new version of
// a file is broken, its last good version stays. A file that became shorter in place, empty or is gone may just be in
// the middle of being saved: it is believed only when it stays so for a moment. Dir also emits a Set without a change
// when a certificate is near its expiry or has expired.
type Dir struct {
	// Stdin is the input for the path "-": it is read once, at the start.
	Stdin io.Reader
	// Again, if set, makes Dir look at everything once more for each receive, as on a user's demand.
	Again <-chan struct{}

	kinds  Kinds
	paths  []string
	log    *slog.Logger
	timing timing
	// blind disables fsnotify, as if the file system did not support it.
	blind bool
}

// timing of a Dir. A change is emitted when no other followed it for holdoff, but after limit in any case. Besides
// being notified of changes, Dir also looks itself: seldom if it is notified, since network file systems do not report
// all changes.
type timing struct {
	holdoff, limit time.Duration
	poll, blind    time.Duration
}

// rest is how many times as long as listing takes passes before it is done again after changes: large folders that
// change all the time take a tenth of a core.
const rest = 10

var usual = timing{holdoff: 50 * time.Millisecond, limit: 200 * time.Millisecond, poll: 30 * time.Second, blind: 2 * time.Second}

// NewDir returns a Dir of objects of some kinds, over paths as Load takes them. A nil logger discards.
func NewDir(kinds Kinds, paths []string, logger *slog.Logger) *Dir {
	if logger == nil {
		logger = slog.New(slog.DiscardHandler)
	}
	return &Dir{kinds: kinds, paths: paths, log: logger, timing: usual}
}

var _ Source = (*Dir)(nil)

// Run implements Source. It returns an error only if a path cannot be read at the start; later that is a finding.
func (d *Dir) Run(ctx context.Context, emit func(*Set)) error {
	w := d.watch()
	defer w.close()
	r := newReader(d.kinds, d.paths)
	l, err := r.open(d.Stdin)
	if err != nil {
		return err
	}
	l = w.settle(l, d.paths)
	r.read(l)
	emit(r.set(l))
	errs := l.errs
	r.serving = true

	poll := time.NewTimer(d.interval(w))
	var rested time.Time // until when nothing is listed again
	defer poll.Stop()
	var due <-chan time.Time // of the scan after changes
	var latest time.Time
	var confirmed <-chan time.Time // when a file that lost something is believed
	for {
		again := false
		select {
		case <-ctx.Done():
			return nil
		case e := <-w.events():
			if !w.matters(e) {
				continue
			}
			now := time.Now()
			if due == nil {
				latest = now.Add(d.timing.limit)
			}
			due = time.After(max(min(d.timing.holdoff, latest.Sub(now)), rested.Sub(now)))
			continue
		case err := <-w.errors():
			// The kernel's queue ran over: anything may have changed.
			d.log.Debug("changes were missed", "error", err)
			due = time.After(d.timing.holdoff)
			continue
		case <-due:
		case <-d.Again:
			again = true // SIGHUP means that all files are saved
		case <-poll.C:
		case <-confirmed:
		}
		due = nil
		began := time.Now()
		l = w.settle(list(d.paths), d.paths)
		cost := time.Since(began)
		rested = began.Add(rest * cost)
		r.believe = again
		spare.Do(func() {
			changed := r.read(l)
			confirmed = r.confirmed()
			if changed || !maps.EqualFunc(errs, l.errs, sameError) || r.due() {
				emit(r.set(l))
			}
		})
		errs = l.errs
		poll.Reset(max(d.interval(w), rest*cost))
	}
}

func (d *Dir) interval(w *watch) time.Duration {
	if w.complete {
		return d.timing.poll
	}
	return d.timing.blind
}

// watch keeps fsnotify on the folders of a listing.
type watch struct {
	notify  *fsnotify.Watcher // nil if the system does not support it
	log     *slog.Logger
	folders map[string]folder
	// warned are the folders that cannot be watched.
	warned map[string]bool
	// complete means that all changes are reported.
	complete bool
}

// folder is a watched folder; info distinguishes it from another one that replaced it.
type folder struct {
	info  os.FileInfo
	names []string
}

func (d *Dir) watch() *watch {
	w := &watch{log: d.log, folders: make(map[string]folder), warned: make(map[string]bool)}
	if d.blind {
		return w
	}
	notify, err := fsnotify.NewWatcher()
	if err != nil {
		d.log.Warn("polling files: the system does not report changes", "error", err)
		return w
	}
	w.notify = notify
	return w
}

func (w *watch) close() {
	if w.notify != nil {
		w.notify.Close()
	}
}

func (w *watch) events() <-chan fsnotify.Event {
	if w.notify == nil {
		return nil
	}
	return w.notify.Events
}

func (w *watch) errors() <-chan error {
	if w.notify == nil {
		return nil
	}
	return w.notify.Errors
}

func (w *watch) matters(e fsnotify.Event) bool {
	f, ok := w.folders[filepath.Dir(e.Name)]
	return !ok || f.names == nil || slices.Contains(f.names, filepath.Base(e.Name))
}

// settle watches the folders of the listing, and lists again until all its folders were watched before they were
// listed. So nothing that appears in a new folder is missed.
func (w *watch) settle(l *listing, paths []string) *listing {
	for range 10 {
		if !w.follow(l) {
			break
		}
		l = list(paths)
	}
	return l
}

func (w *watch) follow(l *listing) (added bool) {
	if w.notify == nil {
		return false
	}
	w.complete = len(l.errs) == 0
	live := w.notify.WatchList() // without folders that were removed or renamed
	for path := range w.folders {
		if _, ok := l.watched[path]; !ok {
			_ = w.notify.Remove(path) // it may be gone already
			delete(w.folders, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(l.watched)) {
		info, err := os.Stat(path)
		if err != nil {
			w.complete = false
			continue
		}
		f, ok := w.folders[path]
		if ok && os.SameFile(f.info, info) && slices.Contains(live, path) {
			w.folders[path] = folder{info, l.watched[path]}
			continue
		}
		if ok {
			_ = w.notify.Remove(path)
			delete(w.folders, path)
		}
		if err := w.notify.Add(path); err != nil {
			w.complete = false
			if !w.warned[path] {
				w.warned[path] = true
				w.log.Warn("polling a folder: the system does not report its changes", "folder", path, "error", err)
			}
			continue
		}
		w.folders[path] = folder{info, l.watched[path]}
		added = true
	}
	return added
}
