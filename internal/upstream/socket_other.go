//go:build !unix

package upstream

import "syscall"

const canAsk = false

func readSocket(uintptr, []byte) (int, error)  { return 0, syscall.EINVAL }
func writeSocket(uintptr, []byte) (int, error) { return 0, syscall.EINVAL }
