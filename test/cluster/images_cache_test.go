package main

import (
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

func TestImagesOfTreesThatNobodyUsesAreRemoved(t *testing.T) {
	cache, tree, now := t.TempDir(), t.TempDir(), time.Now()
	gone := filepath.Join(tree, "gone")
	for _, f := range []struct {
		name, tree string
		idle       time.Duration
	}{
		{"images-1", tree, keepImages - time.Hour},
		{"images-2", tree, keepImages + time.Hour},
		{"images-3", gone, keepOrphans - time.Hour},
		{"images-4", gone, keepOrphans + time.Hour},
		{"images-5", "", keepImages - time.Hour},
		{"images-6", "", keepImages + time.Hour},
		{"default", tree, keepImages + time.Hour}, // a cluster
		{"images-of-mine", tree, keepImages + time.Hour},
	} {
		dir := filepath.Join(cache, f.name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		used := dir
		if f.tree != "" {
			used = filepath.Join(dir, treeFile)
			if err := os.WriteFile(used, []byte(f.tree), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Chtimes(used, now.Add(-f.idle), now.Add(-f.idle)); err != nil {
			t.Fatal(err)
		}
	}
	// A builder's own folder is in use, however old it was.
	own := &builder{source: tree, dir: filepath.Join(cache, "images-2")}
	for range 2 {
		if err := own.tidy(now); err != nil {
			t.Fatal(err)
		}
		left, err := filepath.Glob(filepath.Join(cache, "*"))
		for i := range left {
			left[i] = filepath.Base(left[i])
		}
		if want := []string{"default", "images-1", "images-2", "images-3", "images-5", "images-of-mine"}; err != nil || !slices.Equal(left, want) {
			t.Errorf("left are %q, want %q; %v", left, want, err)
		}
	}
	other := &builder{source: tree, dir: filepath.Join(cache, "images-1")}
	if err := other.tidy(now.Add(keepImages)); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(own.dir); err != nil {
		t.Errorf("one that was used a moment before its time was over: %v", err)
	}
}
