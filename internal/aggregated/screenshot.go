package aggregated

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

	"github.com/berth-vm/berth/internal/launcherapi"
)

// shotWithin is how long a picture of a screen may take.
const shotWithin = 20 * time.Second

// pngHeader is the signature of a PNG.
var pngHeader = []byte("\x89PNG\r\n\x1a\n")

// screenshot answers with a picture of the guest's screen, which its launcher takes: no pixel of a guest is decoded here. It
// needs the right to connect to the screen. With moveCursor=true the pointer is moved first, for a screen that sleeps.
func (s *Server) screenshot(w http.ResponseWriter, r *http.Request) {
	a := read(r)
	log := s.Log.With("user", a.user, "path", r.URL.Path)
	ctx, cancel := context.WithTimeout(r.Context(), shotWithin)
	defer cancel()
	i, err := s.guest(ctx, a)
	if err != nil {
		log.Info("refused", "why", err.Error())
		refuse(w, err)
		return
	}
	how := launcherapi.ScreenAsItIs
	if move, _ := strconv.ParseBool(r.URL.Query().Get("moveCursor")); move {
		how = launcherapi.ScreenAwake
	}
	conn, said, err := s.Cluster.Open(ctx, i, launcherapi.ScreenshotVerb, how)
	if err == nil && said.Refused != "" {
		err = unable(i, said.Refused)
	}
	if err != nil {
		log.Info("refused", "why", err.Error())
		refuse(w, err)
		return
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	header := make([]byte, len(pngHeader))
	if _, err := io.ReadFull(conn, header); err != nil || !bytes.Equal(header, pngHeader) {
		log.Info("no picture", "why", fmt.Sprint(err))
		refuse(w, errors.New("take a picture of the screen: the launcher does not answer with one"))
		return
	}
	w.Header().Set("Content-Type", "image/png")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	n, err := io.Copy(w, io.MultiReader(bytes.NewReader(header), io.LimitReader(conn, launcherapi.MostPicture)))
	log.Info("picture taken", "bytes", n, "why", fmt.Sprint(err))
}
