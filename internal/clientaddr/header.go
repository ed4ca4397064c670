package clientaddr

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"net/netip"

	"github.com/pires/go-proxyproto"
)

const (
	// MaxHeader bounds a PROXY header, in bytes. The specification (section 2) asks receivers to take 536; with a client's certificate among the
	// extensions there can be two thousand.
	MaxHeader = 4 << 10

	maxV1    = 107 // section 2.1, with CR and LF
	leastV1  = len("PROXY UNKNOWN\r\n")
	prefixV2 = 16 // signature, version and command, family, length
)

// ErrHeader is in all errors about bytes that are not a PROXY header.
var ErrHeader = errors.New("no PROXY header")

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrHeader, fmt.Sprintf(format, args...))
}

// Pair is the source and the destination of a connection.
type Pair struct {
	// Source and Destination have the port 0 if none is known.
	Source, Destination netip.AddrPort
}

// Header is a PROXY header.
type Header struct {
	// Pair is not valid in a header that names no client: the command LOCAL (the proxy's own connection, such as a
	// health check), the family UNKNOWN, and addresses that are not IP.
	Pair
	// TLS: the client spoke TLS to the proxy (PP2_TYPE_SSL).
	TLS bool
}

// Scanner gathers a PROXY header out of pieces, and not a byte more. The zero value begins.
type Scanner struct{ b []byte }

// Bytes are the gathered bytes.
func (s *Scanner) Bytes() []byte { return s.b }

// Need is how many more bytes there are in the header at least; 0 once it is whole.
func (s *Scanner) Need() int {
	n := len(s.b)
	if n == 0 {
		return leastV1
	}
	if s.b[0] == proxyproto.SIGV2[0] {
		if n < prefixV2 {
			return prefixV2 - n
		}
		return s.wholeV2() - n
	}
	switch {
	case n < leastV1:
		return leastV1 - n
	case s.b[n-1] == '\n':
		return 0
	case s.b[n-1] == '\r':
		return 1
	}
	return 2
}

func (s *Scanner) wholeV2() int { return prefixV2 + int(binary.BigEndian.Uint16(s.b[14:prefixV2])) }

// Take takes from p the n bytes that belong to the header, and reports whether the header is complete. An error
// (ErrHeader) means that the bytes cannot become a header.
func (s *Scanner) Take(p []byte) (n int, whole bool, err error) {
	for n < len(p) {
		k := s.Need()
		if len(s.b) >= leastV1 && s.b[0] == proxyproto.SIGV1[0] {
			if i := bytes.IndexByte(p[n:], '\n'); i >= 0 {
				k = i + 1
			} else {
				k = len(p) - n
			}
			k = min(k, maxV1-len(s.b))
		}
		k = min(k, len(p)-n)
		s.b = append(s.b, p[n:n+k]...)
		n += k
		if err = s.judge(); err != nil {
			return n, false, err
		}
		if s.Need() == 0 {
			return n, true, nil
		}
	}
	return n, false, nil
}

// judge checks whether the gathered bytes can be the beginning of a header.
func (s *Scanner) judge() error {
	b := s.b
	v1 := bytes.HasPrefix(b, proxyproto.SIGV1[:min(len(b), len(proxyproto.SIGV1))])
	v2 := bytes.HasPrefix(b, proxyproto.SIGV2[:min(len(b), len(proxyproto.SIGV2))])
	switch {
	case !v1 && !v2:
		return malformed("the connection begins with %.16q", b)
	case v1 && len(b) >= maxV1 && b[len(b)-1] != '\n':
		return malformed("its version 1 line is longer than %d bytes", maxV1)
	case v2 && len(b) >= prefixV2 && s.wholeV2() > MaxHeader:
		return malformed("it has %d bytes, more than %d", s.wholeV2(), MaxHeader)
	}
	return nil
}

// ParseHeader reads a whole header, as a Scanner gathers it. Errors are ErrHeader.
func ParseHeader(b []byte) (h Header, err error) {
	p, err := proxyproto.Read(bufio.NewReaderSize(bytes.NewReader(b), max(len(b), 16)))
	if err != nil {
		return h, malformed("%v", err)
	}
	if p.Version == 2 {
		if h.TLS, err = extensions(b); err != nil {
			return Header{}, err
		}
	}
	if !p.Command.IsProxy() {
		return h, nil
	}
	if p.TransportProtocol.IsDatagram() {
		return Header{}, malformed("it is for datagrams, not for a stream")
	}
	source, destination, ok := p.TCPAddrs()
	if !ok {
		return h, nil // Unix sockets
	}
	h.Source, h.Destination = plain(source), plain(destination)
	return h, nil
}

func plain(a *net.TCPAddr) netip.AddrPort {
	p := a.AddrPort()
	return netip.AddrPortFrom(p.Addr().Unmap(), p.Port())
}

// castagnoli is the polynomial of CRC-32C (RFC 4960 appendix B).
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// extensions checks the TLVs of a header of version 2 (section 2.2): they must be complete, and a checksum must be
// right, which the library does not check.
func extensions(b []byte) (tls bool, err error) {
	at := prefixV2 + map[byte]int{1: 12, 2: 36, 3: 216}[b[13]>>4]
	if at > len(b) {
		return false, nil // a LOCAL header, which may be cut short
	}
	summed := false
	for at < len(b) {
		if len(b)-at < 3 {
			return false, malformed("it has a truncated extension")
		}
		kind, size := proxyproto.PP2Type(b[at]), int(binary.BigEndian.Uint16(b[at+1:]))
		at += 3
		if size > len(b)-at {
			return false, malformed("extension %#02x is truncated: %d bytes announced, %d present", byte(kind), size, len(b)-at)
		}
		value := b[at : at+size]
		switch kind {
		case proxyproto.PP2_TYPE_CRC32C:
			if size != crc32.Size || summed {
				return false, malformed("it has more than one checksum, or one of %d bytes", size)
			}
			summed = true
			sum := crc32.Update(crc32.Checksum(b[:at], castagnoli), castagnoli, make([]byte, crc32.Size))
			if sum = crc32.Update(sum, castagnoli, b[at+size:]); sum != binary.BigEndian.Uint32(value) {
				return false, malformed("its checksum is wrong")
			}
		case proxyproto.PP2_TYPE_SSL:
			if size < 5 {
				return false, malformed("its TLS extension is malformed: %d bytes", size)
			}
			const clientTLS = 1 // PP2_CLIENT_SSL
			tls = value[0]&clientTLS != 0
		}
		at += size
	}
	return tls, nil
}

// AppendHeader appends a header of version 1 or 2 that names the pair. Without a source it says that the connection is
// the proxy's own (LOCAL, in version 1 UNKNOWN). Addresses of two families are both written as IPv6.
func AppendHeader(b []byte, version int, p Pair) []byte {
	h := &proxyproto.Header{Version: byte(version), Command: proxyproto.LOCAL, TransportProtocol: proxyproto.UNSPEC}
	if p.Source.IsValid() {
		if !p.Destination.IsValid() {
			none := netip.IPv4Unspecified()
			if p.Source.Addr().Is6() {
				none = netip.IPv6Unspecified()
			}
			p.Destination = netip.AddrPortFrom(none, 0)
		}
		h = proxyproto.HeaderProxyFromAddrs(byte(version), tcpAddr(p.Source), tcpAddr(p.Destination))
	}
	text, err := h.Format()
	if err != nil {
		panic("clientaddr: " + err.Error()) // addresses and versions that are valid have a form
	}
	return append(b, text...)
}

func tcpAddr(a netip.AddrPort) *net.TCPAddr {
	return &net.TCPAddr{IP: a.Addr().Unmap().WithZone("").AsSlice(), Port: int(a.Port())}
}
