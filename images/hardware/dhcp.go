//go:build linux

package hardware

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Lease is the part of a DHCP answer that a guest uses. It is never renewed: QEMU's own network gives every guest the same address
// permanently.
type Lease struct {
	Address netip.Prefix
	Gateway netip.Addr
	Server  netip.Addr
	DNS     netip.Addr // the first of them
}

// The few options of RFC 2132 that are asked for or looked at.
const (
	optionMask      = 1
	optionRouter    = 3
	optionDNS       = 6
	optionRequested = 50
	optionType      = 53
	optionServer    = 54
	optionWanted    = 55
	optionEnd       = 255

	typeDiscover = 1
	typeOffer    = 2
	typeRequest  = 3
	typeAck      = 5
)

// The layout of RFC 2131: a fixed part, the magic number, options.
const (
	fixedLength = 236
	magic       = 0x63825363
)

// AskDHCP discovers, requests and returns a lease, or os.ErrDeadlineExceeded if no server answered before the context's deadline.
func AskDHCP(ctx context.Context, card net.Interface) (Lease, error) {
	listen := net.ListenConfig{Control: func(_, _ string, c syscall.RawConn) error {
		var err error
		control := c.Control(func(fd uintptr) {
			err = errors.Join(
				unix.SetsockoptString(int(fd), unix.SOL_SOCKET, unix.SO_BINDTODEVICE, card.Name),
				unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_BROADCAST, 1))
		})
		return errors.Join(control, err)
	}}
	conn, err := listen.ListenPacket(ctx, "udp4", ":68")
	if err != nil {
		return Lease{}, fmt.Errorf("open DHCP port: %w", err)
	}
	defer func() { _ = conn.Close() }()
	deadline, _ := ctx.Deadline()
	_ = conn.SetDeadline(deadline)

	id := uint32(time.Now().UnixNano())
	offer, err := exchange(conn, request(id, card.HardwareAddr, typeDiscover, nil), id, typeOffer)
	if err != nil {
		return Lease{}, err
	}
	return exchange(conn, request(id, card.HardwareAddr, typeRequest, &offer), id, typeAck)
}

// exchange broadcasts a message and waits for the answer of the wanted type.
func exchange(conn net.PacketConn, message []byte, id uint32, want byte) (Lease, error) {
	if _, err := conn.WriteTo(message, &net.UDPAddr{IP: net.IPv4bcast, Port: 67}); err != nil {
		return Lease{}, fmt.Errorf("send DHCP message: %w", err)
	}
	buf := make([]byte, 1500)
	for {
		n, _, err := conn.ReadFrom(buf)
		if err != nil {
			return Lease{}, fmt.Errorf("read DHCP answer: %w", err)
		}
		if l, kind, ok := parseAnswer(buf[:n], id); ok && kind == want {
			return l, nil
		}
	}
}

// request is a DISCOVER, or with an offer the REQUEST that accepts it. The broadcast flag is set because a card without an address
// cannot receive a unicast answer.
func request(id uint32, mac net.HardwareAddr, kind byte, offer *Lease) []byte {
	m := make([]byte, fixedLength, 300)
	m[0], m[1], m[2] = 1, 1, 6 // a request, from Ethernet, whose addresses have 6 bytes
	binary.BigEndian.PutUint32(m[4:], id)
	m[10] = 0x80
	copy(m[28:44], mac)
	m = binary.BigEndian.AppendUint32(m, magic)
	m = append(m, optionType, 1, kind, optionWanted, 3, optionMask, optionRouter, optionDNS)
	if offer != nil {
		m = append(m, optionRequested, 4)
		m = append(m, offer.Address.Addr().AsSlice()...)
		m = append(m, optionServer, 4)
		m = append(m, offer.Server.AsSlice()...)
	}
	return append(m, optionEnd)
}

// parseAnswer reads an answer to the request with this id.
func parseAnswer(m []byte, id uint32) (l Lease, kind byte, ok bool) {
	if len(m) < fixedLength+4 || m[0] != 2 || binary.BigEndian.Uint32(m[4:]) != id ||
		binary.BigEndian.Uint32(m[fixedLength:]) != magic {
		return Lease{}, 0, false
	}
	bits := 32
	options := m[fixedLength+4:]
	for len(options) > 0 && options[0] != optionEnd {
		if options[0] == 0 { // padding has no length
			options = options[1:]
			continue
		}
		if len(options) < 2 || len(options) < 2+int(options[1]) {
			return Lease{}, 0, false
		}
		value := options[2 : 2+int(options[1])]
		switch {
		case options[0] == optionType && len(value) == 1:
			kind = value[0]
		case options[0] == optionMask && len(value) == 4:
			bits, _ = net.IPMask(bytes.Clone(value)).Size()
		case options[0] == optionRouter && len(value) >= 4:
			l.Gateway = netip.AddrFrom4([4]byte(value[:4]))
		case options[0] == optionDNS && len(value) >= 4:
			l.DNS = netip.AddrFrom4([4]byte(value[:4]))
		case options[0] == optionServer && len(value) == 4:
			l.Server = netip.AddrFrom4([4]byte(value))
		}
		options = options[2+len(value):]
	}
	l.Address = netip.PrefixFrom(netip.AddrFrom4([4]byte(m[16:20])), bits)
	return l, kind, l.Server.IsValid()
}
