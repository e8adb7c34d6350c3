package receive

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"

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
	r.Body = pace.Body(w, r, s.pace)
	body, size, err := content(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.drop() // a tus upload nobody goes on with
	report := s.begin().RunFrom(s.ctx, stream.New("the upload", body, size))
	s.finish(report)
	if code, text := status(report); code != http.StatusOK {
		http.Error(w, text, code)
	}
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
