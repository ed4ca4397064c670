//go:build !linux

package proxy

import (
	"errors"
	"time"
)

// parking would need a poller of its own; idle connections keep their goroutines here.
type parking struct{}

func newParking(time.Duration) (*parking, error) { return nil, errors.ErrUnsupported }
func (p *parking) evict(*bind)                   {}
func (p *parking) shed(int) int                  { return 0 }
func (p *parking) close()                        {}
func (c *conn) park() bool                       { return false }
