package admission

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestNoRolloutsAreKnownWhereNobodyCarriesThemOut has an API server that does not say at first, and then has OpenKruise.
func TestNoRolloutsAreKnownWhereNobodyCarriesThemOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		fails := true
		var log strings.Builder
		k := &Known{Logger: slog.New(slog.NewTextHandler(&log, nil)), Obstacle: func(context.Context) (string, error) {
			if fails {
				fails = false
				return "", errors.New("no answer")
			}
			return "OpenKruise", nil
		}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- k.Run(ctx) }()
		synctest.Wait()
		if all, err := k.Rollouts(ctx, "shop"); err == nil || len(all) > 0 {
			t.Errorf("before anything is known: %v, %v", all, err)
		}
		time.Sleep(look)
		synctest.Wait()
		if all, err := k.Rollouts(ctx, "shop"); err != nil || len(all) > 0 {
			t.Errorf("where OpenKruise is: %v, %v", all, err)
		}
		if !strings.Contains(log.String(), "no answer") {
			t.Errorf("the log is %s", log.String())
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
