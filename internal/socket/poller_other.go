//go:build !linux

package socket

import (
	"errors"
	"time"
)

// Poller is not to be had here.
type Poller struct{}

// NewPoller fails.
func NewPoller() (*Poller, error) { return nil, errors.ErrUnsupported }

func (*Poller) Watch(int32) error         { return errors.ErrUnsupported }
func (*Poller) Wait(func(fd int32)) error { return errors.ErrUnsupported }
func (*Poller) Look(func(fd int32))       {}
func (*Poller) WakeAt(time.Time)          {}
func (*Poller) Close() error              { return nil }
