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

// Dir is a Source over files and folders on disk. It reads them at the start and after each change; what a new version
// of a file breaks keeps its last good version, and one that became shorter in place, empty or is gone is believed only when it stays so for a
// moment, since it may just be being saved. It emits a Set without a change, too, when a certificate comes near its
// end or reaches it, at its next look.
type Dir struct {
	// Stdin is what the path "-" stands for: it is read once, at the start.
	Stdin io.Reader
	// Again, if set, makes Dir look at everything once more for each receive, as on a user's demand.
	Again <-chan struct{}

	kinds  Kinds
	paths  []string
	log    *slog.Logger
	timing timing
	// blind leaves out fsnotify, as if the file system had none.
	blind bool
}

// timing of a Dir. A change is emitted when none followed it for holdoff, but after limit in any case. Beside being
// told of changes, Dir looks itself: seldom where it is told, as network file systems tell only some.
type timing struct {
	holdoff, limit time.Duration
	poll, blind    time.Duration
}

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
	defer poll.Stop()
	var due <-chan time.Time // of the scan after changes
	var latest time.Time
	var confirmed <-chan time.Time // when a file is to be believed that lost something
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
			due = time.After(min(d.timing.holdoff, latest.Sub(now)))
			continue
		case err := <-w.errors():
			// The kernel's queue ran over: anything may have changed.
			d.log.Debug("changes were missed", "error", err)
			due = time.After(d.timing.holdoff)
			continue
		case <-due:
		case <-d.Again:
			again = true // whoever asks for it has saved all
		case <-poll.C:
		case <-confirmed:
		}
		due = nil
		l = w.settle(list(d.paths), d.paths)
		r.believe = again
		spare.Do(func() {
			changed := r.read(l)
			confirmed = r.confirmed()
			if changed || !maps.EqualFunc(errs, l.errs, sameError) || r.due() {
				emit(r.set(l))
			}
		})
		errs = l.errs
		poll.Reset(d.interval(w))
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
	notify  *fsnotify.Watcher // nil if the system has none
	log     *slog.Logger
	folders map[string]folder
	// warned are the folders that cannot be watched.
	warned map[string]bool
	// complete says that all changes are told of.
	complete bool
}

// folder is one that is watched; info tells it from another that took its place.
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

// settle watches what the listing asks for, and lists again until there is no folder in it that was not watched before
// it was listed: so nothing that appears in a new folder is missed.
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
