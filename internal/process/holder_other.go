//go:build !linux

package process

// PortHolder names the process that listens on a TCP port; elsewhere than on Linux it is not known.
func PortHolder(int32) string { return "" }
