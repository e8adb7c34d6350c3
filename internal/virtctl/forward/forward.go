package forward

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"path"
	"strconv"
	"sync"
	"time"

	"github.com/berth-vm/berth/internal/virtctl/kube"
	"github.com/berth-vm/berth/internal/virtctl/machine"
	"github.com/berth-vm/berth/internal/virtctl/stream"
)

// Open connects to a port of a guest.
func Open(ctx context.Context, c *kube.Client, t Target, p Port) (*stream.Conn, error) {
	if t.Namespace != "" {
		c = c.In(t.Namespace)
	}
	conn, err := stream.Open(ctx, c.Config, path.Join(machine.Path(c, t.resource(), t.Name, "portforward"), strconv.Itoa(p.Remote), p.Protocol))
	if err != nil {
		return nil, fmt.Errorf("connect to port %d of %s %s/%s: %w", p.Remote, t.Kind, c.Namespace, t.Name, err)
	}
	return conn, nil
}

// Standard connects a port of a guest with a program's input and output.
func Standard(ctx context.Context, c *kube.Client, t Target, p Port, in io.Reader, out io.Writer) error {
	conn, err := Open(ctx, c, t, p)
	if err != nil {
		return err
	}
	return stream.Join(ctx, conn, struct {
		io.Reader
		io.Writer
		io.Closer
	}{in, out, io.NopCloser(nil)})
}

// Forwarder has ports open here.
type Forwarder struct {
	Client *kube.Client
	Target Target
	Out    io.Writer // where it says what it does

	mu sync.Mutex
}

func (f *Forwarder) say(format string, args ...any) {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, _ = fmt.Fprintf(f.Out, format+"\n", args...)
}

// Run opens the ports at the address and forwards what comes until ctx ends.
func (f *Forwarder) Run(ctx context.Context, address string, ports []Port) error {
	ip, err := net.ResolveIPAddr("ip", address)
	if err != nil {
		return fmt.Errorf("find address %s: %w", address, err)
	}
	var open []io.Closer
	defer func() {
		for _, c := range open {
			_ = c.Close()
		}
	}()
	for _, p := range ports {
		at := net.JoinHostPort(ip.String(), strconv.Itoa(p.Local))
		closer, err := f.listen(ctx, at, p)
		if err != nil {
			return err
		}
		open = append(open, closer)
		f.say("forwarding %s %s to %d", p.Protocol, at, p.Remote)
	}
	<-ctx.Done()
	return nil
}

func (f *Forwarder) listen(ctx context.Context, at string, p Port) (io.Closer, error) {
	var config net.ListenConfig
	if p.Protocol == "udp" {
		l, err := config.ListenPacket(ctx, "udp", at)
		if err != nil {
			return nil, err
		}
		go f.datagrams(ctx, l, p)
		return l, nil
	}
	l, err := config.Listen(ctx, "tcp", at)
	if err != nil {
		return nil, err
	}
	go f.connections(ctx, l, p)
	return l, nil
}

func (f *Forwarder) connections(ctx context.Context, l net.Listener, p Port) {
	for {
		here, err := l.Accept()
		if err != nil {
			return
		}
		go func() {
			conn, err := Open(ctx, f.Client, f.Target, p)
			if err != nil {
				_ = here.Close()
				f.say("error handling connection for %d: %v", p.Local, err)
				return
			}
			if err := stream.Join(ctx, conn, here); err != nil && ctx.Err() == nil && !errors.Is(err, net.ErrClosed) {
				f.say("error handling connection for %d: %v", p.Local, err)
			}
		}()
	}
}

// idle is how long a silent sender of datagrams is remembered: a UDP connection has no end.
const idle = 2 * time.Minute

// datagrams gives every sender a stream of their own, so that each gets the answers to what they sent.
func (f *Forwarder) datagrams(ctx context.Context, l net.PacketConn, p Port) {
	var mu sync.Mutex
	open := map[string]*sender{}
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := l.ReadFrom(buffer)
		if err != nil {
			return
		}
		mu.Lock()
		s := open[from.String()]
		mu.Unlock()
		if s == nil {
			conn, err := Open(ctx, f.Client, f.Target, p)
			if err != nil {
				f.say("error handling connection for %d: %v", p.Local, err)
				continue
			}
			s = &sender{conn: conn}
			s.timer = time.AfterFunc(idle, func() { _ = conn.Close() })
			mu.Lock()
			open[from.String()] = s
			mu.Unlock()
			go func() {
				s.answers(l, from)
				mu.Lock()
				delete(open, from.String())
				mu.Unlock()
			}()
		}
		s.timer.Reset(idle)
		_, _ = s.conn.Write(buffer[:n]) // one that is lost is lost, as datagrams may be
	}
}

// sender is a local address that sends datagrams to the port.
type sender struct {
	conn  *stream.Conn
	timer *time.Timer
}

func (s *sender) answers(l net.PacketConn, to net.Addr) {
	defer s.timer.Stop()
	for {
		datagram, err := s.conn.ReadMessage()
		if err != nil {
			return
		}
		s.timer.Reset(idle)
		if _, err := l.WriteTo(datagram, to); err != nil {
			return
		}
	}
}
