//go:build unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// IgnoreBrokenPipes lets writes to a closed pipe fail, also on the standard output and stderr, where they would end the
// process: traffic must not be dropped because a log collector has ended.
func IgnoreBrokenPipes() { signal.Ignore(syscall.SIGPIPE) }

// OnRotate calls f at each SIGUSR1, which would end the process otherwise, until the result is called; that waits for an f under way.
func OnRotate(f func()) (stop func()) {
	signals, quit, done := make(chan os.Signal, 1), make(chan struct{}), make(chan struct{})
	signal.Notify(signals, syscall.SIGUSR1)
	go func() {
		defer close(done)
		defer signal.Stop(signals)
		for {
			select {
			case <-quit:
				return
			case <-signals:
				f()
			}
		}
	}()
	return func() { close(quit); <-done }
}
