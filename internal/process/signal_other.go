//go:build !unix

package process

// IgnoreBrokenPipes does nothing on systems without such signals.
func IgnoreBrokenPipes() {}

// OnRotate has no signal here; files that were renamed are noticed with the next write.
func OnRotate(func()) (stop func()) { return func() {} }
