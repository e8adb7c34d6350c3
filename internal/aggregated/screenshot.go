package aggregated

import (
	"context"
	"fmt"
	"image/png"
	"net/http"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/rfb"
)

const (
	// shotWithin is how long a screen may take to be read.
	shotWithin = 20 * time.Second
	// shotsMost are read at once: a large screen is 40 MiB, and the pod has a limit.
	shotsMost = 2
)

var shots = make(chan struct{}, shotsMost)

// screenshot answers with a picture of the guest's screen. Whoever may connect to the screen may have it. With moveCursor=true the
// pointer is moved first, for a screen that sleeps.
func (s *Server) screenshot(w http.ResponseWriter, r *http.Request) {
	a := read(r)
	log := s.Log.With("user", a.user, "path", r.URL.Path)
	ctx, cancel := context.WithTimeout(r.Context(), shotWithin)
	defer cancel()
	select {
	case shots <- struct{}{}:
		defer func() { <-shots }()
	case <-ctx.Done():
		refuse(w, apierrors.NewTooManyRequests("others are taking pictures of screens", 5))
		return
	}
	i, err := s.guest(ctx, a)
	if err != nil {
		log.Info("refused", "why", err.Error())
		refuse(w, err)
		return
	}
	conn, said, err := s.Cluster.Open(ctx, i, launch.VNCVerb, "")
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
	move, _ := strconv.ParseBool(r.URL.Query().Get("moveCursor"))
	picture, err := rfb.Capture(conn, move)
	if err != nil {
		log.Info("no picture", "why", err.Error())
		refuse(w, fmt.Errorf("take a picture of the screen: %w", err))
		return
	}
	w.Header().Set("Content-Type", "image/png")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	err = (&png.Encoder{CompressionLevel: png.BestSpeed}).Encode(w, picture)
	log.Info("picture taken", "size", picture.Rect.Max.String(), "why", fmt.Sprint(err))
}
