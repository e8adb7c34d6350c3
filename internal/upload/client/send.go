package client

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"

	"github.com/berth-vm/berth/internal/upload/tus"
)

// send creates the upload, or finds an earlier one, and continues it until the server has all data. It counts consecutive attempts
// that bring the server no new data.
func (s *sender) send(ctx context.Context) error {
	reached := int64(-1)
	var last error
	for idle := 0; idle <= s.Retries; idle++ {
		if idle > 0 {
			if err := s.wait(ctx, idle-1, last); err != nil {
				return err
			}
		}
		offset, err := s.try(ctx)
		var refused *Refused
		switch {
		case err == nil:
			s.Progress(s.file.Size, s.file.Size)
			return nil
		case errors.Is(err, errNoTus), ctx.Err() != nil, hopeless(err):
			return err
		case errors.As(err, &refused): // a volume that has its data too: the server says so of this very upload with its offset
			return err
		}
		if offset > reached {
			reached, idle = offset, -1
		}
		last = err
	}
	return fmt.Errorf("error uploading image after %d retries: %w", s.Retries, last)
}

// try continues the upload once. It returns the server's offset before the attempt.
func (s *sender) try(ctx context.Context) (int64, error) {
	if s.upload == nil {
		if err := s.create(ctx); err != nil {
			return 0, err
		}
	}
	offset, err := s.offset(ctx)
	if err != nil {
		return 0, err
	}
	if err := s.file.unchanged(); err != nil {
		return offset, &Refused{Status: http.StatusPreconditionFailed, Message: err.Error()}
	}
	s.Progress(offset, s.file.Size)
	return offset, s.patch(ctx, offset)
}

// create makes the upload. The server knows the file again by its fingerprint, so that doing it twice does no harm.
func (s *sender) create(ctx context.Context) error {
	about := map[string]string{"filename": s.file.Name, tus.Fingerprint: s.file.Mark}
	if s.file.raw {
		about[tus.Format] = tus.Raw
	}
	answer, err := s.do(ctx, http.MethodPost, s.at(tus.Path), map[string]string{
		tus.Length: strconv.FormatInt(s.file.Size, 10), tus.Metadata: tus.FormatMetadata(about),
	})
	if err != nil {
		return err
	}
	switch answer.StatusCode {
	case http.StatusCreated:
	case http.StatusNotFound, http.StatusMethodNotAllowed, http.StatusNotImplemented:
		return errNoTus
	default:
		return verdict(answer)
	}
	place, err := url.Parse(answer.Header.Get("Location"))
	if err != nil || place.Path == "" {
		return &Refused{Status: answer.StatusCode, Message: "the server did not say where the upload is"}
	}
	// Never to another host than the one whose certificate was checked: the token goes along.
	s.upload = s.at(place.Path)
	return nil
}

// offset asks the server for its offset.
func (s *sender) offset(ctx context.Context) (int64, error) {
	answer, err := s.do(ctx, http.MethodHead, s.upload, nil)
	if err != nil {
		return 0, err
	}
	if answer.StatusCode != http.StatusOK && answer.StatusCode != http.StatusNoContent {
		if answer.StatusCode == http.StatusNotFound || answer.StatusCode == http.StatusGone {
			s.upload = nil // made again by the next try
			return 0, errors.New("the server does not know the upload any more")
		}
		return 0, verdict(answer)
	}
	offset, err := tus.ParseOffset(answer.Header)
	if err != nil || offset > s.file.Size {
		return 0, fmt.Errorf("the server is at byte %q of %d", answer.Header.Get(tus.Offset), s.file.Size)
	}
	return offset, nil
}

// patch sends all data from offset on.
func (s *sender) patch(ctx context.Context, offset int64) error {
	b := body{from: offset, length: -1, kind: tus.Frames, write: s.file.frames}
	if s.plain {
		b = body{from: offset, length: s.file.Size - offset, kind: tus.Plain, write: s.file.bytes}
	}
	answer, err := s.stream(ctx, http.MethodPatch, s.upload, b)
	switch {
	case err != nil:
		return err
	case answer.StatusCode == http.StatusNoContent:
		if at, err := tus.ParseOffset(answer.Header); err != nil || at != s.file.Size {
			return fmt.Errorf("the server took %d bytes of %d", at, s.file.Size)
		}
		return nil
	case answer.StatusCode == http.StatusUnsupportedMediaType && !s.plain:
		s.plain = true
		return errors.New("the server takes no frames")
	case answer.StatusCode == http.StatusConflict && answer.Header.Get(tus.Offset) != "":
		return errors.New("the server is at another byte") // HEAD will say which
	}
	return verdict(answer)
}

// asyncPath is the path to which files are posted on a server without tus.
const asyncPath = "/v1beta1/upload-async"

// post returns how a server without tus gets the file: all of it, every time.
func (s *sender) post(ctx context.Context) error {
	var last error
	for try := 0; try <= s.Retries; try++ {
		if try > 0 {
			if err := s.wait(ctx, try-1, last); err != nil {
				return err
			}
		}
		answer, err := s.stream(ctx, http.MethodPost, s.at(asyncPath), body{
			length: s.file.Size, kind: "application/octet-stream", write: s.file.bytes,
		})
		if err == nil {
			if answer.StatusCode == http.StatusOK {
				s.Progress(s.file.Size, s.file.Size)
				return nil
			}
			err = verdict(answer)
		}
		var refused *Refused
		if errors.As(err, &refused) || ctx.Err() != nil || hopeless(err) {
			return err
		}
		last = err
	}
	return fmt.Errorf("error uploading image after %d retries: %w", s.Retries, last)
}

// hopeless reports whether the server is not the one the file is for, so that trying again cannot help.
func hopeless(err error) bool {
	var untrusted *tls.CertificateVerificationError
	return errors.As(err, &untrusted) || errors.Is(err, http.ErrSchemeMismatch)
}

func (s *sender) at(to string) *url.URL {
	u := *s.base
	u.Path = path.Join("/", u.Path, to)
	return &u
}

// verdict returns what an answer that is no success means: worth another try, or not.
func verdict(answer *response) error {
	refused := &Refused{Status: answer.StatusCode, Message: answer.text}
	switch answer.StatusCode {
	case http.StatusServiceUnavailable, http.StatusBadGateway, http.StatusGatewayTimeout, http.StatusTooManyRequests,
		http.StatusRequestTimeout, http.StatusLocked, http.StatusUnauthorized, http.StatusInternalServerError:
		return errors.New(refused.Error())
	}
	return refused
}

// response is an answer whose body was read.
type response struct {
	*http.Response
	text string
}

// textMax is the most that is shown of an answer.
const textMax = 4 << 10

// do sends a request without a body. A refused token is renewed once.
func (s *sender) do(ctx context.Context, method string, to *url.URL, headers map[string]string) (*response, error) {
	for renewed := false; ; renewed = true {
		req, err := http.NewRequestWithContext(ctx, method, to.String(), nil)
		if err != nil {
			return nil, err
		}
		for key, value := range headers {
			req.Header.Set(key, value)
		}
		answer, err := s.round(req)
		if err != nil || answer.StatusCode != http.StatusUnauthorized || renewed {
			return answer, err
		}
		if err := s.renew(ctx); err != nil {
			return nil, err
		}
	}
}

// body is the file from somewhere on.
type body struct {
	from   int64
	length int64 // as it is sent; -1 if that is not known before
	kind   string
	write  func(ctx context.Context, w io.Writer, from int64, sent func(int64)) error
}

// stream sends a body.
func (s *sender) stream(ctx context.Context, method string, to *url.URL, b body) (*response, error) {
	sending, stop := context.WithCancel(ctx)
	defer stop()
	out := newOutgoing(func(w io.Writer) error {
		return b.write(sending, w, b.from, func(at int64) { s.Progress(at, s.file.Size) })
	})
	req, err := http.NewRequestWithContext(sending, method, to.String(), out)
	if err != nil {
		return nil, err
	}
	req.ContentLength = b.length
	req.Header.Set("Content-Type", b.kind)
	if method == http.MethodPatch {
		req.Header.Set(tus.Offset, strconv.FormatInt(b.from, 10))
	}
	answer, err := s.round(req)
	stop()
	out.end() // the server may not have wanted it all
	if err == nil && answer.StatusCode == http.StatusUnauthorized {
		if err = s.renew(ctx); err == nil {
			err = errors.New("the token was not valid any more")
		}
	}
	return answer, err
}

func (s *sender) round(req *http.Request) (*response, error) {
	req.Header.Set("Authorization", "Bearer "+s.token)
	req.Header.Set("User-Agent", "berth-upload")
	if req.URL.Path != s.at(asyncPath).Path {
		req.Header.Set(tus.Resumable, tus.Version)
	}
	answer, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(io.LimitReader(answer.Body, textMax))
	return &response{Response: answer, text: strings.TrimSpace(string(text))}, err
}
