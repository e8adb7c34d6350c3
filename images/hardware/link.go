//go:build linux

package hardware

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"

	"golang.org/x/sys/unix"
)

// SetUp switches a network card on.
func SetUp(card string) error {
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

// Apply sets the address and, with it, the route to its network; then the default route.
func Apply(card net.Interface, l Lease) error {
	mask := net.CIDRMask(l.Address.Bits(), 32)
	for _, step := range []struct {
		request uint
		value   []byte
	}{{unix.SIOCSIFADDR, l.Address.Addr().AsSlice()}, {unix.SIOCSIFNETMASK, mask}} {
		err := withIfreq(card.Name, func(fd int, r *unix.Ifreq) error {
			if err := r.SetInet4Addr(step.value); err != nil {
				return err
			}
			return unix.IoctlIfreq(fd, step.request, r)
		})
		if err != nil {
			return fmt.Errorf("set address %s: %w", l.Address, err)
		}
	}
	if !l.Gateway.IsValid() {
		return nil
	}
	return addDefaultRoute(card.Index, l.Gateway)
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
