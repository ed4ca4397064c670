package socket

import (
	"errors"
	"net"
	"testing"
)

func TestOpenOpensSocketsOfBothNetworks(t *testing.T) {
	tcp, err := Open("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer tcp.Close()
	address := tcp.Addr().String()
	udp, err := Open("udp", address) // ports of one number are no obstacle to each other
	if err != nil {
		t.Fatal(err)
	}
	if tcp.Stream == nil || tcp.Packet != nil || tcp.Network() != "tcp" || udp.Stream != nil || udp.Packet == nil || udp.Network() != "udp" {
		t.Errorf("%+v and %+v", tcp, udp)
	}
	if udp.Addr().String() != address {
		t.Errorf("address %s, want %s", udp.Addr(), address)
	}
	for _, b := range []Bound{tcp, udp} {
		if _, err := b.SyscallConn(); err != nil {
			t.Errorf("%s: %v", b.Network(), err)
		}
	}
	if err := udp.Close(); err != nil {
		t.Error(err)
	}
	if _, err := udp.Packet.WriteTo(nil, tcp.Addr()); err == nil {
		t.Error("it is not closed")
	}
	if _, err := Open("udp", "127.0.0.1:none"); err == nil {
		t.Error("an address that is none can be bound")
	}
}

// noSocket is a listener without a descriptor.
type noSocket struct{ net.Listener }

func TestASocketWithoutADescriptorSaysSo(t *testing.T) {
	if _, err := (Bound{Stream: noSocket{}}).SyscallConn(); !errors.Is(err, errors.ErrUnsupported) {
		t.Errorf("error %v", err)
	}
}

func TestNamesAreReadAsTheyAreWritten(t *testing.T) {
	for text, want := range map[string]Name{
		":80": {"tcp", ":80"}, "[::1]:80": {"tcp", "[::1]:80"}, "localhost:9090": {"tcp", "localhost:9090"},
		"udp/:53": {"udp", ":53"}, "udp/[::1]:53": {"udp", "[::1]:53"}, "sctp/:1": {"sctp", ":1"},
	} {
		if got := ParseName(text); got != want || got.String() != text {
			t.Errorf("%q is read as %+v, written %q", text, got, got)
		}
	}
}
