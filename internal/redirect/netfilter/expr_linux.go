package netfilter

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net/netip"

	"github.com/google/nftables/expr"
	"golang.org/x/sys/unix"

	"github.com/weirmesh/weir/internal/redirect"
)

// The register of a rule's comparisons, and the two with the ports that it redirects to.
const register, firstPort, lastPort = 1, 1, 2

// Where a TCP header has the sequence number and the flags, and the flag of a reset.
const sequence, tcpFlags, reset = 4, 13, 1 << 2

func beginsWith(key expr.MetaKey, value ...byte) []expr.Any {
	return []expr.Any{&expr.Meta{Key: key, Register: register}, &expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: value}}
}

// expressions are a rule as the kernel has it.
func expressions(r redirect.Rule) []expr.Any {
	var out []expr.Any
	if r.Match != nil {
		out = conditions(r.Match)
	}
	switch r.Do {
	case redirect.Accept:
		return append(out, &expr.Verdict{Kind: expr.VerdictAccept})
	case redirect.Drop:
		return append(out, &expr.Verdict{Kind: expr.VerdictDrop})
	case redirect.Jump:
		return append(out, &expr.Verdict{Kind: expr.VerdictJump, Chain: r.To})
	}
	out = append(out, beginsWith(expr.MetaKeyL4PROTO, unix.IPPROTO_TCP)...)
	return append(out,
		&expr.Immediate{Register: firstPort, Data: port(r.Ports.First)}, &expr.Immediate{Register: lastPort, Data: port(r.Ports.Last)},
		&expr.Redir{RegisterProtoMin: firstPort, RegisterProtoMax: lastPort, Flags: unix.NF_NAT_RANGE_PROTO_SPECIFIED})
}

func conditions(m *redirect.Match) []expr.Any {
	op := expr.CmpOpEq
	if m.Not {
		op = expr.CmpOpNeq
	}
	compare := func(load expr.Any, data []byte) []expr.Any {
		return []expr.Any{load, &expr.Cmp{Op: op, Register: register, Data: data}}
	}
	ports := func(offset uint32) []expr.Any {
		out := append(beginsWith(expr.MetaKeyL4PROTO, unix.IPPROTO_TCP), &expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: offset, Len: 2})
		if m.Ports.First == m.Ports.Last {
			return append(out, &expr.Cmp{Op: op, Register: register, Data: port(m.Ports.First)})
		}
		return append(out, &expr.Range{Op: op, Register: register, FromData: port(m.Ports.First), ToData: port(m.Ports.Last)})
	}
	anyOf := func(key expr.CtKey) []expr.Any {
		return []expr.Any{
			&expr.Ct{Key: key, Register: register},
			&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 4, Mask: native(m.Number), Xor: make([]byte, 4)},
			&expr.Cmp{Op: expr.CmpOpNeq, Register: register, Data: make([]byte, 4)},
		}
	}
	switch m.Field {
	case redirect.Protocol:
		return compare(&expr.Meta{Key: expr.MetaKeyL4PROTO, Register: register}, []byte{byte(m.Number)})
	case redirect.Interface:
		name := make([]byte, unix.IFNAMSIZ)
		copy(name, m.Interface)
		return compare(&expr.Meta{Key: expr.MetaKeyIIFNAME, Register: register}, name)
	case redirect.User:
		return compare(&expr.Meta{Key: expr.MetaKeySKUID, Register: register}, native(m.Number))
	case redirect.SourcePort:
		return ports(0)
	case redirect.DestinationPort:
		return ports(2)
	case redirect.State:
		return anyOf(expr.CtKeySTATE)
	case redirect.Status:
		return anyOf(expr.CtKeySTATUS)
	case redirect.Refusal:
		return append(ports(0),
			&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: sequence, Len: 4},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: make([]byte, 4)},
			&expr.Payload{DestRegister: register, Base: expr.PayloadBaseTransportHeader, Offset: tcpFlags, Len: 1},
			&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: 1, Mask: []byte{reset}, Xor: []byte{0}},
			&expr.Cmp{Op: expr.CmpOpEq, Register: register, Data: []byte{reset}})
	}
	family, offset := byte(unix.NFPROTO_IPV4), uint32(16)
	if !m.Network.Addr().Is4() {
		family, offset = unix.NFPROTO_IPV6, 24
	}
	address := m.Network.Addr().AsSlice()
	size := uint32(len(address))
	mask := make([]byte, size)
	for i := range m.Network.Bits() {
		mask[i/8] |= 1 << (7 - i%8)
	}
	return append(beginsWith(expr.MetaKeyNFPROTO, family),
		&expr.Payload{DestRegister: register, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: size},
		&expr.Bitwise{SourceRegister: register, DestRegister: register, Len: size, Mask: mask, Xor: make([]byte, size)},
		&expr.Cmp{Op: op, Register: register, Data: address})
}

func port(n uint16) []byte { return binary.BigEndian.AppendUint16(nil, n) }

// native is a number in the machine's order of bytes, in which the kernel has users and states.
func native(n uint32) []byte { return binary.NativeEndian.AppendUint32(nil, n) }

// rule reads the expressions of a rule. It makes a guess from them, and believes that if its own expressions are these,
// byte for byte: so what it does not know is never taken for what it knows.
func rule(all []expr.Any) (redirect.Rule, error) {
	guess, ok := guessRule(all)
	if !ok || !same(all, expressions(guess)) {
		return redirect.Rule{}, fmt.Errorf("a rule that this program does not make: %s", list(all))
	}
	return guess, nil
}

func guessRule(all []expr.Any) (r redirect.Rule, ok bool) {
	var m redirect.Match
	var from, to []byte
	for _, e := range all {
		switch e := e.(type) {
		case *expr.Meta:
			switch e.Key {
			case expr.MetaKeyL4PROTO:
				m.Field = redirect.Protocol
			case expr.MetaKeyIIFNAME:
				m.Field = redirect.Interface
			case expr.MetaKeySKUID:
				m.Field = redirect.User
			}
			r.Match = &m
		case *expr.Ct:
			m.Field, r.Match = redirect.State, &m
			if e.Key == expr.CtKeySTATUS {
				m.Field = redirect.Status
			}
		case *expr.Payload:
			switch {
			case e.Base == expr.PayloadBaseNetworkHeader:
				m.Field = redirect.Destination
			case e.Offset == 0:
				m.Field = redirect.SourcePort
			case e.Offset == sequence || e.Offset == tcpFlags:
				m.Field = redirect.Refusal
			default:
				m.Field = redirect.DestinationPort
			}
		case *expr.Bitwise:
			from = e.Mask
		case *expr.Cmp:
			compared(&m, e, from)
		case *expr.Range:
			m.Ports = redirect.Ports{First: number16(e.FromData), Last: number16(e.ToData)}
		case *expr.Immediate:
			if e.Register == firstPort {
				from = e.Data
			} else {
				to = e.Data
			}
		case *expr.Redir:
			return redirect.Rule{Do: redirect.Redirect, Ports: redirect.Ports{First: number16(from), Last: number16(to)}}, true
		case *expr.Verdict:
			switch e.Kind {
			case expr.VerdictDrop:
				r.Do = redirect.Drop
			case expr.VerdictJump:
				r.Do, r.To = redirect.Jump, e.Chain
			}
			return r, true
		}
	}
	return r, false
}

// compared adds to a match what a value is compared with; mask is that of the value's bits.
func compared(m *redirect.Match, e *expr.Cmp, mask []byte) {
	switch m.Field {
	case redirect.Protocol:
		if len(e.Data) == 1 {
			m.Number, m.Not = uint32(e.Data[0]), e.Op == expr.CmpOpNeq
		}
	case redirect.Interface:
		m.Interface = string(bytes.TrimRight(e.Data, "\x00"))
	case redirect.User:
		m.Number = number32(e.Data)
	case redirect.State, redirect.Status:
		m.Number = number32(mask)
	case redirect.SourcePort, redirect.DestinationPort:
		m.Number, m.Ports = 0, redirect.Ports{First: number16(e.Data), Last: number16(e.Data)}
	case redirect.Destination:
		m.Number = 0
		if a, ok := netip.AddrFromSlice(e.Data); ok {
			ones := 0
			for _, b := range mask {
				for ; b != 0; b <<= 1 {
					ones++
				}
			}
			m.Network = netip.PrefixFrom(a, ones)
		}
	}
}

func number16(b []byte) uint16 {
	if len(b) != 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func number32(b []byte) uint32 {
	if len(b) != 4 {
		return 0
	}
	return binary.NativeEndian.Uint32(b)
}

func same(a, b []expr.Any) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		x, errX := expr.Marshal(unix.NFPROTO_INET, a[i])
		y, errY := expr.Marshal(unix.NFPROTO_INET, b[i])
		if errX != nil || errY != nil || !bytes.Equal(x, y) {
			return false
		}
	}
	return true
}

func list(all []expr.Any) string {
	out := ""
	for _, e := range all {
		out += fmt.Sprintf("%T%+v ", e, e)
	}
	return out
}
