package receive

import (
	"errors"
	"io"
	"net/http"
	"strconv"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/upload/minrate"
	"github.com/berth-vm/berth/internal/upload/tus"
)

func (s *Server) options(w http.ResponseWriter, _ *http.Request) {
	h := w.Header()
	h.Set(tus.Resumable, tus.Version)
	h.Set("Tus-Version", tus.Version)
	h.Set("Tus-Extension", tus.Extensions)
	w.WriteHeader(http.StatusNoContent)
}

// speaks answers a request in another version of the protocol.
func speaks(w http.ResponseWriter, r *http.Request) bool {
	w.Header().Set(tus.Resumable, tus.Version)
	if err := tus.CheckVersion(r.Header); err != nil {
		w.Header().Set("Tus-Version", tus.Version)
		http.Error(w, err.Error(), http.StatusPreconditionFailed)
		return false
	}
	return true
}

// create makes an upload, or finds it if it is the one under way.
func (s *Server) create(w http.ResponseWriter, r *http.Request) {
	if !speaks(w, r) {
		return
	}
	length, err := tus.ParseLength(r.Header)
	var about map[string]string
	if err == nil {
		about, err = tus.ParseMetadata(r.Header.Get(tus.Metadata))
	}
	if err == nil && length == 0 {
		err = errors.New("the upload is empty")
	}
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if !s.take(w) {
		return
	}
	defer s.turn.Unlock()
	if s.over(w) {
		return
	}
	id := tus.NewID(length, about)
	if s.current(id) == nil {
		s.drop()
		s.start(id)
	}
	w.Header().Set("Location", tus.Path+"/"+id.String())
	w.WriteHeader(http.StatusCreated)
}

// current returns the session of an id, nil if there is none.
func (s *Server) current(id tus.ID) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.session != nil && s.session.id == id {
		return s.session
	}
	return nil
}

// find returns the session that a request names. A worker that has none yet takes up what the id says, since an earlier one may
// have made it.
func (s *Server) find(w http.ResponseWriter, r *http.Request) *session {
	id, err := tus.ParseID(r.PathValue("id"))
	if err != nil || id.Length == 0 {
		http.Error(w, tus.ErrID.Error(), http.StatusNotFound)
		return nil
	}
	if one := s.current(id); one != nil {
		return one
	}
	if s.completed(id) {
		tus.AnswerComplete(w, r, id)
		return nil
	}
	if s.over(w) || !s.take(w) {
		return nil
	}
	defer s.turn.Unlock()
	s.mu.Lock()
	other := s.session
	s.mu.Unlock()
	switch {
	case other == nil:
		return s.start(id)
	case other.id == id: // another request was faster
		return other
	}
	http.Error(w, "no such upload: another took its place", http.StatusNotFound)
	return nil
}

// completed reports whether the upload of an id is the one that filled the disk. Its sender may not have got the answer.
func (s *Server) completed(id tus.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.done != nil && s.done.Outcome == task.Done && s.done.Upload == id.String()
}

// head answers with the offset of an upload.
func (s *Server) head(w http.ResponseWriter, r *http.Request) {
	if !speaks(w, r) {
		return
	}
	one := s.find(w, r)
	if one == nil {
		return
	}
	at, err := one.position(r.Context())
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	h := w.Header()
	h.Set(tus.Offset, strconv.FormatInt(at, 10))
	h.Set(tus.Length, strconv.FormatInt(one.id.Length, 10))
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(http.StatusOK)
}

// patch takes the next bytes of an upload. The answer to the last of them waits until the disk is complete.
func (s *Server) patch(w http.ResponseWriter, r *http.Request) {
	if !speaks(w, r) {
		return
	}
	offset, err := tus.ParseOffset(r.Header)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	kind := r.Header.Get("Content-Type")
	if kind != tus.Plain && kind != tus.Frames {
		http.Error(w, "Content-Type must be "+tus.Plain+" or "+tus.Frames, http.StatusUnsupportedMediaType)
		return
	}
	one := s.find(w, r)
	if one == nil || !s.take(w) {
		return
	}
	defer s.turn.Unlock()
	at, err := one.position(r.Context())
	switch {
	case err != nil:
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	case at != offset:
		w.Header().Set(tus.Offset, strconv.FormatInt(at, 10))
		http.Error(w, "the upload is at byte "+strconv.FormatInt(at, 10), http.StatusConflict)
		return
	}
	body, free, err := frames(minrate.Body(w, r, s.pace), kind, one.id.Length-offset)
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer free()
	if at < one.id.Length {
		err = one.deliver(body)
	}
	s.answer(w, r, one, err)
}

// frames undoes the framing of a body, if it has one.
func frames(body io.Reader, kind string, left int64) (io.Reader, func(), error) {
	if kind == tus.Plain {
		return io.LimitReader(body, left), func() {}, nil
	}
	r, err := peerproto.NewReader(body, left)
	if err != nil {
		return nil, nil, err
	}
	return r, r.Close, nil
}

// answer answers a PATCH whose body ended with err.
func (s *Server) answer(w http.ResponseWriter, r *http.Request, one *session, err error) {
	if errors.Is(err, peerproto.ErrFrame) {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	one.mu.Lock()
	whole := one.at == one.id.Length
	one.mu.Unlock()
	if whole || errors.Is(err, errStopped) {
		select {
		case <-one.done:
		case <-r.Context().Done():
			return // the next request asks again
		}
	}
	at, _ := one.position(r.Context()) // known by now
	select {
	case <-one.done:
		if one.report.Outcome != task.Done {
			drain(w, r.Body)
			code, text := status(one.report)
			http.Error(w, text, code)
			return
		}
	default:
	}
	w.Header().Set(tus.Offset, strconv.FormatInt(at, 10))
	w.WriteHeader(http.StatusNoContent)
}
