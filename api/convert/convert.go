// Package convert turns objects of one version of a kind into another, as pure functions. For each kind there is a
// table of its versions, each with the way to one version that can hold everything, the hub, and back.
//
// It knows no kind: api/split and api/specs have the tables, and code that converts objects for an API server uses
// them.
package convert

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
)

// Kind is a kind with several versions that differ in more than their name.
type Kind struct {
	// Group and Name are those of the kind, Plural its resource as in paths.
	Group, Name, Plural string
	// Hub is the version that can express all others. An API server must store this one: the way to it may fail, the
	// way from it may not.
	Hub string
	// Versions are all others.
	Versions map[string]Version
}

// Version is how a version differs from the hub. The functions change the object that they are given, all but its
// apiVersion, its kind and metadata other than annotations, and are the inverse of each other.
type Version struct {
	// Up makes the hub's form. It fails for values that the hub cannot express, or that are invalid; the error names
	// the field.
	Up func(u map[string]any) error
	// Down makes this version's form of an object that the hub's schema admits. It cannot fail, because one object
	// would then prevent all from being listed. Fields that the version does not have go to an annotation (Keep).
	Down func(u map[string]any)
}

// Definition is the name of the custom resource definition.
func (k Kind) Definition() string { return k.Plural + "." + k.Group }

// Convert returns the object in another version of its kind. u is left alone. Any way from the hub through versions and
// back is the identity, and from a version to the hub and back.
func (k Kind) Convert(u map[string]any, version string) (map[string]any, error) {
	out := runtime.DeepCopyJSON(u)
	if err := k.Change(out, version); err != nil {
		return nil, err
	}
	return out, nil
}

// Change makes the object u one of another version. After an error it is of no use.
func (k Kind) Change(u map[string]any, version string) error {
	apiVersion, _ := u["apiVersion"].(string)
	from, ok := strings.CutPrefix(apiVersion, k.Group+"/")
	if !ok {
		return fmt.Errorf("apiVersion: %q is not of %s", apiVersion, k.Group)
	}
	for _, v := range []string{from, version} {
		if _, ok := k.Versions[v]; !ok && v != k.Hub {
			return fmt.Errorf("apiVersion: %s has no version %q; its versions are %s", k.Name, v, strings.Join(k.All(), ", "))
		}
	}
	if from == version {
		return nil
	}
	if up := k.Versions[from].Up; up != nil {
		if err := up(u); err != nil {
			return err
		}
	}
	if down := k.Versions[version].Down; down != nil {
		down(u)
	}
	u["apiVersion"] = k.Group + "/" + version
	return nil
}

// All returns the names of all versions, the hub first.
func (k Kind) All() []string {
	return append([]string{k.Hub}, slices.Sorted(maps.Keys(k.Versions))...)
}
