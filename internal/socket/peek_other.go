//go:build !unix

package socket

import "syscall"

const CanPeek = false

func Peek(uintptr, []byte) (int, error) { return 0, syscall.EINVAL }
func Take(uintptr, []byte) error        { return syscall.EINVAL }
