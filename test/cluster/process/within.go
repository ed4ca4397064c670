package process

import (
	"context"
	"time"
)

const (
	// again is after how long Within tries again at first, and seldom at last: who asks an API server all the time keeps it from what is waited for.
	again  = 20 * time.Millisecond
	seldom = 200 * time.Millisecond
)

// Within tries until it succeeds, and fails with the last error when the time is over or ctx has ended.
func Within(ctx context.Context, limit time.Duration, try func() error) error {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	for pause := again; ; pause = min(pause*5/4, seldom) {
		err := try()
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-time.After(pause):
		}
	}
}
