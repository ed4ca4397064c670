package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/weirmesh/weir/test/cluster/image"
)

// driver is a released program of others that carries releases out. It is built in the folder of its own module, with its own
// go.mod and go.sum: as its makers build it.
type driver struct {
	module, version, sum string // the sum is that of go.sum files
	program              string
}

// drivers by the names of their images.
var drivers = map[string]driver{
	flaggerImage: {"github.com/fluxcd/flagger", "v1.44.0", "h1:JAb2mE3AAO5Y/JkfHy6xbFDPDPk9lGvqXwmtztNbdhw=", "./cmd/flagger"},
	// Later versions need Go 1.26.10.
	argoImage: {"github.com/argoproj/argo-rollouts", "v1.10.1", "h1:6oyVPGiHHxu3ixkT6mngemh88HLPDoTX1IwO6KNR1Y4=", "./cmd/rollouts-controller"},
}

// dir has its module fetched, if it is not there yet, and returns its folder.
func (d driver) dir(ctx context.Context) (string, error) {
	// Where no module is the main one, the version is what decides.
	out, err := output(ctx, "/", []string{"GOWORK=off"}, "go", "mod", "download", "-json", d.module+"@"+d.version)
	if err != nil {
		return "", err
	}
	var got struct{ Dir, Sum string }
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		return "", fmt.Errorf("go mod download %s: %w", d.module, err)
	}
	if got.Sum != d.sum {
		return "", fmt.Errorf("module %s@%s has the sum %s, want %s", d.module, d.version, got.Sum, d.sum)
	}
	return got.Dir, nil
}

func findDriver(name string) (driver, error) {
	d, ok := drivers[name]
	if !ok {
		return driver{}, fmt.Errorf("no program %q; there are %s", name, strings.Join(slices.Sorted(maps.Keys(drivers)), ", "))
	}
	return d, nil
}

// driverPrograms are those of drivers among named images.
func driverPrograms(ctx context.Context, named []string) (programs []image.Program, err error) {
	for _, name := range named {
		d, ok := drivers[name]
		if !ok {
			continue
		}
		dir, err := d.dir(ctx)
		if err != nil {
			return nil, err
		}
		programs = append(programs, image.Program{Dir: dir, Package: d.program, Tags: []string{name + ":dev"}})
	}
	return programs, nil
}
