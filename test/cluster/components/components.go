// Package components builds the programs a Kubernetes cluster consists of from Go modules, once a machine, and keeps
// them in the user's cache folder. It needs a Go toolchain and a module proxy: no images, no packages, no downloads of
// binaries. It does not run them; see apiserver.
package components

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Kubernetes is the version that is built. Everything else follows from its go.mod, etcd's version too.
const Kubernetes = "v1.36.3"

// recipe is raised when the same version comes to be built in another way.
const recipe = 1

// Component is one program.
type Component struct {
	// Name is that of the file.
	Name string
	// Package is its main package, of a module in the build list of k8s.io/kubernetes.
	Package string
}

// The components there are.
var (
	Etcd              = Component{"etcd", "go.etcd.io/etcd/server/v3"}
	APIServer         = Component{"kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"}
	Kubectl           = Component{"kubectl", "k8s.io/kubernetes/cmd/kubectl"}
	ControllerManager = Component{"kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"}
	Scheduler         = Component{"kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"}
	Kubelet           = Component{"kubelet", "k8s.io/kubernetes/cmd/kubelet"}
	Proxy             = Component{"kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"}
)

// All lists the components.
func All() []Component {
	return []Component{Etcd, APIServer, Kubectl, ControllerManager, Scheduler, Kubelet, Proxy}
}

// Find returns the component of that name.
func Find(name string) (Component, bool) {
	all := All()
	i := slices.IndexFunc(all, func(c Component) bool { return c.Name == name })
	if i < 0 {
		return Component{}, false
	}
	return all[i], true
}

// Cache is a folder of built components. The zero value is the user's, silent.
type Cache struct {
	// Dir is "weir" in os.UserCacheDir if empty.
	Dir string
	// Nice is added to the niceness of builds.
	Nice int
	// Log is told what is being built, and gets the output of builds that fail.
	Log io.Writer
}

// Programs are built components.
type Programs struct{ dir string }

// Path of a component.
func (p Programs) Path(c Component) string { return filepath.Join(p.dir, c.Name) }

// buildTimeout bounds the build of one component, with the downloads for it.
const buildTimeout = 45 * time.Minute

// Ensure builds those of the components that the cache does not have. Of several processes that call it one builds, the
// others wait.
func (c Cache) Ensure(ctx context.Context, components ...Component) (Programs, error) {
	home, err := c.home()
	if err != nil {
		return Programs{}, err
	}
	programs := Programs{filepath.Join(home, "bin")}
	missing, err := programs.missing(components)
	if err != nil || len(missing) == 0 {
		return programs, err
	}
	if err := os.MkdirAll(programs.dir, 0o755); err != nil {
		return Programs{}, err
	}
	unlock, err := Lock(ctx, filepath.Join(home, "lock"), c.logf)
	if err != nil {
		return Programs{}, err
	}
	defer unlock()
	if missing, err = programs.missing(components); err != nil {
		return Programs{}, err
	}
	for _, component := range missing {
		ctx, cancel := context.WithTimeout(ctx, buildTimeout)
		err := c.build(ctx, filepath.Join(home, "module"), component, programs.Path(component))
		cancel()
		if err != nil {
			return Programs{}, fmt.Errorf("build %s: %w", component.Name, err)
		}
	}
	return programs, nil
}

// home is the folder of this version and recipe.
func (c Cache) home() (string, error) {
	dir := c.Dir
	if dir == "" {
		user, err := os.UserCacheDir()
		if err != nil {
			return "", fmt.Errorf("no cache folder: %w", err)
		}
		dir = filepath.Join(user, "weir")
	}
	return filepath.Join(dir, fmt.Sprintf("kubernetes-%s-%d", Kubernetes, recipe)), nil
}

func (p Programs) missing(components []Component) ([]Component, error) {
	var missing []Component
	for _, component := range components {
		_, err := os.Stat(p.Path(component))
		if errors.Is(err, fs.ErrNotExist) {
			missing = append(missing, component)
		} else if err != nil {
			return nil, err
		}
	}
	return missing, nil
}

func (c Cache) logf(format string, args ...any) {
	if c.Log != nil {
		fmt.Fprintf(c.Log, format+"\n", args...)
	}
}
