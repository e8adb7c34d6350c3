//go:build linux

package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/berth-vm/berth/images/hardware"
)

// serveNetwork gives every network card the address that DHCP offers, and answers on ports 7 (echo, also of datagrams) and 80 (a fixed HTTP page).
func (g *guest) serveNetwork() {
	cards, err := net.Interfaces()
	if err != nil {
		g.say("error: list network cards: %v", err)
		return
	}
	for _, card := range cards {
		if err := hardware.SetUp(card.Name); err != nil {
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
		l, err := hardware.AskDHCP(ctx, card)
		cancel()
		if errors.Is(err, os.ErrDeadlineExceeded) {
			continue
		}
		if err == nil {
			err = hardware.Apply(card, l)
		}
		if err != nil {
			g.say("error: network card %s: %v", card.Name, err)
			return
		}
		g.say("network %s mac=%s address=%s gateway=%s", card.Name, card.HardwareAddr, l.Address, l.Gateway)
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

// answerHTTP exists because net/http is larger, and the guest's start time grows with its size.
func answerHTTP(c net.Conn) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	lines := bufio.NewScanner(io.LimitReader(c, 16<<10))
	for lines.Scan() && strings.TrimSpace(lines.Text()) != "" { // to the end of the request's header
	}
	const page = "berth-guest\n"
	_, _ = fmt.Fprintf(c, "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", len(page), page)
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
