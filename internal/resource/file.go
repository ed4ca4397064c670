package resource

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
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
	// linked is how many names were looked at behind symbolic links in folders.
	linked int
}

// Bounds of what is looked at in one listing. Whoever writes into a folder may put a link there to a whole disk, or to
// folders that never end; that must neither take a core nor hold up the other changes.
const (
	// maxNames is how many names of files, folders and links a path may lead to, without those behind links in it.
	maxNames = 100_000
	// maxLinked is the same for one symbolic link in a folder and all that is behind it, maxLinkedAll for all links of
	// a path together.
	maxLinked, maxLinkedAll = 10_000, 50_000
	// maxDepth is how many folders may lie within each other.
	maxDepth = 32
)

// list finds the files under paths. Symbolic links are followed, as volumes of ConfigMaps consist of them. What is
// behind links comes last, so that nothing there can use up the bounds of what is in the folder itself.
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
		l.follow(path)
	}
	slices.Sort(l.files)
	return l
}

// follow visits a path that a user named and all that it leads to.
func (l *listing) follow(root string) {
	l.watchLinks(root)
	b := newBranch(l, root, maxNames, errTooMany)
	b.visit(root, 0)
	b.folders()
	l.take(b)
	if b.over != nil {
		l.errs[root] = b.over
	}
	left := maxLinkedAll
	for _, link := range b.links {
		l.watchLinks(link.path)
		of := newBranch(l, root, min(left, maxLinked), errLinkedMany)
		if left <= 0 {
			l.errs[link.path] = errLinkedMany
			continue
		}
		of.visit(link.path, link.depth)
		of.folders()
		for i := 0; i < len(of.links) && of.over == nil; i++ {
			of.visit(of.links[i].path, of.links[i].depth)
			of.folders()
		}
		left -= of.looked
		l.linked += of.looked
		if of.over != nil {
			l.errs[link.path] = of.over
			continue
		}
		for _, inner := range of.links {
			l.watchLinks(inner.path)
		}
		l.take(of)
	}
}

// take adds a branch to the listing.
func (l *listing) take(b *branch) {
	for _, path := range b.files {
		l.files = append(l.files, path)
		l.root[path] = b.root
	}
	for real, isFolder := range b.seen {
		l.seen[real] = true
		if isFolder {
			l.watched[real] = nil
		}
	}
	maps.Copy(l.errs, b.errs)
}

// branch is what a path, or a symbolic link in one, leads to.
type branch struct {
	of   *listing
	root string // the path that the user named
	most int
	// looked is how many names were looked at, at most most.
	looked int
	beyond error // what is reported then
	over   error // beyond, once there is more than may be looked at
	files  []string
	// seen are the real paths of files (false) and folders (true).
	seen  map[string]bool
	errs  map[string]error
	next  []node // folders to read, those nearest to the root first
	links []node // symbolic links that were not visited
}

type node struct {
	path, real string
	depth      int // how many folders it lies in, from the root
}

var (
	errTooMany    = fmt.Errorf("it leads to more than %d files and folders", maxNames)
	errLinkedMany = fmt.Errorf("the symbolic link leads to more than %d files and folders, or it and the links beside it lead to more than %d", maxLinked, maxLinkedAll)
)

func newBranch(of *listing, root string, most int, beyond error) *branch {
	return &branch{of: of, root: root, most: most, beyond: beyond, seen: make(map[string]bool), errs: make(map[string]error)}
}

// visit looks at a path that may be a symbolic link. Its target may be missing unless it is a root.
func (b *branch) visit(path string, depth int) {
	if b.looked == b.most {
		b.over = b.beyond
		return
	}
	b.looked++
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
		if path == b.root || !errors.Is(err, fs.ErrNotExist) {
			b.errs[path] = err
		}
	case info.IsDir():
		b.folder(node{path, real, depth})
	case path == b.root || manifest(path):
		b.file(node{path, real, depth}, info.Mode())
	}
}

func (b *branch) file(p node, mode fs.FileMode) {
	switch _, seen := b.seen[p.real]; {
	case seen || b.of.seen[p.real]:
		b.of.again[b.root] = true
	case !mode.IsRegular():
		b.errs[p.path] = errNoFile
	default:
		b.seen[p.real] = false
		b.files = append(b.files, p.path)
	}
}

func (b *branch) folder(p node) {
	switch _, seen := b.seen[p.real]; {
	case seen || b.of.seen[p.real]:
		b.of.again[b.root] = true
	case p.depth > maxDepth:
		b.errs[p.path] = fmt.Errorf("it lies %d folders deep, the bound is %d", p.depth, maxDepth)
	default:
		b.seen[p.real] = true
		b.next = append(b.next, p)
	}
}

// folders reads the folders that were found, and those in them.
func (b *branch) folders() {
	for len(b.next) > 0 && b.over == nil {
		p := b.next[0]
		b.next = b.next[1:]
		entries, err := b.names(p.path)
		if err != nil {
			b.errs[p.path] = err
		}
		slices.SortFunc(entries, func(x, y fs.DirEntry) int { return strings.Compare(x.Name(), y.Name()) })
		for _, e := range entries {
			name := e.Name()
			if strings.HasPrefix(name, ".") {
				continue
			}
			at := node{filepath.Join(p.path, name), filepath.Join(p.real, name), p.depth + 1}
			switch {
			case e.Type()&fs.ModeSymlink != 0:
				b.links = append(b.links, at)
			case e.IsDir():
				b.folder(at)
			case manifest(name):
				b.file(at, e.Type())
			}
		}
	}
}

// names returns the entries of a folder, those that may still be looked at.
func (b *branch) names(path string) ([]fs.DirEntry, error) {
	f, err := openAtOnce(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := real(f); err != nil {
		return nil, err
	}
	entries, err := f.ReadDir(b.most - b.looked + 1)
	if err == io.EOF {
		err = nil
	}
	b.looked += len(entries)
	if b.looked > b.most {
		b.looked = b.most
		b.over = b.beyond
	}
	return entries, err
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
	for path := file; ; {
		if l.errs[path] != nil {
			return true
		}
		up := filepath.Dir(path)
		if up == path || filepath.Base(path) == ".." {
			return false
		}
		path = up
	}
}

func manifest(name string) bool {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}
