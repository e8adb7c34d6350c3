package aggregated

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/gorilla/websocket"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// screen connects a websocket with the guest's screen.
func (s *Server) screen(w http.ResponseWriter, r *http.Request) {
	s.stream(w, r, launcherapi.VNCVerb, "", stream{})
}

// forward connects a websocket with a port of the guest.
func (s *Server) forward(w http.ResponseWriter, r *http.Request) {
	port, protocol := r.PathValue("port"), strings.ToLower(r.PathValue("protocol"))
	if protocol == "" {
		protocol = "tcp"
	}
	number, err := strconv.ParseUint(port, 10, 16)
	switch {
	case err != nil || number == 0:
		refuse(w, apierrors.NewBadRequest(fmt.Sprintf("port %.20q is not between 1 and 65535", port)))
	case protocol != "tcp" && protocol != "udp":
		refuse(w, apierrors.NewBadRequest(fmt.Sprintf("unsupported protocol %.20q: it is neither tcp nor udp", protocol)))
	default:
		s.stream(w, r, launcherapi.ForwardVerb, fmt.Sprintf("%s %d", protocol, number), stream{datagrams: protocol == "udp"})
	}
}

// stream connects a websocket with a part of the guest. What cannot be opened is refused before the websocket is.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, verb, what string, t stream) {
	a := read(r)
	log := s.Log.With("user", a.user, "path", r.URL.Path)
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	i, err := s.guest(ctx, a)
	if err == nil {
		var said launcherapi.Said
		if t.guest, said, err = s.Cluster.Open(ctx, i, verb, what); err == nil && said.Refused != "" {
			err = unable(i, said.Refused)
		}
	}
	if err != nil {
		log.Info("refused", "why", err.Error())
		refuse(w, err)
		return
	}
	defer t.guest.Close()
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		log.Info("refused", "why", err.Error())
		return // it has answered
	}
	defer conn.Close()
	log.Info("stream opened")
	began := time.Now()
	t.user = &socket{conn: conn}
	err = t.run(ctx)
	log.Info("stream closed", "after", time.Since(began).Round(time.Second).String(), "why", fmt.Sprint(err))
}

// stream hands bytes to and fro.
type stream struct {
	user      *socket
	guest     io.ReadWriteCloser
	datagrams bool // each message is one
}

// run lasts until either end has enough.
func (t stream) run(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	var parts sync.WaitGroup
	defer parts.Wait()
	defer func() { _, _ = t.guest.Close(), t.user.conn.Close() }() // which ends the two below
	parts.Go(func() { cancel(errors.Join(errUserLeft, t.fromUser())) })
	parts.Go(func() { cancel(errors.Join(errGuestEnded, t.fromGuest())) })
	parts.Go(func() { t.user.ping(ctx) })
	<-ctx.Done()
	err := context.Cause(ctx)
	t.user.bye(nil)
	return err
}

var (
	errUserLeft   = errors.New("the user left")
	errGuestEnded = errors.New("the guest's side ended")
)

func (t stream) fromUser() error {
	if !t.datagrams {
		return t.user.read(t.guest)
	}
	t.user.conn.SetReadLimit(launcherapi.MostDatagram)
	for {
		_, datagram, err := t.user.conn.ReadMessage()
		if err != nil {
			return err
		}
		if err := launcherapi.WriteDatagram(t.guest, datagram); err != nil {
			return err
		}
	}
}

func (t stream) fromGuest() error {
	if !t.datagrams {
		_, err := io.Copy(t.user, t.guest)
		return err
	}
	room := make([]byte, launcherapi.MostDatagram)
	for {
		datagram, err := launcherapi.ReadDatagram(t.guest, room)
		if err != nil {
			return err
		}
		if _, err := t.user.Write(datagram); err != nil {
			return err
		}
	}
}

var upgrader = websocket.Upgrader{
	Subprotocols: []string{plainProtocol}, HandshakeTimeout: 10 * time.Second,
	CheckOrigin: func(*http.Request) bool { return true }, // the API server in front knows who asks; a browser has no token to lend
}
