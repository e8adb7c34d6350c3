package receive

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/transfer/source/stream"
	"github.com/berth-vm/berth/internal/upload/pace"
)

// whole takes an image in one request.
func (s *Server) whole(w http.ResponseWriter, r *http.Request) {
	if !s.take(w) {
		return
	}
	defer s.turn.Unlock()
	if s.over(w) {
		return
	}
	sent := r.Body
	r.Body = pace.Body(w, r, s.pace)
	body, size, err := content(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.drop() // a tus upload nobody goes on with
	report := s.begin().RunFrom(s.ctx, stream.New("the upload", &kept{Reader: body, server: s, w: w}, size))
	s.finish(report)
	if code, text := status(report); code != http.StatusOK {
		drain(w, sent)
		http.Error(w, text, code)
	}
}

// kept is a body that is still to be drained after the transfer has closed it. If the server ends, a read that waits for
// the client ends too.
type kept struct {
	io.Reader
	server *Server
	w      http.ResponseWriter
}

// Close implements io.Closer.
func (k *kept) Close() error {
	if k.server.ctx.Err() == nil {
		return nil
	}
	return http.NewResponseController(k.w).SetReadDeadline(time.Now())
}

const (
	drainMax = 64 << 20
	drainFor = 3 * time.Second
)

// drain reads some of what a client still sends to a server that has had enough. Closing the connection on it instead
// would make it see a broken connection more often than the answer.
func drain(w http.ResponseWriter, sent io.Reader) {
	c := http.NewResponseController(w)
	if c.SetReadDeadline(time.Now().Add(drainFor)) != nil {
		return
	}
	_, _ = io.CopyN(io.Discard, sent, drainMax) // however it ends, the answer comes now
	_ = c.SetReadDeadline(time.Time{})          // the connection is closed if this fails
}

// content is the image in a request and its size, -1 if it does not say: the body itself, or the first file of a form.
func content(r *http.Request) (io.ReadCloser, int64, error) {
	kind, _, err := mime.ParseMediaType(r.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(kind, "multipart/") {
		return r.Body, r.ContentLength, nil
	}
	form, err := r.MultipartReader()
	if err != nil {
		return nil, 0, fmt.Errorf("read the form: %w", err)
	}
	for range formFields {
		part, err := form.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, 0, fmt.Errorf("read the form: %w", err)
		}
		if part.FormName() == formFile {
			return part, -1, nil
		}
	}
	return nil, 0, fmt.Errorf("the form has no file in a field called %q", formFile)
}

const (
	formFile   = "file"
	formFields = 16 // more before the file are not looked at
)
