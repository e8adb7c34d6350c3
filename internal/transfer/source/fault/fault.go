// Package fault converts errors of a source's connection to a *task.Error: a reason that code may compare and a sentence for
// people with the name of the source, the error and what to do. It does not decide about retries; package retry does.
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
	"net/url"
	"syscall"

	"github.com/berth-vm/berth/internal/task"
)

// Status returns the error for an HTTP answer that is not the one wanted. name is the source without credentials.
func Status(name string, code int) error {
	what := fmt.Sprintf("%s answered %d %s", name, code, http.StatusText(code))
	switch {
	case code == http.StatusNotFound || code == http.StatusGone:
		return task.Errorf(task.SourceNotFound, "%s: check the URL, or publish the image there", what)
	case code == http.StatusUnauthorized:
		return task.Errorf(task.SourceDenied, "%s: check the user name and password in the source's secret", what)
	case code == http.StatusForbidden:
		return task.Errorf(task.SourceDenied, "%s: the credentials do not allow reading it, or a signed URL has expired", what)
	case code == http.StatusProxyAuthRequired:
		return task.Errorf(task.SourceDenied, "%s: the proxy wants credentials in its URL", what)
	case code == http.StatusPreconditionFailed:
		return Changed(name, "it answered 412 Precondition Failed")
	case code == http.StatusTooManyRequests || code == http.StatusRequestTimeout || code >= 500:
		return task.Errorf(task.SourceUnavailable, "%s: the server is overloaded or broken; the transfer is tried again", what)
	}
	return task.Errorf(task.SourceUnavailable, "%s: that is no answer to a download; check the URL and the server", what)
}

// Changed returns the error for bytes that are no longer the ones the transfer began with.
func Changed(name, how string) error {
	return task.Errorf(task.SourceChanged, "%s changed while it was read (%s): the transfer starts over", name, how)
}

// Truncated returns the error for a body that ended before its announced length.
func Truncated(name string, got, want int64) error {
	return task.Errorf(task.SourceTruncated, "%s ended after %d of %d bytes: %w", name, got, want, io.ErrUnexpectedEOF)
}

// Wire returns the error for a connection that could not be made or broke. An error that has a reason already keeps it, and a
// cancelled context stays what it is.
func Wire(name string, err error) error {
	// url.Error repeats the URL with its query, where signed URLs carry their secret.
	var wrapped *url.Error
	if errors.As(err, &wrapped) {
		err = wrapped.Err
	}
	var known *task.Error
	switch {
	case err == nil || errors.As(err, &known):
		return err
	case errors.Is(err, context.Canceled):
		return fmt.Errorf("read %s: %w", name, err)
	}
	if reason, advice := untrusted(err); reason != "" {
		return task.Errorf(reason, "%s: %w: %s", name, err, advice)
	}
	var dns *net.DNSError
	switch {
	case errors.As(err, &dns) && dns.IsNotFound:
		return task.Errorf(task.SourceUnreachable, "%s: %w: check the host's name in the URL and the cluster's DNS", name, err)
	case errors.Is(err, syscall.ECONNREFUSED):
		return task.Errorf(task.SourceUnreachable, "%s: %w: nothing listens there; check the host and port", name, err)
	case errors.Is(err, io.ErrUnexpectedEOF):
		return task.Errorf(task.SourceTruncated, "%s: the connection ended before all bytes came: %w", name, err)
	}
	return task.Errorf(task.SourceUnreachable, "%s: %w", name, err)
}

// refusedClient are the alerts with which a server turns down a client's certificate, or the lack of one (RFC 8446, 6.2).
// The type of an alert that came over TCP is crypto/tls's own; its text is that of an AlertError.
var refusedClient = func() map[string]bool {
	texts := map[string]bool{}
	for _, alert := range []tls.AlertError{42, 43, 44, 45, 46, 48, 49, 116} {
		texts[alert.Error()] = true
	}
	return texts
}()

// untrusted recognises the ways in which TLS goes wrong.
func untrusted(err error) (task.Reason, string) {
	var (
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
		record    tls.RecordHeaderError
		remote    *net.OpError
	)
	switch {
	case errors.As(err, &authority):
		return task.SourceUntrusted, "put the CA that signed it into the source's certConfigMap"
	case errors.As(err, &host):
		return task.SourceUntrusted, "use a host name the certificate is made out to"
	case errors.As(err, &invalid), errors.As(err, &verify):
		return task.SourceUntrusted, "the server needs a valid certificate"
	case errors.As(err, &record):
		return task.SourceUntrusted, "the server does not speak TLS there; is it an http:// URL?"
	case errors.As(err, &remote) && remote.Op == "remote error" && refusedClient[remote.Err.Error()]:
		return task.SourceDenied, "the server refuses the certificate it was shown"
	case errors.As(err, &remote) && remote.Op == "remote error":
		return task.SourceUntrusted, "the server broke off the TLS handshake; its version of TLS may be too old"
	}
	return "", ""
}
