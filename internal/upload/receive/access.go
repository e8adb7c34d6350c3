package receive

import (
	"crypto/subtle"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"

	"github.com/berth-vm/berth/internal/task"
)

// certificates returns how the server proves itself and who may connect; nil is plain HTTP, for trusted networks. The files are
// read for every connection, because they are renewed under way.
func certificates(up task.Upload) (*tls.Config, error) {
	if up.TLSDir == "" {
		if up.ClientCADir != "" || up.ClientName != "" {
			return nil, errors.New("clients cannot be told by their certificates without TLS")
		}
		return nil, nil //nolint:nilnil // no TLS is an answer
	}
	first, err := load(up)
	if err != nil {
		return nil, err
	}
	first.GetConfigForClient = func(*tls.ClientHelloInfo) (*tls.Config, error) { return load(up) }
	return first, nil
}

func load(up task.Upload) (*tls.Config, error) {
	pair, err := tls.LoadX509KeyPair(filepath.Join(up.TLSDir, "tls.crt"), filepath.Join(up.TLSDir, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read this worker's certificate: %w", err)
	}
	// HTTP/1.1: one upload has a connection of its own, and its flow control
	config := &tls.Config{MinVersion: tls.VersionTLS13, Certificates: []tls.Certificate{pair}, NextProtos: []string{"http/1.1"}}
	if up.ClientCADir == "" {
		return config, nil
	}
	pem, err := os.ReadFile(filepath.Join(up.ClientCADir, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read the authority of the clients: %w", err)
	}
	config.ClientCAs = x509.NewCertPool()
	if !config.ClientCAs.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("no certificate in %s", filepath.Join(up.ClientCADir, "ca.crt"))
	}
	config.ClientAuth = tls.RequireAndVerifyClientCert
	config.VerifyConnection = func(c tls.ConnectionState) error {
		if name := c.PeerCertificates[0].Subject.CommonName; up.ClientName != "" && name != up.ClientName {
			return fmt.Errorf("the client is %q, only %q may upload", name, up.ClientName)
		}
		return nil
	}
	return config, nil
}

// allow accepts requests with the token, if one is configured.
func (s *Server) allow(next http.Handler) http.Handler {
	dir := s.task.Source.Upload.TokenDir
	if dir == "" {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		want, err := os.ReadFile(filepath.Join(dir, "token"))
		wanted := strings.TrimSpace(string(want))
		if err != nil || wanted == "" {
			http.Error(w, "this worker's token cannot be read", http.StatusInternalServerError)
			return
		}
		got, bearer := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
		switch {
		case !bearer:
			http.Error(w, "send the token as Authorization: Bearer TOKEN", http.StatusBadRequest)
		case subtle.ConstantTimeCompare([]byte(got), []byte(wanted)) != 1:
			http.Error(w, "wrong token", http.StatusUnauthorized)
		default:
			next.ServeHTTP(w, r)
		}
	})
}
