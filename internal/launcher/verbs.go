package launcher

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// serveVerbs lets the verbs of this pod's processes reach the guest, until done is closed.
func (r *running) serveVerbs(done <-chan struct{}) error {
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

// verbWithin is how long a request may take to arrive; it is one line.
const verbWithin = 10 * time.Second

func (r *running) serveVerb(conn *net.UnixConn, done <-chan struct{}) {
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
		user.say(said(r.backup(strings.TrimPrefix(strings.TrimSpace(line), launcherapi.BackupVerb))))
	case len(words) == 1:
		user.say(r.verb(words[0]))
	default:
		err = fmt.Errorf("%q is no verb", strings.TrimSpace(line))
	}
	if err != nil {
		user.say(launcherapi.Said{Refused: err.Error()})
	}
}

// verb carries out one that has an answer and nothing more.
func (r *running) verb(verb string) launcherapi.Said {
	var answer any
	var err error
	switch verb {
	case launcherapi.PauseVerb:
		err = r.pause()
	case launcherapi.UnpauseVerb:
		err = r.unpause()
	case launcherapi.OSInfoVerb:
		answer, err = r.osInfo()
	case launcherapi.FilesystemsVerb:
		answer, err = r.filesystems()
	case launcherapi.UsersVerb:
		answer, err = r.users()
	case launcherapi.ResetVerb:
		err = r.reset()
	case launcherapi.SoftRebootVerb:
		err = r.softReboot()
	case launcherapi.FSThawVerb:
		err = r.quiet.unhold()
	default:
		err = fmt.Errorf("%q is no verb", verb)
	}
	return said(answer, err)
}

// said is the answer, or why there is none.
func said(answer any, err error) launcherapi.Said {
	if err != nil {
		return launcherapi.Said{Refused: err.Error(), NoAgent: errors.Is(err, errNoAgent)}
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

// peer is a client after its request was read; further bytes of it come through the reader.
type peer struct {
	io.Reader
	conn *net.UnixConn
}

// say answers. What a refusal comes after nobody reads any more, so errors are nobody's.
func (p *peer) say(s launcherapi.Said) {
	_ = p.conn.SetWriteDeadline(time.Now().Add(verbWithin))
	_ = json.NewEncoder(p.conn).Encode(s)
	_ = p.conn.SetWriteDeadline(time.Time{})
}

// lingers is how long a guest may go on answering somebody who says nothing more: they may be gone.
const lingers = 10 * time.Second

// join hands bytes to and fro until the guest has ended, the user has ended and the guest's last words are over, or done is
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
	heard := make(chan struct{})
	go func() {
		defer close(heard)
		if _, err := io.Copy(guest, user); err != nil || guest.CloseWrite() != nil {
			_ = guest.Close()
		}
		_ = guest.SetReadDeadline(time.Now().Add(lingers))
	}()
	_, _ = io.Copy(user.conn, guest) // the guest's side ended: there is nothing more to show
	close(over)
	<-heard
}

type halfCloser interface {
	net.Conn
	CloseWrite() error
}

var errNoScreen = errors.New("the machine has no screen: autoattachGraphicsDevice is false")

// vnc connects the user to QEMU's VNC server.
func (r *running) vnc(user *peer, done <-chan struct{}) error {
	conn, err := net.Dial("unix", launcherapi.ScreenSocket)
	if err != nil {
		return errNoScreen
	}
	user.say(launcherapi.Said{})
	join(user, conn.(*net.UnixConn), done)
	return nil
}
