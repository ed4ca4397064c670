package socket

import (
	"net"
	"net/netip"
	"strconv"
	"testing"
)

func TestQueueLeavesConnectionsToOthersWhileBusy(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	q := OpenQueue(ln)
	if q == nil {
		t.Fatal("the socket cannot be used")
	}
	defer q.Close()
	free := func() bool { return false }
	started := make(chan net.Conn, 10)
	start := func(nc net.Conn) { started <- nc }
	ended := make(chan error)
	go func() { ended <- q.Take(free, start) }()
	for range 3 { // each is waited for
		dial(t, ln.Addr().String())
		(<-started).Close()
	}
	q.Wake()
	if err := <-ended; !isTimeout(err) {
		t.Errorf("woken: %v", err)
	}
	if err := q.Take(free, start); !isTimeout(err) {
		t.Errorf("after it was woken: %v", err)
	}

	q = OpenQueue(ln)
	defer q.Close()
	dial(t, ln.Addr().String())
	if err := q.Take(func() bool { return true }, start); err != nil || len(started) > 0 {
		t.Errorf("while busy: %v, and %d connections", err, len(started))
	}
	nc, err := ln.Accept()
	if err != nil {
		t.Fatal(err)
	}
	nc.Close()
}

func TestAddressesHaveTheNamesOfTheirZones(t *testing.T) {
	all, err := net.Interfaces()
	if err != nil || len(all) == 0 {
		t.Skip("no interfaces: ", err)
	}
	a := netip.AddrPortFrom(netip.MustParseAddr("fe80::1"), 80)
	if got := tcpAddr(a).String(); got != "[fe80::1]:80" {
		t.Errorf("without zone: %s", got)
	}
	a = netip.MustParseAddrPort("[fe80::1%" + strconv.Itoa(all[0].Index) + "]:80")
	if got, want := tcpAddr(a).String(), "[fe80::1%"+all[0].Name+"]:80"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
	a = netip.MustParseAddrPort("[fe80::1%99999999]:80") // gone meanwhile
	if got, want := tcpAddr(a).String(), a.String(); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
