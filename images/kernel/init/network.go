//go:build linux

package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/images/hardware"
)

// setUpNetwork gives every card the address that DHCP offers, one after the other, and returns the name server. QEMU's own network
// answers at once; a card without a DHCP server does not prevent the program from running.
func setUpNetwork() (dns netip.Addr) {
	cards, err := net.Interfaces()
	if err != nil {
		fmt.Fprintln(os.Stderr, "berth: list network cards:", err)
		return dns
	}
	for _, card := range cards {
		err := hardware.SetUp(card.Name)
		if err == nil && card.Flags&net.FlagLoopback == 0 {
			var l hardware.Lease
			if l, err = ask(card); err == nil {
				err = hardware.Apply(card, l)
			}
			if !dns.IsValid() {
				dns = l.DNS
			}
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "berth: network card %s: %v\n", card.Name, err)
		}
	}
	return dns
}

func ask(card net.Interface) (l hardware.Lease, err error) {
	for try := range 5 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Duration(try+1)*time.Second)
		l, err = hardware.AskDHCP(ctx, card)
		cancel()
		if err == nil {
			return l, nil
		}
	}
	return l, err
}

// allowPorts lets every user have the ports that only root has elsewhere, and ping, as container runtimes do: images are made for that.
func allowPorts() {
	for name, value := range map[string]string{"ip_unprivileged_port_start": "0", "ping_group_range": "0 2147483647"} {
		if err := os.WriteFile("/proc/sys/net/ipv4/"+name, []byte(value), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "berth:", err)
		}
	}
}

// nameHost writes the files that container runtimes write too. What the image has there may be a link to somewhere.
func nameHost(host string, dns netip.Addr) {
	if host == "" {
		host = "localhost"
	}
	_ = unix.Sethostname([]byte(host))
	files := map[string]string{
		"/etc/hostname": host + "\n",
		"/etc/hosts":    "127.0.0.1 localhost\n::1 localhost ip6-localhost ip6-loopback\n127.0.1.1 " + host + "\n",
	}
	if dns.IsValid() {
		files["/etc/resolv.conf"] = "nameserver " + dns.String() + "\n"
	}
	_ = os.MkdirAll("/etc", 0o755)
	for name, text := range files {
		_ = os.Remove(name)
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			fmt.Fprintln(os.Stderr, "berth:", err)
		}
	}
}
