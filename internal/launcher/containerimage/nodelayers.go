package containerimage

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/transfer/layercache"
	"github.com/berth-vm/berth/internal/transfer/layerdisk"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
)

// cachePatience is how long the launcher waits for the node's agent to introduce it to the node's cache. The agent looks twice a second. On a
// node without an agent, which the controller knows, the launcher does not wait.
const cachePatience = 10 * time.Second

// cacheDoor waits for a connection to the node's cache of layers. With a nil one the layers are made for this machine alone.
type cacheDoor struct {
	log  *slog.Logger
	own  func(why string) // called with the reason if the layers are made for this machine alone
	shut string           // why it does not wait; empty if it waits
	l    *net.UnixListener
	came chan *net.UnixConn
	till <-chan time.Time
}

// CacheDoor begins to wait for the node's cache at a socket in dir. The caller closes it.
func (k *Maker) CacheDoor(volume, dir string) *cacheDoor {
	own := func(why string) {
		k.Log.Info("the layers are made for this machine alone", "why", why)
		k.Note(volume, func(c *launcherapi.Copy) { c.Alone = brief(why) })
	}
	switch {
	case k.Refused != "":
		return &cacheDoor{own: own, shut: k.Refused}
	case k.Machine.NoAgent:
		return &cacheDoor{own: own, shut: "no agent of Berth runs on its node"}
	}
	return openCacheDoor(dir, k.Log, own)
}

// brief returns as much of a text as a status has room for.
func brief(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// openCacheDoor begins to wait. If that fails, the layers are made for this machine alone.
func openCacheDoor(dir string, log *slog.Logger, own func(string)) *cacheDoor {
	d := &cacheDoor{log: log, own: own, came: make(chan *net.UnixConn, 1), till: time.After(cachePatience)}
	l, err := rendezvous.ServeAt(filepath.Join(dir, rendezvous.LayersSocket), func(c *net.UnixConn, _ rendezvous.Hello) bool {
		select {
		case d.came <- c:
			return true
		default:
			return false // there is a connection already
		}
	})
	if err != nil {
		d.shut = err.Error()
	}
	d.l = l
	return d
}

// Close stops waiting.
func (d *cacheDoor) Close() {
	if d == nil || d.shut != "" {
		return
	}
	_ = d.l.Close()
	select {
	case c := <-d.came:
		_ = c.Close()
	default:
	}
}

// layers links all layers of an image from the node's cache into dir. It returns nil if the cache cannot be used; that is no error.
func (d *cacheDoor) layers(ctx context.Context, img *registry.Image, dir string) (*layerChain, error) {
	if d == nil {
		return nil, nil
	}
	if d.shut != "" {
		d.own(d.shut)
		return nil, nil
	}
	var c *net.UnixConn
	select {
	case c = <-d.came:
	case <-d.till:
		d.own("the node's agent does not introduce the machine to a cache of layers")
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
	d.own(err.Error())
	for _, f := range p.held {
		_ = f.Close()
	}
	return nil, errors.Join(ctx.Err(), os.RemoveAll(dir), os.MkdirAll(dir, 0o700))
}

// shared asks the cache for each layer in turn, and links its open file into dir. It returns how many layers the cache made for it.
func shared(ctx context.Context, c *net.UnixConn, img *registry.Image, dir string) (*layerChain, int, error) {
	p, made, left := &layerChain{}, 0, int64(launcherapi.ImageBytes)
	for n := range img.Layers {
		got, f, err := sharedLayer(ctx, c, img, n)
		if err != nil {
			return p, 0, err
		}
		p.held = append(p.held, f)
		if left -= got.Size; left < 0 || got.Size <= 0 {
			return p, 0, fmt.Errorf("layer %d is said to have %d bytes", n, got.Size)
		}
		// The file is in no directory of this pod, so QEMU opens it through this process's descriptor.
		if err := os.Symlink(fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), f.Fd()), filepath.Join(dir, layerdisk.LayerFile(n))); err != nil {
			return p, 0, err
		}
		if got.Alone {
			p.from = n
		}
		if got.Made {
			made++
		}
		p.disk = p.disk.Over(layerdisk.LayerFile(n-1), imagevm.LayerName(n), got.Size)
	}
	return p, made, nil
}

// sharedLayer asks the cache for one layer, and passes it the layer's data if the cache does not have it.
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
