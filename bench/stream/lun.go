package main

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/static"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/berth-vm/berth/internal/iscsi"
	"github.com/berth-vm/berth/internal/streamserver"
	"github.com/berth-vm/berth/internal/task"
)

// goalLUN: a LUN of a stream is read at least so fast, once its layer was gone over, compared with a file through the same target.
const goalLUN = 0.7

const (
	lunSize  = 512 << 20
	lunRead  = 256 << 10 // at a time, eight at once
	lunName  = "iqn.2026-01.dev.berth:bench"
	lunTries = 5
)

// lun measures reads in order, by QEMU's own initiator, of a disk in a gzip'ed layer and of the same bytes in a file.
func lun(ctx context.Context) (string, error) {
	dir, err := os.MkdirTemp("", "lun-bench")
	if err != nil {
		return "", fmt.Errorf("make a directory: %w", err)
	}
	defer os.RemoveAll(dir)
	disk := make([]byte, lunSize)
	for i, r := 0, rand.New(rand.NewPCG(1, 2)); i < len(disk); i++ { //nolint:gosec // what compresses to about a half
		disk[i] = "abcdefghijklmnop"[r.IntN(16)]
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	file, err := fileTarget(filepath.Join(dir, "disk"), disk)
	if err != nil {
		return "", err
	}
	defer file.Close()
	streamed, ended, err := streamTarget(ctx, filepath.Join(dir, "cache"), disk)
	if err != nil {
		return "", err
	}
	var rates [2][]float64 // of the file, of the stream
	for range lunTries {
		for side, at := range []string{file.Addr().String(), streamed} {
			start := time.Now()
			if err := readLUN(ctx, at); err != nil {
				return "", err
			}
			rates[side] = append(rates[side], lunSize/1e6/time.Since(start).Seconds())
		}
	}
	stop()
	if err := <-ended; err != nil {
		return "", err
	}
	for _, r := range rates {
		slices.Sort(r)
	}
	a, b := rates[0][lunTries/2], rates[1][lunTries/2]
	line := fmt.Sprintf("\nA LUN of %d MiB read in order by QEMU's initiator: a file %.0f MB/s, a disk in a gzip'ed layer after the first pass %.0f MB/s: %.2f times (at least %.1f)\n",
		lunSize>>20, a, b, b/a, goalLUN)
	if b/a < goalLUN {
		err = errors.New("a stream's LUN is too slow")
	}
	return line, err
}

func readLUN(ctx context.Context, at string) error {
	c := exec.CommandContext(ctx, "qemu-img", "bench", "-f", "raw", "-t", "none", "-d", "8", "-s", strconv.Itoa(lunRead), "-c", strconv.Itoa(lunSize/lunRead),
		"iscsi://"+at+"/"+lunName+"/0")
	if out, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("qemu-img bench: %w: %s", err, out)
	}
	return nil
}

type plainFile struct{ *os.File }

func (plainFile) Size() int64 { return lunSize }

func fileTarget(path string, disk []byte) (net.Listener, error) {
	if err := os.WriteFile(path, disk, 0o600); err != nil {
		return nil, fmt.Errorf("write the file: %w", err)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("open the file: %w", err)
	}
	t := &iscsi.Target{Name: lunName}
	if err := t.Put(0, &iscsi.LUN{Disk: plainFile{f}, ID: "file"}); err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listen: %w", err)
	}
	go func() { _ = t.Serve(l) }()
	return l, nil
}

// streamTarget serves the disk from a registry, and comes back when its layer was gone over.
func streamTarget(ctx context.Context, cache string, disk []byte) (at string, ended chan error, err error) {
	image, err := pushed(disk)
	if err != nil {
		return "", nil, err
	}
	proven := make(chan struct{}, 1)
	s, err := streamserver.New(streamserver.Config{Target: lunName, Images: []task.Registry{{URL: image, PlainHTTP: true}}, CacheDir: cache, CacheLimit: 2 * lunSize,
		Log: func(format string, args ...any) {
			if strings.Contains(fmt.Sprintf(format, args...), "digest is right") {
				proven <- struct{}{}
			}
		}})
	if err != nil {
		return "", nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", nil, fmt.Errorf("listen: %w", err)
	}
	ended = make(chan error, 1)
	go func() { ended <- s.Run(ctx, streamserver.Listeners{ISCSI: l}) }()
	select {
	case <-proven:
		return l.Addr().String(), ended, nil
	case <-ctx.Done():
		return "", nil, ctx.Err()
	}
}

func pushed(disk []byte) (string, error) {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestSpeed)
	if err != nil {
		return "", err
	}
	w := tar.NewWriter(z)
	err = w.WriteHeader(&tar.Header{Name: "disk/disk.img", Mode: 0o444, Size: int64(len(disk))})
	if err == nil {
		_, err = w.Write(disk)
	}
	if err = errors.Join(err, w.Close(), z.Close()); err != nil {
		return "", fmt.Errorf("make the layer: %w", err)
	}
	server := httptest.NewServer(http.Handler(registry.New(registry.Logger(log.New(io.Discard, "", 0))))) // until the program ends
	at := strings.TrimPrefix(server.URL, "http://") + "/disks/one:1"
	ref, err := name.ParseReference(at)
	if err != nil {
		return "", err
	}
	img, err := mutate.AppendLayers(empty.Image, static.NewLayer(b.Bytes(), types.DockerLayer))
	if err != nil {
		return "", err
	}
	return "docker://" + at, remote.Write(ref, img)
}
