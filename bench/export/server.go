package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
)

const host, token = "export.bench", "bench"

// server is the worker of an export.
type server struct {
	client *http.Client
	base   string
	stop   func()
}

// serve starts the worker with a disk, and waits until it answers.
func serve(ctx context.Context, worker, dir, disk string) (*server, error) {
	roots, err := keys(dir)
	if err != nil {
		return nil, err
	}
	free, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	at := free.Addr().String()
	if err := free.Close(); err != nil {
		return nil, err
	}
	order, err := json.Marshal(task.Export{Version: task.Version, Listen: at, TLSDir: dir, TokenDir: dir,
		Volumes: []task.ExportedVolume{{Name: "root", Path: disk, Content: task.Disk}}})
	if err != nil {
		return nil, err
	}
	path := filepath.Join(dir, "task.json")
	for name, text := range map[string][]byte{path: order, filepath.Join(dir, "token"): []byte(token)} {
		if err := os.WriteFile(name, text, 0o600); err != nil {
			return nil, err
		}
	}
	cmd := exec.CommandContext(ctx, worker, "export", "-task", path)
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the worker (make build): %w", err)
	}
	s := &server{base: "https://" + host + "/volumes/root/", stop: func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }}
	dialer := &net.Dialer{}
	s.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, at)
		},
	}}
	for wait := time.Now().Add(10 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		c, err := dialer.DialContext(ctx, "tcp", at)
		if err == nil {
			return s, c.Close()
		}
		if time.Now().After(wait) {
			s.stop()
			return nil, fmt.Errorf("the worker does not answer: %w", err)
		}
	}
}

// keys are made as the controller makes them.
func keys(dir string) (*x509.CertPool, error) {
	now := time.Now()
	authority, err := pki.New(host, now, time.Hour)
	if err != nil {
		return nil, err
	}
	leaf, err := authority.Issue(pki.Leaf{Name: host, DNSNames: []string{host}, Use: x509.ExtKeyUsageServerAuth, Lasts: time.Hour}, now)
	if err != nil {
		return nil, err
	}
	for name, text := range map[string][]byte{"tls.crt": leaf.Certificate, "tls.key": leaf.Key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			return nil, err
		}
	}
	roots := x509.NewCertPool()
	roots.AddCert(authority.Certificate())
	return roots, nil
}

// get downloads the disk.
func (s *server) get(ctx context.Context, format string, to io.Writer) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+format, nil)
	if err != nil {
		return err
	}
	request.Header.Set(transfer.ExportToken, token)
	answer, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server says %s", answer.Status)
	}
	_, err = io.CopyBuffer(struct{ io.Writer }{to}, answer.Body, make([]byte, 1<<20))
	return err
}
