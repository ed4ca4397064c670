//go:build !unix

package proxy

import "syscall"

const canPeek = false

func peekSocket(uintptr, []byte) (int, error) { return 0, syscall.EINVAL }
func takeSocket(uintptr, []byte) error        { return syscall.EINVAL }
