package guest

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

	"github.com/berth-vm/berth/internal/launch"
)

// What two launchers have to say to each other goes over connections of their own kind of TLS, each of which begins with a line
// that says what it is for.
const (
	toLibvirt = "libvirt" // the target's libvirt, spoken to by the source's
	toMemory  = "memory"  // the guest's memory and devices, QEMU to QEMU
	toDisks   = "disks"   // the disks that are copied, NBD
	toImage   = "image"   // "image NAME SIZE": a disk that the source made for its guest
	toRoom    = "room"    // "room NAME SIZE": a disk of a claim that will be sent, which the target makes room for
	toStill   = "still"   // the guest is paused, and stays so at the target until somebody lets it go on
	toWord    = "gone"    // the guest of the source has ended; the answer says that the target lets it run
)

// moveDir has the sockets that QEMU and libvirt are given. Their names are the same on both sides: libvirt insists on it.
var moveDir = filepath.Join(launch.StateDir, "move")

func moveSocket(which string) string { return filepath.Join(moveDir, which+".sock") }

// silent is after how long a peer that does not even acknowledge is taken for gone.
const silent = 20 * time.Second

// control sets the connection up so that a node that is cut off is noticed.
func control(_, _ string, c syscall.RawConn) error {
	var set error
	err := c.Control(func(fd uintptr) {
		set = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, int(silent.Milliseconds()))
	})
	return errors.Join(err, set)
}

var alive = net.KeepAliveConfig{Enable: true, Idle: silent / 4, Interval: silent / 4, Count: 3}

var errOtherKeys = errors.New("the keys at hand are for another move")

// moveKeys reads the keys of one move. The authority that signed them signs nothing else, so whoever has one of them is the
// other side.
func moveKeys(dir, id, side string) (*tls.Config, error) {
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

// awaitKeys waits for them until the move is called off: the kubelet brings them some time after they were made. It looks at every pod
// once in a minute and a half, and on a node that has much to do much later; how long that is worth waiting for is not for one side to say.
func awaitKeys(ctx context.Context, dir, id, side string) (*tls.Config, error) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		keys, err := moveKeys(dir, id, side)
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

// moveTarget is the other side as the source sees it.
type moveTarget struct {
	address string
	keys    *tls.Config
}

// open makes a connection to the target that is for what the line says.
func (p moveTarget) open(ctx context.Context, line string) (*tls.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	d := net.Dialer{Control: control, KeepAliveConfig: alive}
	plain, err := d.DialContext(ctx, "tcp", p.address)
	if err != nil {
		return nil, fmt.Errorf("reach the target: %w", err)
	}
	c := tls.Client(&wire{Conn: plain}, p.keys)
	if err = c.HandshakeContext(ctx); err == nil {
		_, err = io.WriteString(c, line+"\n")
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("reach the target: %w", err), c.Close())
	}
	return c, nil
}

// carry takes whatever connects to one of the sockets to the target, until ctx ends.
func (p moveTarget) carry(ctx context.Context, which string) error {
	path := moveSocket(which)
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
					_ = near.Close() // whoever connected says that it failed
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
	// Whatever is on its way is of no use then, and not waited for.
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

// inbox is what the target does with what comes.
type inbox struct {
	keys    *tls.Config
	libvirt string // the socket of its libvirt
	image   func(name string, size int64, from io.Reader) error
	room    func(name string, size int64) error
	still   func()
	gone    func() error
	hungUp  func() // the source's libvirt has nothing more to say; nil: nobody wants to know
}

// serve takes connections of the source until ctx ends.
func (b inbox) serve(ctx context.Context, l net.Listener) {
	context.AfterFunc(ctx, func() { _ = l.Close() })
	for {
		c, err := l.Accept()
		if err != nil {
			return
		}
		go b.take(ctx, tls.Server(&wire{Conn: c}, b.keys))
	}
}

// listen waits for the source.
func listen(ctx context.Context, address string) (net.Listener, error) {
	c := net.ListenConfig{Control: control, KeepAliveConfig: alive}
	l, err := c.Listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("wait for the source: %w", err)
	}
	return l, nil
}

func (b inbox) take(ctx context.Context, c *tls.Conn) {
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
	case toLibvirt:
		socket = b.libvirt
	case toMemory, toDisks:
		socket = moveSocket(word)
	case toImage:
		answer(c, b.receive(c, rest))
		return
	case toRoom:
		name, size, err := nameAndSize(rest, 1<<62)
		if err == nil {
			err = b.room(name, size)
		}
		answer(c, err)
		return
	case toStill:
		b.still()
		answer(c, nil)
		return
	case toWord:
		answer(c, b.gone())
		return
	}
	near, err := net.Dial("unix", socket)
	if err != nil {
		_ = c.Close()
		return
	}
	splice(ctx, near, c)
	if word == toLibvirt && b.hungUp != nil {
		b.hungUp()
	}
}

// firstLine reads no more than the line: what follows is somebody else's.
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

func (b inbox) receive(c io.Reader, what string) error {
	name, n, err := nameAndSize(what, 1<<30)
	if err != nil {
		return err
	}
	return b.image(name, n, io.LimitReader(c, n))
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

const done = "done"

// answer says what came of something, and hangs up.
func answer(c net.Conn, err error) {
	text := done
	if err != nil {
		text = strings.ReplaceAll(cut(err.Error()), "\n", " ")
	}
	_ = c.SetWriteDeadline(time.Now().Add(10 * time.Second))
	_, _ = io.WriteString(c, text+"\n")
	_ = c.Close()
}

// tell has the target do something and waits until it has.
func (p moveTarget) tell(ctx context.Context, line string, body io.Reader) error {
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
