package guest

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"time"

	"github.com/berth-vm/berth/internal/entry"
	"github.com/berth-vm/berth/internal/launch"
	"github.com/berth-vm/berth/internal/launch/rendezvous"
	"github.com/berth-vm/berth/internal/transfer/layercache"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
	"github.com/berth-vm/berth/internal/transfer/stack"
)

// cachePatience is how long the node's agent may take to introduce the launcher to the node's cache. It looks twice in a second. A node without an
// agent costs a machine this much.
const cachePatience = 10 * time.Second

// cacheDoor is where the launcher waits for the node's cache of layers. A nil one is a launcher that does not.
type cacheDoor struct {
	log  *slog.Logger
	l    *net.UnixListener
	came chan *net.UnixConn
	till <-chan time.Time
}

// openCacheDoor begins to wait. A launcher that cannot makes its layers itself.
func openCacheDoor(dir string, log *slog.Logger) *cacheDoor {
	d := &cacheDoor{log: log, came: make(chan *net.UnixConn, 1), till: time.After(cachePatience)}
	l, err := rendezvous.ServeAt(filepath.Join(dir, rendezvous.LayersSocket), func(c *net.UnixConn, _ rendezvous.Hello) bool {
		select {
		case d.came <- c:
			return true
		default:
			return false // one is enough
		}
	})
	if err != nil {
		log.Warn("the node's layers cannot be had", "error", err.Error())
		return nil
	}
	d.l = l
	return d
}

func (d *cacheDoor) close() {
	if d == nil {
		return
	}
	_ = d.l.Close()
	select {
	case c := <-d.came:
		_ = c.Close()
	default:
	}
}

// layers takes all layers of an image from the node's cache; nil: they are to be made here. Only what is wrong with the image itself is an error.
func (d *cacheDoor) layers(ctx context.Context, img *registry.Image, dir string) (*piled, error) {
	if d == nil {
		return nil, nil
	}
	var c *net.UnixConn
	select {
	case c = <-d.came:
	case <-d.till:
		d.log.Info("the layers are made for this machine alone", "why", "the node has no cache of layers")
		return nil, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	defer func() { _ = c.Close() }()
	p, made, err := shared(ctx, c, img, dir)
	if err == nil {
		d.log.Info("the layers are the node's", "layers", img.Layers, "made", made, "shared", img.Layers-made)
		return p, nil
	}
	d.log.Info("the layers are made for this machine alone", "why", err.Error())
	for _, f := range p.held {
		_ = f.Close()
	}
	return nil, errors.Join(ctx.Err(), os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
}

// shared asks for each layer in turn, and makes its file in dir a link to the open one.
func shared(ctx context.Context, c *net.UnixConn, img *registry.Image, dir string) (*piled, int, error) {
	p, made, left := &piled{}, 0, int64(launch.ImageBytes)
	for n := range img.Layers {
		got, f, err := sharedLayer(ctx, c, img, n)
		if err != nil {
			return p, 0, err
		}
		p.held = append(p.held, f)
		if left -= got.Size; left < 0 || got.Size <= 0 {
			return p, 0, fmt.Errorf("layer %d is said to have %d bytes", n, got.Size)
		}
		// QEMU opens it by what the kernel calls our open file: it is in no directory of this pod.
		if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), filepath.Join(dir, stack.LayerFile(n))); err != nil {
			return p, 0, err
		}
		if got.Alone {
			p.from = n
		}
		if got.Made {
			made++
		}
		p.disk = p.disk.Over(stack.LayerFile(n-1), entry.LayerName(n), got.Size)
	}
	return p, made, nil
}

func sharedLayer(ctx context.Context, c *net.UnixConn, img *registry.Image, n int) (layercache.Layer, *os.File, error) {
	l := img.Layer(n)
	blob, err := img.Blob(ctx, n)
	if err != nil {
		return layercache.Layer{}, nil, err
	}
	defer func() { _ = blob.Close() }()
	got, f, err := layercache.Ask(ctx, c, l.Digest, l.Size, blob)
	if err != nil {
		return got, nil, err
	}
	if got.Diff != l.Diff {
		return got, nil, errors.Join(fmt.Errorf("layer %d has the digest %s, its image says %s", n, got.Diff, l.Diff), f.Close())
	}
	return got, f, nil
}
