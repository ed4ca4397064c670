//go:build !unix

package process

import (
	"errors"
	"net"

	"github.com/weirmesh/weir/internal/socket"
)

var errNoHandover = errors.New("the system cannot pass sockets between processes")

func sendSockets(*net.UnixConn, []byte, []socket.Bound) error { return errNoHandover }

func receiveSockets(*net.UnixConn) ([]byte, []socket.Bound, error) { return nil, nil, errNoHandover }
