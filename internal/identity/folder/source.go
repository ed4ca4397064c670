package folder

import (
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/weirmesh/weir/internal/identity/spiffe"
)

// Source is a pod's identity as it is in a folder now. A renewed certificate, and roots that were replaced, are used
// from the next handshake on, at most a second later. While a file cannot be used, the identity is what it was.
type Source struct {
	roots, file string
	log         *slog.Logger

	mu      sync.Mutex
	looked  time.Time
	stamps  [2]stamp
	current *spiffe.Identity
}

// stamp tells a file from what it was.
type stamp struct {
	changed time.Time
	size    int64
}

// lookEvery is how often the files are looked at, at most.
const lookEvery = time.Second

// Open reads a pod's identity.
func Open(path, namespace, name string, log *slog.Logger) (*Source, error) {
	for _, n := range []string{namespace, name} {
		if err := checkName(n); err != nil {
			return nil, err
		}
	}
	s := &Source{roots: filepath.Join(path, rootsFile), file: filepath.Join(path, namespace, name+".pem"), log: log}
	s.looked, s.stamps = time.Now(), s.stamp()
	var err error
	s.current, err = load(s.roots, s.file)
	return s, err
}

func (s *Source) stamp() (out [2]stamp) {
	for i, path := range []string{s.roots, s.file} {
		if info, err := os.Stat(path); err == nil {
			out[i] = stamp{info.ModTime(), info.Size()}
		}
	}
	return out
}

// Identity returns the identity as it is now.
func (s *Source) Identity() *spiffe.Identity {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if now.Sub(s.looked) < lookEvery {
		return s.current
	}
	s.looked = now
	stamps := s.stamp()
	if stamps == s.stamps {
		return s.current
	}
	s.stamps = stamps // of a file that cannot be used it is told once
	next, err := load(s.roots, s.file)
	if err != nil {
		s.log.Error("the identity stays as it was", "file", s.file, "error", err)
		return s.current
	}
	if next.ID != s.current.ID {
		s.log.Warn("the identity is another one now", "file", s.file, "was", s.current.ID.String(), "is", next.ID.String())
	}
	s.current = next
	return s.current
}
