//go:build !linux

package process

func unmapProgram() error { return nil }
