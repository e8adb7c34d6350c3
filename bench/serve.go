package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
)

// web is nginx on loopback, which serves a directory.
type web struct {
	base string // URL
	cmd  *exec.Cmd
	dir  string
}

const nginxConf = `daemon off; worker_processes 1; error_log stderr; pid %[1]s/pid; %[4]s
events { worker_connections 256; }
http {
  access_log off; sendfile on; tcp_nopush on; keepalive_requests 100000;
  client_body_temp_path %[1]s/body; proxy_temp_path %[1]s/proxy; fastcgi_temp_path %[1]s/fastcgi;
  uwsgi_temp_path %[1]s/uwsgi; scgi_temp_path %[1]s/scgi;
  server { listen 127.0.0.1:%[2]d; root '%[3]s'; }
}
`

func serveDir(ctx context.Context, dir string) (*web, error) {
	port, err := freePort()
	if err != nil {
		return nil, err
	}
	tmp, err := os.MkdirTemp("", "bench-nginx-")
	if err != nil {
		return nil, err
	}
	user := ""
	if os.Getuid() == 0 {
		user = "user root;" // else it may not enter the directory
	}
	conf := filepath.Join(tmp, "nginx.conf")
	if err := os.WriteFile(conf, fmt.Appendf(nil, nginxConf, tmp, port, dir, user), 0o644); err != nil {
		return nil, err
	}
	w := &web{base: fmt.Sprintf("http://127.0.0.1:%d", port), dir: tmp}
	w.cmd = exec.CommandContext(ctx, "nginx", "-c", conf, "-p", tmp)
	w.cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if path, err := exec.LookPath("/usr/sbin/nginx"); err == nil {
		w.cmd.Path, w.cmd.Err = path, nil
	}
	w.cmd.Stderr = os.Stderr
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	return w, w.await(ctx)
}

// await waits until the server answers.
func (w *web) await(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		var d net.Dialer
		c, err := d.DialContext(ctx, "tcp", strings.TrimPrefix(w.base, "http://"))
		if err == nil {
			return c.Close()
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("nginx does not answer: %w", err)
		}
	}
}

func (w *web) close() error {
	err := w.cmd.Process.Signal(syscall.SIGTERM)
	_ = w.cmd.Wait() // it says how it was stopped
	return errors.Join(err, os.RemoveAll(w.dir))
}

func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// hub is a real container registry on loopback.
type hub struct {
	host   string
	server *http.Server
	layers map[string]v1.Hash // by the work's letter
}

// serveImages makes a container image disk-LETTER of each layer, which are tar.gz files by letter, and serves them.
func serveImages(ctx context.Context, dir string, layers map[string]string) (*hub, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	blobs := filepath.Join(dir, "registry")
	if err := os.MkdirAll(blobs, 0o755); err != nil {
		return nil, err
	}
	h := &hub{host: l.Addr().String(), layers: map[string]v1.Hash{}}
	quiet := registry.Logger(discard())
	h.server = &http.Server{ReadHeaderTimeout: time.Minute,
		Handler: registry.New(registry.WithBlobHandler(registry.NewDiskBlobHandler(blobs)), quiet)}
	go func() { _ = h.server.Serve(l) }() // until close
	for letter, file := range layers {
		img, err := containerImage(filepath.Join(dir, "oci-"+letter), file)
		if err != nil {
			return h, fmt.Errorf("container image %s: %w", letter, err)
		}
		ref, err := name.NewTag(h.host+"/disk-"+letter+":latest", name.Insecure)
		if err != nil {
			return h, err
		}
		if err := remote.Write(ref, img, remote.WithContext(ctx)); err != nil {
			return h, fmt.Errorf("push %s: %w", letter, err)
		}
		parts, err := img.Layers()
		if err != nil {
			return h, err
		}
		if h.layers[letter], err = parts[0].Digest(); err != nil {
			return h, err
		}
	}
	return h, nil
}

// containerImage makes an image of one layer, or finds the one it made before: hashing a gigabyte takes its time.
func containerImage(dir, file string) (v1.Image, error) {
	if p, err := layout.FromPath(dir); err == nil {
		if index, err := p.ImageIndex(); err == nil {
			if m, err := index.IndexManifest(); err == nil && len(m.Manifests) == 1 {
				return p.Image(m.Manifests[0].Digest)
			}
		}
	}
	layer, err := tarball.LayerFromFile(file)
	if err != nil {
		return nil, err
	}
	img, err := mutate.AppendLayers(empty.Image, layer)
	if err != nil {
		return nil, err
	}
	p, err := layout.Write(dir, empty.Index)
	if err != nil {
		return nil, err
	}
	return img, p.AppendImage(img)
}

func (h *hub) close() error { return h.server.Close() }
