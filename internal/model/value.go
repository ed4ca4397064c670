package model

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// ValueError is the reason why a value of the configuration is invalid. Front ends, Validate and the data plane all use
// the functions that return it, so that they accept and refuse the same values.
type ValueError struct {
	// Reason is what is wrong, Fix is what to write instead.
	Reason, Fix string
}

// Error returns Reason.
func (e *ValueError) Error() string { return e.Reason }

// MatchPath returns the value of an Exact or Prefix match in normal form. It accepts the paths that NormalizePath
// accepts, except the empty one. An error is a *ValueError.
func MatchPath(path string) (normal string, err error) {
	if path == "" {
		return "", errPathStart
	}
	return NormalizePath(path)
}

// CheckMatchPath validates the value of an Exact or Prefix match. An error is a *ValueError.
func CheckMatchPath(path string) error {
	_, err := MatchPath(path)
	return err
}

// CheckHostname validates a host that replaces a request's host: a host name, or an IP address, in brackets if it is
// IPv6. port is true if a port may follow. An error is a *ValueError.
func CheckHostname(host string, port bool) error {
	bad := &ValueError{fmt.Sprintf("%q is not a host name", brief(host)), "write a DNS name or an IP address, without scheme, port and path"}
	if port {
		bad.Fix = "write a DNS name or an IP address, optionally with a port, without scheme and path"
	}
	name := host
	if i := strings.LastIndexByte(host, ':'); port && i >= 0 && strings.IndexByte(host[i:], ']') < 0 {
		n, err := strconv.ParseUint(host[i+1:], 10, 16)
		if err != nil || n == 0 {
			return bad
		}
		name = host[:i]
	}
	if inner, ok := strings.CutPrefix(name, "["); ok {
		inner, ok = strings.CutSuffix(inner, "]")
		if a, err := netip.ParseAddr(inner); !ok || err != nil || !a.Is6() || a.Zone() != "" {
			return bad
		}
		return nil
	}
	label := 0
	for i := range len(name) {
		switch c := name[i]; {
		case c == '.' && label > 0:
			label = 0
			continue
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '~':
			if label++; label > 63 {
				return bad
			}
		default:
			return bad
		}
	}
	if name == "" || len(name) > 255 {
		return bad
	}
	return nil
}

// CheckFieldName validates the name of a header field (RFC 9110 §5.1). An error is a *ValueError.
func CheckFieldName(name string) error {
	if name == "" || strings.ContainsFunc(name, func(c rune) bool { return !tokenRune(c) }) {
		return &ValueError{fmt.Sprintf("%q is not the name of a header field", brief(name)), "use letters, digits and hyphens"}
	}
	return nil
}

// CheckFieldValue validates the value of a header field (RFC 9110 §5.5). White space around it is dropped when it is
// sent. An error is a *ValueError.
func CheckFieldValue(value string) error {
	for i := range len(value) {
		if c := value[i]; c < ' ' && c != '\t' || c == 0x7f {
			return &ValueError{fmt.Sprintf("the value has the control byte 0x%02x", c), "remove it: a value is one line of text"}
		}
	}
	return nil
}

// CheckEndpoint validates the address of an endpoint, "host:port". An error is a *ValueError.
func CheckEndpoint(address string) error {
	host, port, err := net.SplitHostPort(address)
	if n, _ := strconv.ParseUint(port, 10, 16); err != nil || host == "" || n == 0 {
		return &ValueError{fmt.Sprintf("%q is not host:port", brief(address)), "write an address and a port"}
	}
	return nil
}

// maxQuoted bounds how much of a value a message repeats, in bytes.
const maxQuoted = 128

// brief is a value as messages repeat it.
func brief(value string) string {
	if len(value) <= maxQuoted {
		return value
	}
	return strings.ToValidUTF8(value[:maxQuoted], "") + "..."
}
