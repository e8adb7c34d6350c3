package requests

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// mostForwards is how many connections to the guest's ports there may be at once.
const mostForwards = 256

// forward connects the user to a port of the guest. QEMU's user-mode network, the only way into the guest, listens at a loopback port of the
// pod for as long as the connection lasts. Everything that is sent there goes to the guest, so the number that a user asks for is never a port of
// the launcher, the pod or the node.
func (r *Server) forward(user *peer, protocol, port string, done <-chan struct{}) error {
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return fmt.Errorf("port %q is not between 1 and 65535", port)
	}
	if protocol != "tcp" && protocol != "udp" {
		return fmt.Errorf("protocol %q is neither tcp nor udp", protocol)
	}
	if r.card == "" {
		return errors.New("the machine has no network")
	}
	if r.forwards.Add(1) > mostForwards {
		r.forwards.Add(-1)
		return fmt.Errorf("there are %d connections to the guest's ports already", mostForwards)
	}
	defer r.forwards.Add(-1)
	here, err := r.listen(protocol, number)
	if err != nil {
		return err
	}
	defer func() { _ = r.Guest.Tell(fmt.Sprintf("hostfwd_remove %s %s:%s", r.card, protocol, here)) }()
	conn, err := net.DialTimeout(protocol, here, verbWithin)
	if err != nil {
		return fmt.Errorf("connect to the guest: %w", err)
	}
	user.say(launcherapi.Said{})
	if protocol == "udp" {
		relay(user, conn, done)
		return nil
	}
	join(user, conn.(*net.TCPConn), done)
	return nil
}

// listen makes QEMU listen at a free loopback port. If another process takes the port first, it tries the next.
func (r *Server) listen(protocol string, port uint64) (string, error) {
	var last error
	for range 5 {
		here, err := freePort(protocol)
		if err != nil {
			return "", err
		}
		if last = r.Guest.Tell(fmt.Sprintf("hostfwd_add %s %s:%s-:%d", r.card, protocol, here, port)); last == nil {
			return here, nil
		}
	}
	return "", last
}

// freePort returns an address with a port that is free.
func freePort(protocol string) (string, error) {
	const anyPort = "127.0.0.1:0"
	if protocol == "udp" {
		c, err := net.ListenPacket("udp4", anyPort)
		if err != nil {
			return "", fmt.Errorf("find a free port: %w", err)
		}
		return c.LocalAddr().String(), c.Close()
	}
	l, err := net.Listen("tcp4", anyPort)
	if err != nil {
		return "", fmt.Errorf("find a free port: %w", err)
	}
	return l.Addr().String(), l.Close()
}

// quietFor is how long no datagram may come before a relay ends: UDP connections are never closed.
const quietFor = 10 * time.Minute

// relay copies datagrams in both directions until the user disconnects, done is closed, or no datagram has come for quietFor.
func relay(user *peer, guest net.Conn, done <-chan struct{}) {
	var moved atomic.Int64
	moved.Store(time.Now().Unix())
	over := make(chan struct{})
	go func() {
		defer func() { _ = guest.Close(); _ = user.conn.Close() }()
		tick := time.NewTicker(quietFor / 10)
		defer tick.Stop()
		for {
			select {
			case <-over:
				return
			case <-done:
				return
			case now := <-tick.C:
				if now.Sub(time.Unix(moved.Load(), 0)) > quietFor {
					return
				}
			}
		}
	}()
	go func() {
		room := make([]byte, launcherapi.MostDatagram)
		for {
			n, err := guest.Read(room)
			if err != nil {
				var gone net.Error
				if errors.Is(err, net.ErrClosed) || errors.As(err, &gone) && gone.Timeout() {
					return
				}
				continue // no program in the guest listens at the port yet
			}
			moved.Store(time.Now().Unix())
			if launcherapi.WriteDatagram(user.conn, room[:n]) != nil {
				return
			}
		}
	}()
	room := make([]byte, launcherapi.MostDatagram)
	for {
		datagram, err := launcherapi.ReadDatagram(user, room)
		if err != nil {
			break
		}
		moved.Store(time.Now().Unix())
		_, _ = guest.Write(datagram) // one that is refused is lost, as datagrams may be
	}
	close(over)
}

// OpenPorts forwards the ports that the machine lists to the guest.
func OpenPorts(g guest.Guest) error {
	for _, line := range domain.Forwards(g.Machine) {
		if err := g.Tell(line); err != nil {
			return fmt.Errorf("forward a port: %w; is it taken, by another interface or by the launcher (%d)?", err, launcherapi.ReadyPort)
		}
	}
	return nil
}
