//go:build !unix

package process

import (
	"errors"
	"net"
)

var errNoHandover = errors.New("the system cannot pass sockets between processes")

func sendSockets(*net.UnixConn, []byte, []net.Listener) error { return errNoHandover }

func receiveSockets(*net.UnixConn) ([]byte, []net.Listener, error) { return nil, nil, errNoHandover }
