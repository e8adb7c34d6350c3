//go:build linux

package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// serveNetwork gives every network card the address that DHCP offers, and answers on ports 7 (echo, also of datagrams) and 80 (a fixed HTTP page).
func (g *guest) serveNetwork() {
	cards, err := net.Interfaces()
	if err != nil {
		g.say("error: list network cards: %v", err)
		return
	}
	for _, card := range cards {
		if err := setUp(card.Name); err != nil {
			g.say("error: %v", err)
			continue
		}
		if card.Flags&net.FlagLoopback == 0 {
			go g.configure(card)
		}
	}
	go g.serve(":7", func(c net.Conn) { _, _ = io.Copy(c, c) })
	go g.serve(":80", answerHTTP)
	go g.echoDatagrams(":7")
}

func (g *guest) echoDatagrams(address string) {
	c, err := net.ListenPacket("udp", address)
	if err != nil {
		g.say("error: %v", err)
		return
	}
	datagram := make([]byte, 1<<16)
	for {
		n, from, err := c.ReadFrom(datagram)
		if err != nil {
			g.say("error: %v", err)
			return
		}
		_, _ = c.WriteTo(datagram[:n], from) // one that is lost is lost
	}
}

func (g *guest) configure(card net.Interface) {
	for try := range 10 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(try+1)*time.Second)
		l, err := askDHCP(ctx, card)
		cancel()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err == nil {
			err = apply(card, l)
		}
		if err != nil {
			g.say("error: network card %s: %v", card.Name, err)
			return
		}
		g.say("network %s mac=%s address=%s gateway=%s", card.Name, card.HardwareAddr, l.address, l.gateway)
		return
	}
	g.say("error: network card %s: no DHCP server answered", card.Name)
}

func (g *guest) serve(address string, answer func(net.Conn)) {
	l, err := net.Listen("tcp", address)
	if err != nil {
		g.say("error: %v", err)
		return
	}
	for {
		c, err := l.Accept()
		if err != nil {
			g.say("error: %v", err)
			return
		}
		go func() {
			defer func() { _ = c.Close() }()
			answer(c)
		}()
	}
}

// answerHTTP is far smaller than net/http, and the guest's start is counted in megabytes to read.
func answerHTTP(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	lines := bufio.NewScanner(io.LimitReader(c, 16<<10))
	for lines.Scan() && strings.TrimSpace(lines.Text()) != "" { // to the end of the request's header
	}
	const page = "berth-guest\n"
	_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(page), page)
}

func setUp(card string) error {
	return withIfreq(card, func(fd int, r *unix.Ifreq) error {
		if err := unix.IoctlIfreq(fd, unix.SIOCGIFFLAGS, r); err != nil {
			return fmt.Errorf("read flags of %s: %w", card, err)
		}
		r.SetUint16(r.Uint16() | unix.IFF_UP)
		if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, r); err != nil {
			return fmt.Errorf("set %s up: %w", card, err)
		}
		return nil
	})
}

// apply sets the address and, with it, the route to its network; then the default route.
func apply(card net.Interface, l lease) error {
	mask := net.CIDRMask(l.address.Bits(), 32)
	for _, step := range []struct {
		request uint
		value   []byte
	}{{unix.SIOCSIFADDR, l.address.Addr().AsSlice()}, {unix.SIOCSIFNETMASK, mask}} {
		err := withIfreq(card.Name, func(fd int, r *unix.Ifreq) error {
			if err := r.SetInet4Addr(step.value); err != nil {
				return err
			}
			return unix.IoctlIfreq(fd, step.request, r)
		})
		if err != nil {
			return fmt.Errorf("set address %s: %w", l.address, err)
		}
	}
	if !l.gateway.IsValid() {
		return nil
	}
	return addDefaultRoute(card.Index, l.gateway)
}

func withIfreq(card string, do func(fd int, r *unix.Ifreq) error) error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("open socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	r, err := unix.NewIfreq(card)
	if err != nil {
		return fmt.Errorf("name network card %s: %w", card, err)
	}
	return do(fd, r)
}

// addDefaultRoute sends one RTM_NEWROUTE message with two attributes and reads the kernel's acknowledgement.
func addDefaultRoute(card int, gateway netip.Addr) error {
	const attribute = unix.SizeofRtAttr + 4
	const length = unix.SizeofNlMsghdr + unix.SizeofRtMsg + 2*attribute
	m := make([]byte, 0, length)
	m = binary.NativeEndian.AppendUint32(m, length)
	m = binary.NativeEndian.AppendUint16(m, unix.RTM_NEWROUTE)
	m = binary.NativeEndian.AppendUint16(m, unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE)
	m = append(m, 1, 0, 0, 0, 0, 0, 0, 0) // sequence number 1, any port
	m = append(m, unix.AF_INET, 0, 0, 0, unix.RT_TABLE_MAIN, unix.RTPROT_DHCP, unix.RT_SCOPE_UNIVERSE, unix.RTN_UNICAST, 0, 0, 0, 0)
	m = binary.NativeEndian.AppendUint16(m, attribute)
	m = binary.NativeEndian.AppendUint16(m, unix.RTA_GATEWAY)
	m = append(m, gateway.AsSlice()...)
	m = binary.NativeEndian.AppendUint16(m, attribute)
	m = binary.NativeEndian.AppendUint16(m, unix.RTA_OIF)
	m = binary.NativeEndian.AppendUint32(m, uint32(card))

	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return fmt.Errorf("open route socket: %w", err)
	}
	defer func() { _ = unix.Close(fd) }()
	if err := unix.Sendto(fd, m, 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK}); err != nil {
		return fmt.Errorf("ask for the route by %s: %w", gateway, err)
	}
	ack := make([]byte, 4096)
	n, _, err := unix.Recvfrom(fd, ack, 0)
	if err != nil {
		return fmt.Errorf("read the kernel's answer about the route by %s: %w", gateway, err)
	}
	if n < unix.SizeofNlMsghdr+4 {
		return fmt.Errorf("the kernel's answer about the route by %s has %d bytes", gateway, n)
	}
	if code := int32(binary.NativeEndian.Uint32(ack[unix.SizeofNlMsghdr:])); code != 0 {
		return fmt.Errorf("add the route by %s: %w", gateway, unix.Errno(-code))
	}
	return nil
}

func (*guest) agentInterfaces(agentRequest) (any, error) {
	type address struct {
		Type   string `json:"ip-address-type"`
		IP     string `json:"ip-address"`
		Prefix int    `json:"prefix"`
	}
	type card struct {
		Name      string    `json:"name"`
		MAC       string    `json:"hardware-address,omitempty"`
		Addresses []address `json:"ip-addresses,omitempty"`
	}
	interfaces, err := net.Interfaces()
	if err != nil {
		return nil, fmt.Errorf("list network cards: %w", err)
	}
	cards := make([]card, 0, len(interfaces))
	for _, i := range interfaces {
		c := card{Name: i.Name, MAC: i.HardwareAddr.String()}
		addresses, _ := i.Addrs()
		for _, a := range addresses {
			prefix, err := netip.ParsePrefix(a.String())
			if err != nil {
				continue
			}
			kind := "ipv4"
			if prefix.Addr().Is6() {
				kind = "ipv6"
			}
			c.Addresses = append(c.Addresses, address{kind, prefix.Addr().String(), prefix.Bits()})
		}
		cards = append(cards, c)
	}
	return cards, nil
}
