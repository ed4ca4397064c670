package local

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
)

// maxStore bounds the size of a Store's file in bytes.
const maxStore = 64 << 20

// Store keeps how far Rollouts are in a file. One process at a time may write it.
type Store struct {
	// Path is the file. Beside it are PATH.lock and, for a moment, a file with a longer name.
	Path string

	lock *os.File
	last []byte
}

// DefaultPath is the file of a Store for Rollouts in some files and folders: in $STATE_DIRECTORY, which systemd gives a
// service, or in $XDG_STATE_HOME/weir, or ~/.local/state/weir. Its name depends on the paths, so that gateways of
// different folders have different files.
func DefaultPath(paths []string) (string, error) {
	dir, _, _ := strings.Cut(os.Getenv("STATE_DIRECTORY"), ":")
	if dir == "" {
		dir = os.Getenv("XDG_STATE_HOME")
		if dir == "" {
			home, err := os.UserHomeDir()
			if err != nil {
				return "", err
			}
			dir = filepath.Join(home, ".local", "state")
		}
		dir = filepath.Join(dir, "weir")
	}
	sum := sha256.New()
	for _, p := range paths {
		if p == "-" { // the standard input has no name of its own
			p = "."
		}
		absolute, err := filepath.Abs(p)
		if err != nil {
			return "", err
		}
		fmt.Fprintln(sum, absolute)
	}
	return filepath.Join(dir, "rollouts-"+hex.EncodeToString(sum.Sum(nil)[:8])+".json"), nil
}

// stored is the form of the file.
type stored struct {
	Version  int               `json:"version"`
	Rollouts map[string]*state `json:"rollouts"` // by "namespace/name"
}

const storeVersion = 1

// load reads the file. A file that is not there is empty. One that cannot be read is kept as PATH.broken, and the error
// says why.
func (s *Store) load() (map[string]*state, error) {
	f, err := os.Open(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return map[string]*state{}, nil
	}
	if err != nil {
		return map[string]*state{}, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxStore+1))
	if err != nil {
		return map[string]*state{}, err
	}
	var in stored
	switch {
	case len(text) > maxStore:
		err = fmt.Errorf("it has more than %d bytes", maxStore)
	default:
		err = json.Unmarshal(text, &in)
		if err == nil && in.Version != storeVersion {
			err = fmt.Errorf("its version is %d, and %d is wanted", in.Version, storeVersion)
		}
	}
	if err != nil {
		kept := s.Path + ".broken"
		return map[string]*state{}, errors.Join(fmt.Errorf("%s: %w; it is kept as %s, and all Rollouts begin anew", s.Path, err, kept), os.Rename(s.Path, kept))
	}
	for key, st := range in.Rollouts {
		if st == nil {
			delete(in.Rollouts, key)
		}
	}
	if in.Rollouts == nil {
		in.Rollouts = map[string]*state{}
	}
	s.last = text
	return in.Rollouts, nil
}

// save writes the file, if it would change. A reader sees the old content or the new one, whole.
func (s *Store) save(states map[string]*state) error {
	text, err := json.MarshalIndent(stored{storeVersion, states}, "", " ")
	if err != nil {
		return err
	}
	if bytes.Equal(text, s.last) || s.last == nil && len(states) == 0 {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o700); err != nil {
		return err
	}
	// A name that nobody can have prepared: the folder may be everybody's.
	f, err := os.CreateTemp(filepath.Dir(s.Path), filepath.Base(s.Path)+".*")
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err = errors.Join(err, f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), s.Path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	s.last = text
	return nil
}

// acquire makes this process the one that writes the file, and reports whether it is; it does not wait.
func (s *Store) acquire() (bool, error) {
	if s.lock != nil {
		return true, nil
	}
	if err := os.MkdirAll(filepath.Dir(s.Path), 0o700); err != nil {
		return false, err
	}
	f, err := os.OpenFile(s.Path+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return false, err
	}
	ok, err := lockFile(f)
	if !ok {
		return false, errors.Join(err, f.Close())
	}
	s.lock = f
	return true, nil
}

// release lets another process write the file.
func (s *Store) release() {
	if s.lock != nil {
		s.lock.Close()
		s.lock = nil
	}
}
