// Package movelink carries the connections of two launchers while a guest moves: connections of mutual TLS, each of which begins
// with a line that names its purpose. The source forwards its own sockets to the target (Target), the target forwards the data to
// its libvirt, to QEMU or to its caller (Inbox).
//
// It does not know libvirt, QEMU or the steps of a move, and it decides nothing.
package movelink

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// What a connection is for: the first word of its first line.
const (
	Libvirt = "libvirt" // the target's libvirt, spoken to by the source's
	Memory  = "memory"  // the guest's memory and devices, QEMU to QEMU
	Disks   = "disks"   // the disks that are copied, NBD
	Image   = "image"   // "image NAME SIZE": a disk that the source made for its guest
	Room    = "room"    // "room NAME SIZE": a disk of a claim that will be sent, which the target makes room for
	Still   = "still"   // the guest is paused, and stays so at the target until a user resumes it
	Gone    = "gone"    // the guest of the source has ended; the answer says that the target lets it run
)

// Dir has the sockets that QEMU and libvirt are given. Their names are the same on both sides: libvirt insists on it.
var Dir = filepath.Join(launcherapi.StateDir, "move")

// Socket is the path of the socket in Dir that carries this.
func Socket(which string) string { return filepath.Join(Dir, which+".sock") }

// Silent is the time after which a peer that does not acknowledge packets counts as gone.
const Silent = 20 * time.Second

// control sets the connection up so that a node that is cut off is noticed.
func control(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(Silent.Milliseconds()))
	})
	return errors.Join(err, set)
}

var alive = net.KeepAliveConfig{Enable: true, Idle: Silent / 4, Interval: Silent / 4, Count: 3}

var errOtherKeys = errors.New("the keys at hand are for another move")

// Keys reads the keys of one move. The authority that signed them signs nothing else, so a peer with one of them is the other side of this move.
func Keys(dir, id, side string) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(dir, side+".crt"), filepath.Join(dir, side+".key"))
	if err != nil {
		return nil, fmt.Errorf("read the keys of the move: %w", err)
	}
	if pair.Leaf == nil || pair.Leaf.VerifyHostname(id) != nil {
		return nil, errOtherKeys
	}
	root, err := os.ReadFile(filepath.Join(dir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the keys of the move: %w", err)
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(root) {
		return nil, errors.New("read the keys of the move: ca.crt has no certificate")
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13, ServerName: id,
		RootCAs: pool, ClientCAs: pool, ClientAuth: tls.RequireAndVerifyClientCert}, nil
}

// AwaitKeys waits for the keys until the move is called off: the kubelet brings them some time after they were made. It looks at every pod
// once in a minute and a half, and on a node that has much to do much later; how long that is worth waiting for is not for one side to say.
func AwaitKeys(ctx context.Context, dir, id, side string) (*tls.Config, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		keys, err := Keys(dir, id, side)
		if err == nil {
			return keys, nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// Target is the other side as the source sees it.
type Target struct {
	Address string
	Keys    *tls.Config
}

// open makes a connection to the target that is for what the line says.
func (p Target) open(ctx context.Context, line string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	d := net.Dialer{Control: control, KeepAliveConfig: alive}
	plain, err := d.DialContext(ctx, "tcp", p.Address)
	if err != nil {
		return nil, fmt.Errorf("reach the target: %w", err)
	}
	c := tls.Client(&wire{Conn: plain}, p.Keys)
	if err = c.HandshakeContext(ctx); err == nil {
		_, err = io.WriteString(c, line+"\n")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reach the target: %w", err), c.Close())
	}
	return c, nil
}

// Carry takes whatever connects to one of the sockets to the target, until ctx ends.
func (p Target) Carry(ctx context.Context, which string) error {
	path := Socket(which)
	_ = os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		return fmt.Errorf("make way for %s: %w", which, err)
	}
	context.AfterFunc(ctx, func() { _ = l.Close() })
	go func() {
		for {
			near, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				far, err := p.open(ctx, which)
				if err != nil {
					_ = near.Close() // the client reports that it failed
					return
				}
				splice(ctx, near, far)
			}()
		}
	}()
	return nil
}

// splice carries both ways until both have ended, one has failed, or ctx ends.
func splice(ctx context.Context, near net.Conn, far *tls.Conn) {
	// Data that is still on its way is of no use then, and is discarded.
	give := func() { _, _ = near.Close(), far.NetConn().Close() }
	stop := context.AfterFunc(ctx, give)
	defer stop()
	var both sync.WaitGroup
	many := newBulk(far)
	_ = near.(*net.UnixConn).SetWriteBuffer(4 * piece) // so that QEMU has something to read while the next piece is decrypted; less will do
	way := func(to io.Writer, from io.Reader, end func() error) {
		_, err := io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, piece))
		if err == nil {
			_ = end()
			return
		}
		give()
	}
	both.Go(func() { way(many, near, far.CloseWrite) })
	both.Go(func() { way(near, many, near.(*net.UnixConn).CloseWrite) })
	both.Wait()
	_, _ = near.Close(), far.Close()
}

// Inbox is the target's handling of what it receives.
type Inbox struct {
	Keys    *tls.Config
	Libvirt string // the socket of its libvirt
	Image   func(name string, size int64, from io.Reader) error
	Room    func(name string, size int64) error
	Still   func()
	Gone    func() error
	HungUp  func() // the source's libvirt has nothing more to say; nil: not called
}

// Serve takes connections of the source until ctx ends.
func (b Inbox) Serve(ctx context.Context, l net.Listener) {
	context.AfterFunc(ctx, func() { _ = l.Close() })
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go b.take(ctx, tls.Server(&wire{Conn: c}, b.Keys))
	}
}

// Listen waits for the source.
func Listen(ctx context.Context, address string) (net.Listener, error) {
	c := net.ListenConfig{Control: control, KeepAliveConfig: alive}
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("wait for the source: %w", err)
	}
	return l, nil
}

func (b Inbox) take(ctx context.Context, c *tls.Conn) {
	_ = c.SetDeadline(time.Now().Add(10 * time.Second))
	line, err := firstLine(c)
	if err != nil {
		_ = c.Close()
		return
	}
	_ = c.SetDeadline(time.Time{})
	word, rest, _ := strings.Cut(line, " ")
	socket := ""
	switch word {
	case Libvirt:
		socket = b.Libvirt
	case Memory, Disks:
		socket = Socket(word)
	case Image:
		answer(c, b.receive(c, rest))
		return
	case Room:
		name, size, err := nameAndSize(rest, 1<<62)
		if err == nil {
			err = b.Room(name, size)
		}
		answer(c, err)
		return
	case Still:
		b.Still()
		answer(c, nil)
		return
	case Gone:
		answer(c, b.Gone())
		return
	}
	near, err := net.Dial("unix", socket)
	if err != nil {
		_ = c.Close()
		return
	}
	splice(ctx, near, c)
	if word == Libvirt && b.HungUp != nil {
		b.HungUp()
	}
}

// firstLine reads no more than the line: the rest belongs to another reader.
func firstLine(c io.Reader) (string, error) {
	const most = 512
	var line []byte
	for one := make([]byte, 1); len(line) < most; line = append(line, one[0]) {
		if _, err := io.ReadFull(c, one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return string(line), nil
		}
	}
	return "", errors.New("the first line has no end")
}

func (b Inbox) receive(c io.Reader, what string) error {
	name, n, err := nameAndSize(what, 1<<30)
	if err != nil {
		return err
	}
	return b.Image(name, n, io.LimitReader(c, n))
}

// nameAndSize reads "NAME SIZE" of a disk of at most so many bytes.
func nameAndSize(what string, most int64) (name string, n int64, err error) {
	name, size, _ := strings.Cut(what, " ")
	n, err = strconv.ParseInt(size, 10, 64)
	if err != nil || n < 0 || n > most || name == "" || name != filepath.Base(name) {
		return "", 0, fmt.Errorf("%q is no disk", what)
	}
	return name, n, nil
}

const (
	done = "done"
	// mostAnswer is how many bytes of an error are sent to the other side.
	mostAnswer = 2 << 10
)

// answer sends the result of a request, and closes the connection.
func answer(c net.Conn, err error) {
	text := done
	if err != nil {
		text = strings.ReplaceAll(fmt.Sprintf("%.*s", mostAnswer, err), "\n", " ")
	}
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, text+"\n")
	_ = c.Close()
}

// Tell sends a request to the target and waits until it was carried out.
func (p Target) Tell(ctx context.Context, line string, body io.Reader) error {
	c, err := p.open(ctx, line)
	if err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { _ = c.Close() })
	defer stop()
	defer func() { _ = c.Close() }()
	if body != nil {
		if _, err := io.Copy(c, body); err != nil {
			return fmt.Errorf("send %s: %w", line, err)
		}
	}
	said, err := bufio.NewReader(io.LimitReader(c, 4<<10)).ReadString('\n')
	if err != nil {
		return fmt.Errorf("send %s: the target did not answer: %w", line, err)
	}
	if said = strings.TrimSpace(said); said != done {
		return fmt.Errorf("send %s: the target says: %s", line, said)
	}
	return nil
}
