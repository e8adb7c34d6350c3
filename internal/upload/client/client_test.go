package client

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/transfer/peerproto"
	"github.com/berth-vm/berth/internal/upload/tus"
)

// sending is a file on its way to a server, and what the client said meanwhile.
type sending struct {
	path     string
	tokens   int
	retrying []string
}

func (s *sending) to(t *testing.T, url string, change func(*Options)) error {
	t.Helper()
	if s.path == "" {
		s.path = filepath.Join(t.TempDir(), "disk.img")
		if err := os.WriteFile(s.path, []byte("a raw disk"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	o := Options{
		URL: url, Retries: 2, Pause: func(n int) time.Duration { return time.Duration(n+1) * time.Millisecond },
		Token:    func(context.Context) (string, error) { s.tokens++; return "token", nil },
		Retrying: func(err error, pause time.Duration) { s.retrying = append(s.retrying, pause.String()+" "+err.Error()) },
	}
	if change != nil {
		change(&o)
	}
	return Send(t.Context(), s.path, o)
}

// TestWhoeverAnswersIsNobody: a certificate of an unknown authority, and no TLS where it is wanted, are not tried again.
func TestWhoeverAnswersIsNobody(t *testing.T) {
	strange := httptest.NewTLSServer(http.NotFoundHandler())
	defer strange.Close()
	plain := httptest.NewServer(http.NotFoundHandler())
	defer plain.Close()
	for name, row := range map[string]struct {
		url  string
		want func(error) bool
	}{
		"a certificate of its own": {strange.URL, func(err error) bool {
			var untrusted *tls.CertificateVerificationError
			return errors.As(err, &untrusted)
		}},
		"no TLS":     {strings.Replace(plain.URL, "http:", "https:", 1), func(err error) bool { return errors.Is(err, http.ErrSchemeMismatch) }},
		"no address": {"ftp://x", func(err error) bool { return strings.Contains(err.Error(), "is no address of an upload proxy") }},
	} {
		t.Run(name, func(t *testing.T) {
			var s sending
			if err := s.to(t, row.url, nil); err == nil || !row.want(err) || strings.Contains(err.Error(), "retries") {
				t.Errorf("got %v", err)
			}
			if len(s.retrying) > 0 {
				t.Errorf("it was tried again: %q", s.retrying)
			}
		})
	}
	var s sending
	err := s.to(t, strange.URL, func(o *Options) { o.Insecure = true })
	var refused *Refused
	if !errors.As(err, &refused) || refused.Status != http.StatusNotFound {
		t.Errorf("a server that is trusted blindly answers: %v", err)
	}
}

// TestNobodyAnswers: each try that fails is told of, with the pause before the next.
func TestNobodyAnswers(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	_ = l.Close() // the address is nobody's now
	var s sending
	err = s.to(t, l.Addr().String(), nil)
	if err == nil || !strings.HasPrefix(err.Error(), "error uploading image after 2 retries: ") {
		t.Errorf("got %v", err)
	}
	if len(s.retrying) != 2 || !strings.HasPrefix(s.retrying[0], "1ms Post ") || !strings.HasPrefix(s.retrying[1], "2ms Post ") {
		t.Errorf("told %q", s.retrying)
	}
}

// TestLostAnswer: the answer to the last byte is lost. A server that says the upload is complete has it; one that says that the
// volume has its data may have it from another client.
func TestLostAnswer(t *testing.T) {
	for name, theirs := range map[string]bool{"ours": false, "somebody else's": true} {
		t.Run(name, func(t *testing.T) {
			whole := false
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				switch {
				case r.Method == http.MethodPost:
					w.Header().Set("Location", tus.Path+"/it")
					w.WriteHeader(http.StatusCreated)
				case whole && theirs:
					http.Error(w, "rejecting Upload Request for PVC x that already finished uploading", http.StatusConflict)
				case whole:
					tus.AnswerComplete(w, r, tus.ID{Length: 10})
				case r.Method == http.MethodHead:
					w.Header().Set(tus.Offset, "0")
				default:
					_, _ = io.Copy(io.Discard, r.Body)
					whole = true
					panic(http.ErrAbortHandler)
				}
			}))
			defer server.Close()
			var s sending
			if err := s.to(t, server.URL, nil); (err != nil) != theirs {
				t.Errorf("the upload ended with %v", err)
			}
		})
	}
}

// TestServersWithout: one without tus gets all of it in one POST, one without frames the bytes as they are.
func TestServersWithout(t *testing.T) {
	for name, serve := range map[string]func(got *bytes.Buffer, w http.ResponseWriter, r *http.Request){
		"tus": func(got *bytes.Buffer, w http.ResponseWriter, r *http.Request) {
			if r.URL.Path != asyncPath || r.Method != http.MethodPost || r.Header.Get(tus.Resumable) != "" || r.ContentLength != 10 {
				http.NotFound(w, r)
				return
			}
			_, _ = got.ReadFrom(r.Body)
		},
		"frames": func(got *bytes.Buffer, w http.ResponseWriter, r *http.Request) {
			switch {
			case r.Method == http.MethodPost:
				w.Header().Set("Location", tus.Path+"/it")
				w.WriteHeader(http.StatusCreated)
			case r.Method == http.MethodHead:
				w.Header().Set(tus.Offset, "0")
			case r.Header.Get("Content-Type") != tus.Plain:
				w.WriteHeader(http.StatusUnsupportedMediaType)
			default:
				_, _ = got.ReadFrom(r.Body)
				w.Header().Set(tus.Offset, "10")
				w.WriteHeader(http.StatusNoContent)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			var got bytes.Buffer
			server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { serve(&got, w, r) }))
			defer server.Close()
			var s sending
			if err := s.to(t, server.URL, nil); err != nil || got.String() != "a raw disk" {
				t.Errorf("it got %q: %v", got.String(), err)
			}
		})
	}
}

// TestOutgoing: a body is the same whether it is read or writes itself, and ends when it is not wanted.
func TestOutgoing(t *testing.T) {
	image := bytes.Repeat([]byte("disk"), 1<<18)
	frames := func(w io.Writer) error {
		_, err := peerproto.NewPlainWriter(w).Write(image)
		return err
	}
	var want, written, read bytes.Buffer
	if err := frames(&want); err != nil {
		t.Fatal(err)
	}
	o := newOutgoing(frames)
	if n, err := o.WriteTo(&written); err != nil || n != int64(want.Len()) || !bytes.Equal(written.Bytes(), want.Bytes()) {
		t.Errorf("it wrote %d bytes of %d: %v", n, want.Len(), err)
	}
	o.end()
	o = newOutgoing(frames)
	if _, err := read.ReadFrom(struct{ io.Reader }{o}); err != nil || !bytes.Equal(read.Bytes(), want.Bytes()) {
		t.Errorf("%d bytes of %d were read: %v", read.Len(), want.Len(), err)
	}
	o.end()
	newOutgoing(frames).end() // never begun
	o = newOutgoing(frames)
	if _, err := io.ReadFull(struct{ io.Reader }{o}, make([]byte, 100)); err != nil {
		t.Error(err)
	}
	o.end() // begun and not wanted
}
