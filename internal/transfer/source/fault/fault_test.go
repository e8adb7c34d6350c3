package fault

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/berth-vm/berth/internal/task"
)

func TestStatus(t *testing.T) {
	for code, want := range map[int]task.Reason{
		400: task.SourceUnavailable, 401: task.SourceDenied, 403: task.SourceDenied, 404: task.SourceNotFound,
		407: task.SourceDenied, 408: task.SourceUnavailable, 410: task.SourceNotFound, 412: task.SourceChanged,
		418: task.SourceUnavailable, 429: task.SourceUnavailable, 500: task.SourceUnavailable, 503: task.SourceUnavailable,
	} {
		err := Status("http://host/x", code)
		if !task.Is(err, want) {
			t.Errorf("%d is %v, want %s", code, err, want)
		}
		for _, part := range []string{"http://host/x", fmt.Sprint(code)} {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%q does not say %q", err, part)
			}
		}
	}
}

func TestWire(t *testing.T) {
	inURL := func(err error) error { return &url.Error{Op: "Get", URL: "http://host/?sig=topsecret", Err: err} }
	for name, c := range map[string]struct {
		err  error
		want task.Reason
	}{
		"dns":          {&net.DNSError{Err: "no such host", Name: "x", IsNotFound: true}, task.SourceUnreachable},
		"refused":      {&net.OpError{Op: "dial", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}, task.SourceUnreachable},
		"reset":        {&net.OpError{Op: "read", Err: syscall.ECONNRESET}, task.SourceUnreachable},
		"timeout":      {context.DeadlineExceeded, task.SourceUnreachable},
		"short":        {io.ErrUnexpectedEOF, task.SourceTruncated},
		"closed":       {io.EOF, task.SourceUnreachable},
		"unknown CA":   {x509.UnknownAuthorityError{}, task.SourceUntrusted},
		"wrong host":   {x509.HostnameError{Certificate: &x509.Certificate{}, Host: "x"}, task.SourceUntrusted},
		"expired":      {x509.CertificateInvalidError{Reason: x509.Expired}, task.SourceUntrusted},
		"no TLS":       {tls.RecordHeaderError{Msg: "first record"}, task.SourceUntrusted},
		"our cert":     {&net.OpError{Op: "remote error", Err: errors.New("tls: bad certificate")}, task.SourceDenied},
		"no handshake": {&net.OpError{Op: "remote error", Err: errors.New("tls: handshake failure")}, task.SourceUntrusted},
		"known":        {task.Errorf(task.SourceDenied, "no"), task.SourceDenied},
	} {
		t.Run(name, func(t *testing.T) {
			err := Wire("http://host/?...", inURL(c.err))
			if !task.Is(err, c.want) {
				t.Errorf("%v, want %s", err, c.want)
			}
			if strings.Contains(err.Error(), "topsecret") {
				t.Errorf("%q has the secret of the URL", err)
			}
		})
	}
	var e *task.Error
	if err := Wire("x", inURL(context.Canceled)); !errors.Is(err, context.Canceled) || errors.As(err, &e) {
		t.Errorf("cancelled: %v", err)
	}
	if err := Wire("x", nil); err != nil {
		t.Errorf("no error became %v", err)
	}
}

// TestRefusedClientCertificate holds the texts of alerts against a real server.
func TestRefusedClientCertificate(t *testing.T) {
	s := httptest.NewUnstartedServer(http.NotFoundHandler())
	s.TLS = &tls.Config{ClientAuth: tls.RequireAnyClientCert}
	s.StartTLS()
	defer s.Close()
	_, err := s.Client().Get(s.URL) //nolint:noctx,bodyclose // there is no answer
	if err := Wire(s.URL, err); !task.Is(err, task.SourceDenied) {
		t.Errorf("a server that wants a certificate: %v", err)
	}
}

func TestBody(t *testing.T) {
	text := "0123456789"
	for name, c := range map[string]struct {
		n    int64
		got  string
		want task.Reason
	}{
		"all": {n: 10, got: text}, "to the end": {n: -1, got: text}, "too long": {n: 4, got: "0123"}, "empty": {n: 0},
		"too short": {n: 11, got: text, want: task.SourceTruncated},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := io.ReadAll(Body("x", io.NopCloser(strings.NewReader(text)), c.n))
			if string(got) != c.got || (c.want == "") != (err == nil) || c.want != "" && !task.Is(err, c.want) {
				t.Errorf("got %q and %v, want %q and %q", got, err, c.got, c.want)
			}
		})
	}
}
