package moments

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/berth-vm/berth/internal/connlimit"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// door is where the worker of a backup reads the disks: what it says goes to QEMU's NBD server, after it has proved itself. The guest has the pod's
// network too, and so may others.
type door struct {
	listener net.Listener
	keys     atomic.Pointer[tls.Config]
	done     chan struct{}
	reads    atomic.Int64 // connections that have proved themselves
}

// The bounds of the door: how many connections it has, and how long one may take to prove itself.
const (
	places = 64
	prove  = 15 * time.Second
)

// open opens the door to a socket of QEMU's.
func open(socket string, o launcherapi.BackupOrder) (*door, error) {
	d := &door{done: make(chan struct{})}
	if err := d.use(o); err != nil {
		return nil, err
	}
	var err error
	for _, port := range []int{launcherapi.BackupPort, 0} { // a port of the guest may be in the way
		if d.listener, err = net.Listen("tcp", ":"+strconv.Itoa(port)); err == nil {
			break
		}
	}
	if err != nil {
		return nil, fmt.Errorf("let the disks be read: %w", err)
	}
	go func() {
		defer close(d.done)
		_ = connlimit.Serve(d.listener, connlimit.NewRoom(places), func(net.Conn) {}, func(c net.Conn, admit func()) { d.answer(c, socket, admit) })
	}()
	return d, nil
}

// use has the door prove itself with the keys of the order from now on, and let in those that the order says.
func (d *door) use(o launcherapi.BackupOrder) error {
	own, err := tls.X509KeyPair([]byte(o.Certificate), []byte(o.Key))
	if err != nil {
		return fmt.Errorf("read the keys of the backup: %w", err)
	}
	clients := x509.NewCertPool()
	if !clients.AppendCertsFromPEM([]byte(o.Clients)) {
		return errors.New("read the keys of the backup: the authority of its worker is none")
	}
	d.keys.Store(&tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{own}, ClientCAs: clients, ClientAuth: tls.RequireAndVerifyClientCert,
		SessionTicketsDisabled: true, VerifyConnection: func(s tls.ConnectionState) error {
			if len(s.PeerCertificates) == 0 || s.PeerCertificates[0].Subject.CommonName != launcherapi.BackupClient {
				return errors.New("it is not the worker of a backup")
			}
			return nil
		}})
	return nil
}

func (d *door) answer(c net.Conn, socket string, admit func()) {
	client := tls.Server(c, &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: func(*tls.ClientHelloInfo) (*tls.Config, error) { return d.keys.Load(), nil }})
	ctx, stop := context.WithTimeout(context.Background(), prove)
	err := client.HandshakeContext(ctx)
	stop()
	if err != nil {
		return
	}
	admit()
	d.reads.Add(1)
	defer d.reads.Add(-1)
	qemu, err := net.Dial("unix", socket)
	if err != nil {
		return
	}
	go func() {
		_, _ = io.Copy(qemu, client)
		_ = qemu.Close()
	}()
	_, _ = io.Copy(client, qemu)
	_ = qemu.Close()
}

func (d *door) port() int {
	if a, ok := d.listener.Addr().(*net.TCPAddr); ok {
		return a.Port
	}
	return 0
}

// close closes the door and all connections through it.
func (d *door) close() {
	_ = d.listener.Close()
	<-d.done
}
