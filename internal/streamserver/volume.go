package streamserver

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Volume answers the requests to a container that makes volumes: docs/reference/container-volumes.yaml.
type Volume struct {
	Keys   string // directory with tls.crt, tls.key and, for who may ask, ca.crt
	Host   string // where machines find the target
	Port   string
	Secret string // name of the Secret that machines log in with; empty: they need none
}

// serveVolume answers PUT and DELETE of /volume until ctx ends. There is nothing to make or delete: a LUN exists as soon as its
// image is open, and all machines share it, read-only.
func (s *Server) serveVolume(ctx context.Context, l net.Listener, v Volume) error {
	mux := http.NewServeMux()
	mux.HandleFunc("PUT /volume", func(w http.ResponseWriter, r *http.Request) {
		if err := asked(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		open, err := s.opened(0)
		switch {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case !open:
			w.WriteHeader(http.StatusAccepted)
		default:
			w.Header().Set("Content-Type", "application/json")
			_ = json.NewEncoder(w).Encode(v.source(s.config.Target)) // a client that is gone asks again
		}
	})
	mux.HandleFunc("DELETE /volume", func(w http.ResponseWriter, r *http.Request) {
		if err := asked(r); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
		}
	})
	server := &http.Server{
		Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 30 * time.Second, WriteTimeout: 30 * time.Second, MaxHeaderBytes: 16 << 10,
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, GetConfigForClient: v.tls},
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.ServeTLS(l, "", ""); !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
		return fmt.Errorf("answer for volumes: %w", err)
	}
	return nil
}

// asked reads the question: which machine it is for makes no difference, but that it is one does.
func asked(r *http.Request) error {
	var q struct{ Namespace, Machine, UID, Volume string }
	if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&q); err != nil {
		return fmt.Errorf("the question is no JSON: %w", err)
	}
	if q.UID == "" || q.Volume == "" {
		return errors.New("the question names no machine or no volume")
	}
	return nil
}

// source returns the answer.
func (v Volume) source(target string) any {
	iscsi := map[string]any{"host": map[string]string{"name": v.Host, "port": v.Port}, "portal": target, "lun": 0}
	if v.Secret != "" {
		iscsi["secretRef"] = map[string]string{"name": v.Secret}
	}
	return map[string]any{"iscsi": iscsi}
}

// tls reads the files for each connection: they are replaced now and then.
func (v Volume) tls(*tls.ClientHelloInfo) (*tls.Config, error) {
	own, err := tls.LoadX509KeyPair(filepath.Join(v.Keys, "tls.crt"), filepath.Join(v.Keys, "tls.key"))
	if err != nil {
		return nil, fmt.Errorf("read the certificate: %w", err)
	}
	text, err := os.ReadFile(filepath.Join(v.Keys, "ca.crt"))
	if err != nil {
		return nil, fmt.Errorf("read whom to trust: %w", err)
	}
	trusted := x509.NewCertPool()
	if !trusted.AppendCertsFromPEM(text) {
		return nil, errors.New("ca.crt has no certificate")
	}
	return &tls.Config{
		Certificates: []tls.Certificate{own}, ClientCAs: trusted, ClientAuth: tls.RequireAndVerifyClientCert, MinVersion: tls.VersionTLS13,
	}, nil
}

// opened reports whether a LUN is there, and if not why.
func (s *Server) opened(number int) (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	d := s.disks[number]
	return d.disk != nil, d.err
}

// health answers whether all LUNs are ready, in plain text with the state of each. It tells any client the names of the images,
// and nothing else that is not public.
func (s *Server) health(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var lines []string
	status := http.StatusOK
	for _, d := range s.disks {
		line := fmt.Sprintf("LUN %d %s: ", d.number, d.image.URL)
		switch {
		case d.disk == nil && d.err == nil:
			line, status = line+"is being opened", http.StatusServiceUnavailable
		case d.disk == nil:
			line, status = line+d.err.Error(), http.StatusServiceUnavailable
		default:
			line += verification(d.disk)
		}
		lines = append(lines, strings.ReplaceAll(line, "\n", " "))
	}
	w.WriteHeader(status)
	_, _ = io.WriteString(w, strings.Join(lines, "\n")+"\n") // a client that is gone asks again
}

// serveHealth answers GET /healthz until ctx ends.
func (s *Server) serveHealth(ctx context.Context, l net.Listener) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", s.health)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, MaxHeaderBytes: 16 << 10}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) && ctx.Err() == nil {
		return fmt.Errorf("answer for probes: %w", err)
	}
	return nil
}
