package main

import (
	"bufio"
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/pki"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/token"
)

// fixture holds the things that every run needs: files to send, certificates, a token.
type fixture struct {
	dir, worker         string
	rawFile, sparseFile string
	tls                 string // directory
	token               string
	self                string
}

var theClaim = token.Claim{Namespace: "bench", Name: "disk", UID: "bench"}

func prepare(dir string, o options) (*fixture, error) {
	b := &fixture{dir: dir, worker: o.worker, rawFile: filepath.Join(dir, "raw.img"), sparseFile: filepath.Join(dir, "sparse.img"),
		tls: filepath.Join(dir, "tls")}
	var err error
	if b.self, err = os.Executable(); err != nil {
		return nil, err
	}
	if err := b.images(o); err != nil {
		return nil, err
	}
	if err := b.keys(); err != nil {
		return nil, err
	}
	return b, nil
}

// images makes a file of data, and one in which the same data lies in pieces with holes between them.
func (b *fixture) images(o options) error {
	solid, err := os.Create(b.rawFile)
	if err != nil {
		return err
	}
	defer solid.Close()
	holey, err := os.Create(b.sparseFile)
	if err != nil {
		return err
	}
	defer holey.Close()
	const piece = 4 << 20
	total, size := o.data*1e6/piece*piece, o.disk<<20
	seed := mathrand.NewChaCha8([32]byte{1})
	buf := make([]byte, piece)
	for at := int64(0); at < total; at += piece {
		_, _ = seed.Read(buf) // never fails
		if _, err := solid.WriteAt(buf, at); err != nil {
			return err
		}
		spread := at / piece * (size / (total / piece)) &^ 4095
		if _, err := holey.WriteAt(buf, spread); err != nil {
			return err
		}
	}
	return holey.Truncate(size)
}

func (b *fixture) keys() error {
	now := time.Now()
	a, err := pki.New("bench", now, time.Hour)
	if err != nil {
		return err
	}
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return err
	}
	if b.token, err = token.SignUpload(private, theClaim, now.Add(time.Hour)); err != nil {
		return err
	}
	for name, leaf := range map[string]pki.Leaf{
		"server": {Name: "localhost", DNSNames: []string{"localhost", "worker"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Use: x509.ExtKeyUsageServerAuth},
		"client": {Name: render.UploadClient, Use: x509.ExtKeyUsageClientAuth},
	} {
		leaf.Lasts = time.Hour
		p, err := a.Issue(leaf, now)
		if err != nil {
			return err
		}
		dir := filepath.Join(b.tls, name)
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		for file, data := range map[string][]byte{"tls.crt": p.Certificate, "tls.key": p.Key, "ca.crt": pki.PEM(a.Certificate().Raw), "public": public} {
			if err := os.WriteFile(filepath.Join(dir, file), data, 0o600); err != nil {
				return err
			}
		}
	}
	return nil
}

// start runs a part of the bench in a process of its own and returns the address that it says.
func start(ctx context.Context, program string, args ...string) (address string, end func() error, err error) {
	cmd := exec.CommandContext(ctx, program, args...)
	out, err := cmd.StderrPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		return "", nil, err
	}
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		if _, at, ok := strings.Cut(lines.Text(), " at "); ok {
			go func() { _, _ = io.Copy(io.Discard, out) }()
			_, port, err := net.SplitHostPort(at)
			return net.JoinHostPort("127.0.0.1", port), func() error {
				_ = cmd.Process.Kill() // it may have ended by itself
				_ = cmd.Wait()
				return nil
			}, err
		}
	}
	_ = cmd.Wait()
	return "", nil, fmt.Errorf("%s %v did not say where it is", program, args)
}

// upload sends a file through the proxy to a worker.
func (b *fixture) upload(ctx context.Context, file string) (time.Duration, error) {
	target := filepath.Join(b.dir, "disk.img")
	doc, err := json.Marshal(task.Task{
		Version: task.Version, Volume: "bench", Target: task.Target{Path: target, Content: task.Disk},
		Source: task.Source{Upload: &task.Upload{Listen: "127.0.0.1:0", TLSDir: filepath.Join(b.tls, "server"),
			ClientCADir: filepath.Join(b.tls, "server"), ClientName: render.UploadClient}},
	})
	if err != nil {
		return 0, err
	}
	path := filepath.Join(b.dir, "task.json")
	if err := os.WriteFile(path, doc, 0o600); err != nil {
		return 0, err
	}
	worker, endWorker, err := start(ctx, b.worker, "run", "--task", path, "--report", filepath.Join(b.dir, "report"), "--listen", "")
	if err != nil {
		return 0, err
	}
	proxy, endProxy, err := start(ctx, b.self, "proxy", b.tls, worker)
	if err != nil {
		return 0, err
	}
	took, err := b.time(ctx, "send", b.tls, "https://"+proxy, b.token, file)
	if err := endProxy(); err != nil {
		return 0, err
	}
	if e := endWorker(); err == nil {
		err = e
	}
	if err == nil {
		err = same(ctx, file, target)
	}
	return took, err
}

// plain sends a file over TLS to a process that writes it to a file.
func (b *fixture) plain(ctx context.Context) (time.Duration, error) {
	target := filepath.Join(b.dir, "disk.img")
	server, end, err := start(ctx, b.self, "sink", b.tls, target)
	if err != nil {
		return 0, err
	}
	took, err := b.time(ctx, "copy", b.tls, "https://"+server, b.rawFile)
	if e := end(); err == nil {
		err = e
	}
	if err == nil {
		err = same(ctx, b.rawFile, target)
	}
	return took, err
}

// time runs a client to its end.
func (b *fixture) time(ctx context.Context, args ...string) (time.Duration, error) {
	if out, err := exec.CommandContext(ctx, "sync").CombinedOutput(); err != nil { // what others left is not this one's business
		return 0, fmt.Errorf("sync: %w: %s", err, out)
	}
	begin := time.Now()
	out, err := exec.CommandContext(ctx, b.self, args...).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return time.Since(begin), nil
}

func same(ctx context.Context, a, b string) error {
	defer os.Remove(b)
	if out, err := exec.CommandContext(ctx, "cmp", a, b).CombinedOutput(); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	return nil
}
