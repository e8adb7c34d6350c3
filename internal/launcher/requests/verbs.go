// Package requests answers what the pod's own processes ask of a running guest, on behalf of users: to pause or reboot it, to show its console
// and screen, to connect to its ports, to freeze its filesystems, and what its agent knows.
package requests

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/berth-vm/berth/internal/launcher/agent"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/guest"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Server is a guest that runs, for what is asked of it.
type Server struct {
	Guest   guest.Guest
	Agent   agent.Agent
	Pauser  *guest.Pauser
	Freezer *agent.Freezer
	// Backup carries out an order about a backup. It is set before requests are served.
	Backup   func(line string) (launcherapi.BackupMoment, error)
	card     string // QEMU's id of the network card that connections to the guest use; empty if it has none
	forwards atomic.Int32
	screen   *screen
}

// New returns what answers requests about a guest. qemu takes pictures of its screen.
func New(g guest.Guest, qemu *qmp.Monitor) *Server {
	asks := agent.Agent{Guest: g}
	r := &Server{Guest: g, Agent: asks, Pauser: guest.NewPauser(g), Freezer: agent.NewFreezer(asks), screen: &screen{qemu: qemu, dir: launcherapi.StateDir}}
	if c := domain.Interfaces(g.Machine); len(c) > 0 {
		r.card = "host" + qmp.Device(c[0].Name)
	}
	return r
}

// ServeQuiet answers requests to freeze and thaw the guest, from processes of this pod, until done is closed.
func (r *Server) ServeQuiet(done <-chan struct{}) error {
	return serve(launcherapi.QuietSocket, done, r.Freezer.Answer)
}

// ServeVerbs answers the requests of this pod's processes until done is closed.
func (r *Server) ServeVerbs(done <-chan struct{}) error {
	return serve(launcherapi.VerbSocket, done, func(conn *net.UnixConn) { r.serveVerb(conn, done) })
}

// serve answers connections to a socket of this pod, each in its own goroutine, until done is closed.
func serve(socket string, done <-chan struct{}, answer func(*net.UnixConn)) error {
	_ = os.Remove(socket)
	l, err := net.Listen("unix", socket)
	if err != nil {
		return fmt.Errorf("serve %s: %w", socket, err)
	}
	go func() {
		<-done
		_ = l.Close()
	}()
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go answer(conn.(*net.UnixConn))
		}
	}()
	return nil
}

// verbWithin is how long a request, which is one line, may take to arrive.
const verbWithin = 10 * time.Second

// serveVerb answers one request.
func (r *Server) serveVerb(conn *net.UnixConn, done <-chan struct{}) {
	defer func() { _ = conn.Close() }()
	_ = conn.SetReadDeadline(time.Now().Add(verbWithin))
	in := bufio.NewReaderSize(conn, launcherapi.MostDatagram+2)
	line, err := in.ReadString('\n')
	if err != nil {
		return
	}
	_ = conn.SetReadDeadline(time.Time{})
	words := strings.Fields(line)
	if len(words) == 0 {
		return
	}
	user := &peer{Reader: in, conn: conn}
	switch {
	case words[0] == launcherapi.ForwardVerb && len(words) == 3:
		err = r.forward(user, words[1], words[2], done)
	case words[0] == launcherapi.VNCVerb && len(words) == 1:
		err = r.vnc(user, done)
	case words[0] == launcherapi.ScreenshotVerb && len(words) == 2:
		err = r.screenshot(user, words[1])
	case words[0] == launcherapi.FSFreezeVerb && len(words) == 2:
		user.say(said(nil, r.freezeFor(words[1])))
	case words[0] == launcherapi.BackupVerb && len(words) > 1:
		user.say(said(r.Backup(strings.TrimPrefix(strings.TrimSpace(line), launcherapi.BackupVerb))))
	case len(words) == 1:
		user.say(r.verb(words[0]))
	default:
		err = fmt.Errorf("%q is no verb", strings.TrimSpace(line))
	}
	if err != nil {
		user.say(launcherapi.Said{Refused: err.Error()})
	}
}

// verb carries out a request that is answered with one message.
func (r *Server) verb(verb string) launcherapi.Said {
	var answer any
	var err error
	switch verb {
	case launcherapi.PauseVerb:
		err = r.pause()
	case launcherapi.UnpauseVerb:
		err = r.unpause()
	case launcherapi.OSInfoVerb:
		answer, err = r.Agent.OsInfo()
	case launcherapi.FilesystemsVerb:
		answer, err = r.Agent.Filesystems()
	case launcherapi.UsersVerb:
		answer, err = r.Agent.Users()
	case launcherapi.ResetVerb:
		err = r.reset()
	case launcherapi.SoftRebootVerb:
		err = r.softReboot()
	case launcherapi.FSThawVerb:
		err = r.Freezer.Unhold()
	default:
		err = fmt.Errorf("%q is no verb", verb)
	}
	return said(answer, err)
}

// said is the message with an answer, or with the error.
func said(answer any, err error) launcherapi.Said {
	if err != nil {
		return launcherapi.Said{Refused: err.Error(), NoAgent: errors.Is(err, agent.ErrNoAgent)}
	}
	if answer == nil {
		return launcherapi.Said{}
	}
	text, err := json.Marshal(answer)
	if err != nil {
		return launcherapi.Said{Refused: err.Error()}
	}
	return launcherapi.Said{Answer: text}
}

// peer is a client whose request was read. What else it sends is read with the reader.
type peer struct {
	io.Reader
	conn *net.UnixConn
}

// say sends a message to the client. An error is ignored: the client is gone then.
func (p *peer) say(s launcherapi.Said) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(verbWithin))
	_ = json.NewEncoder(p.conn).Encode(s)
	_ = p.conn.SetWriteDeadline(time.Time{})
}

// lingers is how long a guest may still answer a client that sends nothing more: the client may be gone.
const lingers = 10 * time.Second

// join copies bytes in both directions until the guest closes its side, until some time after the user has closed theirs, or until done is
// closed.
func join(user *peer, guest halfCloser, done <-chan struct{}) {
	over := make(chan struct{})
	go func() {
		select {
		case <-over:
		case <-done:
		}
		_ = guest.Close()
		_ = user.conn.Close()
	}()
	received := make(chan struct{})
	go func() {
		defer close(received)
		if _, err := io.Copy(guest, user); err != nil || guest.CloseWrite() != nil {
			_ = guest.Close()
		}
		_ = guest.SetReadDeadline(time.Now().Add(lingers))
	}()
	_, _ = io.Copy(user.conn, guest) // the guest's side ended: there is nothing more to show
	close(over)
	<-received
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

var errNoScreen = errors.New("the machine has no screen: autoattachGraphicsDevice is false")

// vnc connects the user to QEMU's VNC server.
func (r *Server) vnc(user *peer, done <-chan struct{}) error {
	conn, err := net.Dial("unix", launcherapi.ScreenSocket)
	if err != nil {
		return errNoScreen
	}
	user.say(launcherapi.Said{})
	join(user, conn.(*net.UnixConn), done)
	return nil
}
