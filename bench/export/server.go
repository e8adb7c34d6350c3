package main

import (
	"bufio"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/readahead"
	"github.com/berth-vm/berth/internal/transfer/tlsserver"
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
	order, err := json.Marshal(task.Export{Version: task.Version, Listen: "127.0.0.1:0", TLSDir: dir, TokenDir: dir,
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
	said, err := cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start the worker (make build): %w", err)
	}
	s := &server{base: "https://" + host + "/volumes/root/", stop: func() { _ = cmd.Process.Kill(); _ = cmd.Wait() }}
	lines := bufio.NewScanner(said)
	at := ""
	for at == "" && lines.Scan() {
		fmt.Fprintln(os.Stderr, lines.Text())
		_, at, _ = strings.Cut(lines.Text(), " volumes at ")
	}
	if at == "" {
		s.stop()
		return nil, errors.New("the worker ended before it answered")
	}
	dialer := &net.Dialer{}
	s.client = &http.Client{Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12},
		DialContext: func(ctx context.Context, network, _ string) (net.Conn, error) {
			return dialer.DialContext(ctx, network, at)
		},
	}}
	return s, nil
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

// toFile downloads the disk as virtctl does.
func (s *server) toFile(ctx context.Context, format, path string) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer f.Close()
	at := int64(0)
	if err := s.get(ctx, format, func(p []byte) error {
		n, err := f.WriteAt(p, at)
		readahead.ToDisk(f, at, int64(n))
		at += int64(n)
		return err
	}); err != nil {
		return err
	}
	return f.Sync()
}

func nothing([]byte) error { return nil }

// get downloads the disk.
func (s *server) get(ctx context.Context, format string, write func([]byte) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+format, nil)
	if err != nil {
		return err
	}
	request.Header.Set(tlsserver.Token, token)
	answer, err := s.client.Do(request)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("the server says %s", answer.Status)
	}
	return readahead.Copy(answer.Body, write)
}
