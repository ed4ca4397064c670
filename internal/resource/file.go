package resource

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// listing is the files and folders that paths lead to.
type listing struct {
	// files are sorted, each file once, however many ways lead to it.
	files []string
	// root is the path by which a file was reached.
	root map[string]string
	// watched are the folders, by real path, in which relevant changes can happen. If the value is not nil, only
	// changes of these names are relevant.
	watched map[string][]string
	// errs are folders and paths that could not be read.
	errs map[string]error
	// again are the paths that led to the same file as an earlier path.
	again map[string]bool
	// seen are the real paths that were visited: links may lead in circles.
	seen map[string]bool
}

// list finds the files under paths. Symbolic links are followed, as volumes of ConfigMaps consist of them.
func list(paths []string) *listing {
	l := &listing{
		root: make(map[string]string), watched: make(map[string][]string),
		errs: make(map[string]error), seen: make(map[string]bool), again: make(map[string]bool),
	}
	for _, path := range paths {
		if path == stdinPath {
			continue
		}
		path = filepath.Clean(path)
		l.watchName(path)
		l.follow(path, path)
	}
	slices.Sort(l.files)
	return l
}

// follow visits a path that may be a symbolic link. Its target may be missing unless it is a root.
func (l *listing) follow(path, root string) {
	l.watchLinks(path)
	real, err := filepath.EvalSymlinks(path)
	if err == nil {
		real, err = filepath.Abs(real)
	}
	var info os.FileInfo
	if err == nil {
		info, err = os.Stat(real)
	}
	switch {
	case err != nil:
		if path == root || !errors.Is(err, fs.ErrNotExist) {
			l.errs[path] = err
		}
	case info.IsDir():
		l.folder(path, real, root)
	case path == root || info.Mode().IsRegular() && manifest(path):
		l.file(path, real, root)
	}
}

func (l *listing) file(path, real, root string) {
	if l.seen[real] {
		l.again[root] = true
		return
	}
	l.seen[real] = true
	l.files = append(l.files, path)
	l.root[path] = root
}

func (l *listing) folder(path, real, root string) {
	if l.seen[real] {
		l.again[root] = true
		return
	}
	l.seen[real] = true
	l.watched[real] = nil
	entries, err := os.ReadDir(path)
	if err != nil {
		l.errs[path] = err
	}
	for _, e := range entries {
		name := e.Name()
		if strings.HasPrefix(name, ".") {
			continue
		}
		switch {
		case e.Type()&fs.ModeSymlink != 0:
			l.follow(filepath.Join(path, name), root)
		case e.IsDir():
			l.folder(filepath.Join(path, name), filepath.Join(real, name), root)
		case e.Type().IsRegular() && manifest(name):
			l.file(filepath.Join(path, name), filepath.Join(real, name), root)
		}
	}
}

// watchName watches the folder of path for the path's last name.
func (l *listing) watchName(path string) {
	path, err := filepath.Abs(path)
	if err != nil {
		return
	}
	dir, base := filepath.Split(path)
	if dir, err = filepath.EvalSymlinks(dir); err != nil || base == "" {
		return
	}
	if names, ok := l.watched[dir]; !ok || names != nil && !slices.Contains(names, base) {
		l.watched[dir] = append(names, base)
	}
}

// watchLinks watches each symbolic link between path and its final target, and the target.
func (l *listing) watchLinks(path string) {
	rest, err := filepath.Abs(path)
	if err != nil {
		return
	}
	at := string(filepath.Separator)
	rest = strings.TrimPrefix(rest, at)
	for hops := 0; rest != "" && hops < 40; {
		var part string
		part, rest, _ = strings.Cut(rest, string(filepath.Separator))
		next := filepath.Join(at, part)
		target, err := os.Readlink(next)
		if err != nil {
			at = next
			continue
		}
		hops++
		l.watchName(next)
		if filepath.IsAbs(target) {
			at = string(filepath.Separator)
		}
		rest = strings.TrimPrefix(filepath.Join(target, rest), string(filepath.Separator))
		for strings.HasPrefix(rest, "..") && (rest == ".." || rest[2] == filepath.Separator) {
			at, rest = filepath.Dir(at), strings.TrimPrefix(rest[2:], string(filepath.Separator))
		}
	}
	l.watchName(at)
}

// under reports whether a file is below a path that could not be read.
func (l *listing) under(file string) bool {
	for path := range l.errs {
		if inside, err := filepath.Rel(path, file); err == nil && inside != ".." && !strings.HasPrefix(inside, ".."+string(filepath.Separator)) {
			return true
		}
	}
	return false
}

func manifest(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
