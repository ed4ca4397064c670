package peertest

import (
	"errors"
	"net"
	"syscall"
	"testing"
)

func TestAnAddressThatRefusesIsNobodyElses(t *testing.T) {
	addr := Refusing(t)
	if l, err := net.Listen("tcp", addr); !errors.Is(err, syscall.EADDRINUSE) {
		if err == nil {
			l.Close()
		}
		t.Errorf("somebody else listens there: %v", err)
	}
	if c, err := net.Dial("tcp", addr); !errors.Is(err, syscall.ECONNREFUSED) {
		if err == nil {
			c.Close()
		}
		t.Errorf("a connection is not refused: %v", err)
	}
}
