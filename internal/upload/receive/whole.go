package receive

import (
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source/uploadbody"
	"github.com/berth-vm/berth/internal/upload/minrate"
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
	r.Body = minrate.Body(w, r, s.pace)
	body, size, err := content(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	s.drop() // a tus upload that is not continued
	work, over, all := s.begin(), make(chan task.Report, 1), make(chan struct{})
	go func() {
		over <- work.RunFrom(s.ctx, uploadbody.New("the upload", &kept{Reader: body, server: s, w: w, left: size, all: all}, size))
	}()
	answered := isAsync(r) && answerEarly(w, work, all, over)
	report := <-over
	s.finish(report)
	if code, text := status(report); code != http.StatusOK && !answered {
		drain(w, sent)
		http.Error(w, text, code)
	}
}

// isAsync reports whether the client only waits until it need not send the data again, and not for the disk.
func isAsync(r *http.Request) bool { return strings.HasSuffix(r.URL.Path, "-async") }

// lookEvery is how often a transfer is checked that has all data of its client.
const lookEvery = 20 * time.Millisecond

// answerEarly answers when all data was received and verified, and only has to be made durable; it returns whether it did: it does
// not if the transfer ends before. The volume's status shows the rest.
func answerEarly(w http.ResponseWriter, work carrier, all <-chan struct{}, over chan task.Report) bool {
	tick := time.NewTicker(lookEvery)
	defer tick.Stop()
	var looks <-chan time.Time // none before the last byte is there
	for {
		select {
		case <-all:
			all, looks = nil, tick.C
		case report := <-over:
			over <- report
			return false
		case <-looks:
			if work.Progress().Stage == task.Flushing {
				w.Header().Set("Content-Length", "0") // or the client would wait for the handler's end,
				w.Header().Set("Connection", "close") // and so would its next request
				w.WriteHeader(http.StatusOK)
				_ = http.NewResponseController(w).Flush() // a client that has gone will not be told
				return true
			}
		}
	}
}

// kept is a body that is still to be drained after the transfer has closed it. If the server ends, a read that waits for
// the client ends too.
type kept struct {
	io.Reader
	server *Server
	w      http.ResponseWriter
	left   int64         // negative if the client did not say how much it sends
	all    chan struct{} // closed when it has sent everything
	ended  bool
}

// Read implements io.Reader.
func (k *kept) Read(p []byte) (int, error) {
	n, err := k.Reader.Read(p)
	k.left -= int64(n)
	if (errors.Is(err, io.EOF) || k.left == 0) && !k.ended {
		k.ended = true
		close(k.all)
	}
	return n, err
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

// content returns the image in a request and its size, -1 if it does not say: the body itself, or the first file of a form.
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
