//go:build !linux

package socket

import (
	"net/netip"
	"syscall"
)

// OriginalDestination fails: there are no redirects.
func OriginalDestination(uintptr) (netip.AddrPort, error) { return netip.AddrPort{}, syscall.EINVAL }

// BindLoopback fails, as there are no redirects that need it.
func BindLoopback(uintptr) (netip.AddrPort, error) { return netip.AddrPort{}, syscall.EINVAL }
