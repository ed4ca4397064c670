package resource

import (
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weirmesh/weir/internal/spare"
)

const stdinPath = "-"

// reader reads paths again and again. It remembers the documents of texts, so that only changed documents are validated
// again, and the last good version of every object.
type reader struct {
	kinds     Kinds
	paths     []string
	files     map[string]*file
	documents map[sum]*document
	good      map[Key]good
	// now is the clock by which certificates are judged. They were judged at the time judged. The judgement changes
	// after the time next, if it is not zero.
	now          func() time.Time
	judged, next time.Time
	// holds are the files that lost something and are not believed yet; clock times them.
	holds   map[string]*hold
	clock   func() time.Time
	believe bool // the next reading is believed at once
	serving bool // the previous reading is still being served
}

type sum [sha256.Size]byte

// file is the result of reading a file.
type file struct {
	info   os.FileInfo
	place  string // the path without symbolic links, empty if unknown
	readAt time.Time
	err    error
	parts  []filePart
	size   int // of the content, in bytes
}

type filePart struct {
	line int
	sum  sum
	part part // its text is dropped once decoded
}

// good is an object that may be served, and where it was read.
type good struct {
	object any
	origin Origin
	fields Fields
	// certified is nil if the object holds no certificates.
	certified *certified
}

// due reports whether the judgement of certificates is outdated: time has passed, or the clock was set back.
func (r *reader) due() bool {
	now := r.now()
	return now.Before(r.judged) || !r.next.IsZero() && now.After(r.next)
}

func newReader(kinds Kinds, paths []string) *reader {
	return &reader{kinds: kinds, paths: paths, files: make(map[string]*file), documents: make(map[sum]*document), good: make(map[Key]good), now: time.Now, holds: make(map[string]*hold), clock: time.Now}
}

// readStdin reads the document stream that the path "-" stands for, once.
func (r *reader) readStdin(stdin io.Reader) error {
	content, err := io.ReadAll(stdin)
	if err != nil {
		return fmt.Errorf("standard input: %w", err)
	}
	r.files[stdinPath] = newFile(content, false)
	return nil
}

// settled is the age from which a file's size and modification time prove that it is unchanged: clocks of file systems
// are coarse.
const settled = 2 * time.Second

// read brings files up to date with the listing. It reports whether anything may have changed. A file that lost something is believed only
// once that is confirmed, see hold.
func (r *reader) read(l *listing) bool {
	changed := false
	for path := range r.files {
		if _, ok := l.root[path]; !ok && path != stdinPath && !l.under(path) {
			if r.hold(path, r.files[path], nil) {
				continue
			}
			delete(r.holds, path)
			delete(r.files, path)
			changed = true
		}
	}
	for _, path := range l.files {
		old := r.files[path]
		info, err := os.Stat(path)
		if err == nil && old != nil && old.err == nil && old.info != nil && os.SameFile(old.info, info) && old.info.Size() == info.Size() &&
			old.info.ModTime().Equal(info.ModTime()) && old.readAt.Sub(info.ModTime()) > settled {
			delete(r.holds, path)
			continue
		}
		readAt := time.Now()
		var text []byte
		if err == nil {
			text, info, err = content(path)
		}
		f := &file{err: err}
		if err == nil {
			f = newFile(text, strings.EqualFold(filepath.Ext(path), ".json"))
		} else if old != nil {
			f.parts = old.parts
		}
		f.info, f.readAt = info, readAt
		f.place, _ = filepath.EvalSymlinks(path)
		if err == nil && r.hold(path, old, f) {
			continue
		}
		delete(r.holds, path)
		r.files[path] = f
		changed = changed || old == nil || !sameError(f.err, old.err) || !slices.EqualFunc(f.parts, old.parts, func(a, b filePart) bool { return a.sum == b.sum && a.line == b.line })
	}
	return changed
}

func sameError(a, b error) bool {
	return (a == nil) == (b == nil) && (a == nil || a.Error() == b.Error())
}

func newFile(content []byte, isJSON bool) *file {
	f := &file{size: len(content)}
	for _, p := range splitFile(content, isJSON) {
		h := sha256.New()
		if p.json {
			h.Write([]byte{'j'})
		} else {
			h.Write([]byte{'y'})
		}
		h.Write(p.text)
		f.parts = append(f.parts, filePart{line: p.line, sum: sum(h.Sum(nil)), part: p})
	}
	return f
}

// decode makes documents of the texts that have none yet, on all cores that traffic does not need, and forgets texts
// that no file has any more.
func (r *reader) decode() {
	documents := make(map[sum]*document, len(r.documents))
	var missing []*filePart
	for _, f := range r.files {
		for i := range f.parts {
			p := &f.parts[i]
			if _, ok := documents[p.sum]; ok {
				continue
			}
			documents[p.sum] = r.documents[p.sum]
			if documents[p.sum] == nil {
				missing = append(missing, p)
			}
		}
	}
	decoded := make([]*document, len(missing))
	var next atomic.Int64
	var wait sync.WaitGroup
	workers := runtime.GOMAXPROCS(0)
	if r.serving {
		workers = spare.Workers()
	}
	for range min(workers, len(missing)) {
		wait.Go(func() {
			for i := next.Add(1) - 1; i < int64(len(missing)); i = next.Add(1) - 1 {
				decoded[i] = decodeDocument(r.kinds, missing[i].part)
			}
		})
	}
	wait.Wait()
	for i, p := range missing {
		documents[p.sum] = decoded[i]
	}
	for _, f := range r.files {
		for i := range f.parts {
			f.parts[i].part.text = nil
		}
	}
	r.documents = documents
}

// reason is an error without the path, which the finding's origin has.
func reason(err error) string {
	var msg string
	for e := err; e != nil; {
		msg = e.Error()
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = u.Unwrap()
	}
	return "cannot be read: " + msg
}
