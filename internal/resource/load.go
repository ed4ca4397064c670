package resource

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"path/filepath"
	"slices"
)

// Load reads objects of some kinds from paths once: files, folders with all their *.yaml, *.yml and *.json (hidden ones are passed over), and "-"
// for stdin. What is wrong inside a file is a finding of the Set; the error is for a path that cannot be read.
func Load(kinds Kinds, paths []string, stdin io.Reader) (*Set, error) {
	r := newReader(kinds, paths)
	l, err := r.open(stdin)
	if err != nil {
		return nil, err
	}
	r.read(l)
	return r.set(l), nil
}

// open lists the paths for the first time, when each must be there, and reads stdin if it is among them.
func (r *reader) open(stdin io.Reader) (*listing, error) {
	l := list(r.paths)
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(l.errs)) {
		// An error in a single entry of a folder is a finding, as it is later.
		if slices.ContainsFunc(r.paths, func(p string) bool { return filepath.Clean(p) == filepath.Clean(path) }) {
			errs = append(errs, fmt.Errorf("%s %s", path, reason(l.errs[path])))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	if slices.Contains(r.paths, stdinPath) {
		if stdin == nil {
			return nil, errors.New("the standard input cannot be read here")
		}
		if err := r.readStdin(stdin); err != nil {
			return nil, err
		}
	}
	return l, nil
}
