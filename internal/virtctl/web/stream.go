package web

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/virtctl/web/watch"
)

const (
	// gather is how long a change waits for others that follow it: a machine that starts changes five objects at once.
	gather = 10 * time.Millisecond
	// stillHere is how often an unchanged page gets a sign of life, and its client is checked.
	stillHere = 15 * time.Second
)

// stream sends what a page shows, and then what changes of it, until the page is closed.
func (s *Server) stream(w http.ResponseWriter, r *http.Request, p *Person) {
	out := http.NewResponseController(w)
	_ = out.SetWriteDeadline(time.Time{}) // it lasts as long as the page
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("X-Accel-Buffering", "no")
	ctx := r.Context()
	ask := question{view: r.URL.Query().Get("view"), namespace: r.URL.Query().Get("namespace"), name: r.URL.Query().Get("name")}
	changes, end := p.Store.Watch()
	defer end()
	events := func() []*corev1.Event { return nil }
	if ask.view == "machine" {
		events = watch.Events(ctx, p.Client, ask.namespace, p.Store)
	}
	if err := p.Store.Ready(ctx); err != nil {
		_, _ = fmt.Fprintf(w, "event: problem\ndata: %s\n\n", quoted(err.Error()))
		return
	}
	renderer := newRenderer()
	send := func() error {
		return renderer.draw(p.Store.Objects(), ask, events(), func(u *update) error {
			text, err := json.Marshal(u)
			if err != nil {
				return fmt.Errorf("write an update: %w", err)
			}
			if _, err := fmt.Fprintf(w, "data: %s\n\n", text); err != nil {
				return err
			}
			return out.Flush()
		})
	}
	if err := send(); err != nil {
		s.Log.Info("a page is gone", "why", err)
		return
	}
	s.follow(ctx, changes, send, func() error {
		if _, err := s.Door.Who(r); err != nil {
			return err // the session is over
		}
		if _, err := fmt.Fprint(w, ": still here\n\n"); err != nil {
			return err
		}
		return out.Flush()
	})
}

// follow sends after changes, and says that it is there when there are none.
func (s *Server) follow(ctx context.Context, changes <-chan struct{}, send, idle func() error) {
	tick := time.NewTicker(stillHere)
	defer tick.Stop()
	for {
		var err error
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			err = idle()
		case <-changes:
			wait := time.NewTimer(gather)
			select {
			case <-wait.C:
			case <-ctx.Done():
				wait.Stop()
				return
			}
			err = send()
		}
		if err != nil {
			s.Log.Info("a page is gone", "why", err)
			return
		}
	}
}

func quoted(text string) string {
	out, _ := json.Marshal(text) // a string can always be written
	return string(out)
}
