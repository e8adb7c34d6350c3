package aggregated

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

const (
	// plainProtocol: messages are the bytes of the console, in both directions.
	plainProtocol = "plain.kubevirt.io"
	messageMax    = 64 << 10
	// pingEvery keeps an idle connection alive.
	pingEvery = 30 * time.Second
)

// console connects a websocket with the guest's serial console.
func (s *Server) console(w http.ResponseWriter, r *http.Request) {
	a := read(r)
	log := s.Log.With("user", a.user, "path", r.URL.Path)
	i, err := s.guest(r.Context(), a)
	if err != nil {
		log.Info("refused", "why", err.Error())
		refuse(w, err)
		return
	}
	conn, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		log.Info("refused", "why", err.Error())
		return // it has answered
	}
	defer conn.Close()
	log.Info("console opened")
	began := time.Now()
	err = s.connect(r.Context(), i, &socket{conn: conn})
	log.Info("console closed", "after", time.Since(began).Round(time.Second).String(), "why", fmt.Sprint(err))
}

// connect hands bytes to and fro until either end has enough.
func (s *Server) connect(ctx context.Context, i *kubevirt.VirtualMachineInstance, user *socket) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	in, typed := io.Pipe()
	var parts sync.WaitGroup
	defer parts.Wait()
	defer user.conn.Close() // ends the reader
	defer in.Close()
	parts.Go(func() {
		err := user.read(typed)
		_ = typed.CloseWithError(io.EOF)
		cancel(err)
	})
	parts.Go(func() { user.ping(ctx) })
	err := s.Cluster.Console(ctx, i, in, user)
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	user.bye(err)
	return err
}

// socket is the user's end. Writes come from several goroutines.
type socket struct {
	conn *websocket.Conn
	mu   sync.Mutex
}

// read copies the user's input to the guest.
func (u *socket) read(to io.Writer) error {
	u.conn.SetReadLimit(messageMax)
	for {
		_, r, err := u.conn.NextReader()
		if err != nil {
			return err
		}
		if _, err := io.Copy(to, r); err != nil {
			return err
		}
	}
}

// Write sends the guest's output to the user.
func (u *socket) Write(p []byte) (int, error) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if err := u.conn.WriteMessage(websocket.BinaryMessage, p); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (u *socket) ping(ctx context.Context) {
	tick := time.NewTicker(pingEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			if u.conn.WriteControl(websocket.PingMessage, nil, time.Now().Add(pingEvery)) != nil {
				return
			}
		}
	}
}

// bye sends the reason for the end, if the user is still connected.
func (u *socket) bye(err error) {
	code, text := websocket.CloseNormalClosure, ""
	if err != nil {
		text = err.Error()
	}
	message := websocket.FormatCloseMessage(code, text[:min(len(text), 100)])
	_ = u.conn.WriteControl(websocket.CloseMessage, message, time.Now().Add(time.Second)) // gone already: nothing to say
}
