package launcher

import (
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// mostForwards is how many connections to the guest's ports there may be at once.
const mostForwards = 256

// forward connects the user to a port of the guest. QEMU's user-mode network is the only way into the guest: it listens at a
// loopback port of the pod for as long as this connection lasts, and what comes there goes to the guest and nowhere else. So
// no number that a user may write is a port of the launcher, of the pod or of the node.
func (r *running) forward(user *peer, protocol, port string, done <-chan struct{}) error {
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
	defer func() { _ = r.tell(fmt.Sprintf("hostfwd_remove %s %s:%s", r.card, protocol, here)) }()
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

// listen has QEMU listen at a loopback port that is free. Somebody may be faster: then it is another.
func (r *running) listen(protocol string, port uint64) (string, error) {
	var last error
	for range 5 {
		here, err := freePort(protocol)
		if err != nil {
			return "", err
		}
		if last = r.tell(fmt.Sprintf("hostfwd_add %s %s:%s-:%d", r.card, protocol, here, port)); last == nil {
			return here, nil
		}
	}
	return "", last
}

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

func (r *running) tell(line string) error { return r.h.Tell(r.dom.Name, line) }

// quietFor is how long a relay of datagrams may be silent before it ends: UDP has no end of a connection.
const quietFor = 10 * time.Minute

// relay hands datagrams to and fro until the user has gone, done is closed, or nothing has moved for quietFor.
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
				continue // a port that nobody listens at yet
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
