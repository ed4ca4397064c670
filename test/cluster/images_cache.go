package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"time"
)

// Each tree has a folder of images, some 250 MB, which nobody needs when the tree is gone.
const (
	// keepImages is how long a folder is kept after its last use.
	keepImages = 3 * 24 * time.Hour
	// keepOrphans is the same where the tree is gone: longer than any run.
	keepOrphans = 3 * time.Hour
	// treeFile of a folder holds its tree's path; its time is that of the last use.
	treeFile = "tree"
)

// imagesFolder matches their names; beside them are the folders of clusters.
var imagesFolder = regexp.MustCompile(`^images-[0-9a-f]{1,8}$`)

// tidy notes that the builder's folder is used now, and removes the folders of other trees that are not any more.
func (b *builder) tidy(now time.Time) error {
	note := filepath.Join(b.dir, treeFile)
	if err := errors.Join(os.WriteFile(note, []byte(b.source), 0o644), os.Chtimes(note, now, now)); err != nil {
		return err
	}
	parent := filepath.Dir(b.dir)
	all, err := os.ReadDir(parent)
	errs := []error{err}
	for _, d := range all {
		dir := filepath.Join(parent, d.Name())
		if d.IsDir() && imagesFolder.MatchString(d.Name()) && dir != b.dir && unused(dir, now) {
			errs = append(errs, os.RemoveAll(dir))
		}
	}
	return errors.Join(errs...)
}

// unused says that a folder of images may be removed.
func unused(dir string, now time.Time) bool {
	info, err := os.Stat(filepath.Join(dir, treeFile))
	if errors.Is(err, fs.ErrNotExist) { // being made, or before there were notes
		info, err = os.Stat(dir)
	}
	if err != nil {
		return false
	}
	keep := keepImages
	if tree, err := os.ReadFile(filepath.Join(dir, treeFile)); err == nil {
		if _, err := os.Stat(string(tree)); errors.Is(err, fs.ErrNotExist) {
			keep = keepOrphans
		}
	}
	return now.Sub(info.ModTime()) > keep
}
