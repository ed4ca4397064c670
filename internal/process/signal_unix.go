//go:build unix

package process

import (
	"os"
	"os/signal"
	"syscall"
)

// IgnoreBrokenPipes lets writes to a pipe that nobody reads any more fail, on the standard output and stderr too, where they would end the process:
// that a collector of logs has ended is no reason to drop traffic.
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
