package node

import (
	"errors"
	"fmt"
	"hash/fnv"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// cgroups is where the hierarchies of control groups are: it is the only one, or has one for each controller.
const cgroups = "/sys/fs/cgroup"

// group is the control group of the node's pods. Each node needs one of its own, as a kubelet removes those of pods it does not know.
func (c *config) group() string {
	h := fnv.New32a()
	h.Write([]byte(c.Dir))
	return fmt.Sprintf("weir-node-%08x", h.Sum32())
}

// hierarchies are the roots that a node's group has to be in.
func hierarchies() ([]string, error) {
	if _, err := os.Stat(filepath.Join(cgroups, "cgroup.controllers")); err == nil {
		return []string{cgroups}, nil
	}
	entries, err := os.ReadDir(cgroups)
	if err != nil {
		return nil, err
	}
	var roots []string
	for _, e := range entries {
		if e.IsDir() { // the others are links to them
			roots = append(roots, filepath.Join(cgroups, e.Name()))
		}
	}
	return roots, nil
}

func (c *config) makeGroup() error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		if err := delegate(root); err != nil {
			return err
		}
		if err := os.Mkdir(filepath.Join(root, c.group()), 0o755); err != nil && !errors.Is(err, fs.ErrExist) {
			return err
		}
	}
	return nil
}

// delegate gives the groups below the root all its controllers, which is to be asked for in the unified hierarchy.
func delegate(root string) error {
	controllers, err := os.ReadFile(filepath.Join(root, "cgroup.controllers"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	} else if err != nil {
		return err
	}
	for _, c := range strings.Fields(string(controllers)) {
		if err := os.WriteFile(filepath.Join(root, "cgroup.subtree_control"), []byte("+"+c), 0); err != nil {
			return err
		}
	}
	return nil
}

// removeGroup takes the groups away, which do not belong to a namespace. The kernel lets go of them a moment after their processes.
func (c *config) removeGroup(limit time.Time) error {
	roots, err := hierarchies()
	if err != nil {
		return err
	}
	for _, root := range roots {
		for {
			err := removeTree(filepath.Join(root, c.group()))
			if err == nil {
				break
			}
			if time.Now().After(limit) {
				return err
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	return nil
}

// removeTree removes a group with those below it.
func removeTree(root string) error {
	var groups []string
	err := filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() {
			groups = append(groups, path)
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, g := range slices.Backward(groups) {
		if err := syscall.Rmdir(g); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("remove control group %s: %w", g, err)
		}
	}
	return nil
}
