package web

import (
	"net/http"
	"time"

	"github.com/gorilla/websocket"

	"github.com/berth-vm/berth/internal/virtctl/machine"
	"github.com/berth-vm/berth/internal/virtctl/stream"
)

// upgrader: that the request is from our own page was looked at by guard.
var upgrader = websocket.Upgrader{HandshakeTimeout: 10 * time.Second, CheckOrigin: func(*http.Request) bool { return true }}

// closeRefused is the code of a websocket that the cluster did not open; why is its reason.
const closeRefused = 4000

// connect joins the page with the console or the screen of a machine. A browser does not show an answer to a request for a websocket,
// so one is opened in any case, and closed with what the cluster said.
func (s *Server) connect(w http.ResponseWriter, r *http.Request, p *Person) {
	verb := map[string]string{"console": "console", "screen": "vnc"}[r.PathValue("what")]
	if verb == "" {
		http.NotFound(w, r)
		return
	}
	page, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return // it has answered
	}
	defer page.Close()
	c := p.Client.In(r.PathValue("namespace"))
	guest, err := stream.Open(r.Context(), c.Config, machine.Path(c, "virtualmachineinstances", r.PathValue("name"), verb))
	if err != nil {
		const most = 120 // what a close frame has room for
		text := err.Error()
		message := websocket.FormatCloseMessage(closeRefused, text[:min(len(text), most)])
		_ = page.WriteControl(websocket.CloseMessage, message, time.Now().Add(time.Second)) // gone already: nothing to say
		return
	}
	err = stream.Join(r.Context(), guest, stream.Of(page))
	s.Log.Info("stream closed", "path", r.URL.Path, "why", err)
}
