//go:build !unix

package cli

func ignoreBrokenPipes() {}

// onRotate has no signal here; files that were renamed are noticed with the next write.
func onRotate(func()) (stop func()) { return func() {} }
