//go:build !linux

package cli

// portHolder names the process that listens on a TCP port; elsewhere than on Linux it is not known.
func portHolder(int32) string { return "" }
