package launcher

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

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/rendezvous"
	"github.com/berth-vm/berth/internal/transfer/layercache"
	"github.com/berth-vm/berth/internal/transfer/layerdisk"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
)

// cachePatience is how long the node's agent may take to introduce the launcher to the node's cache. It looks twice in a second. On a node without an
// agent, which the controller knows, nobody is waited for.
const cachePatience = 10 * time.Second

// cacheDoor is where the launcher waits for the node's cache of layers. A nil one is a launcher that does not.
type cacheDoor struct {
	log  *slog.Logger
	own  func(why string) // is told why the layers are made for this machine alone
	shut string           // why nobody is waited for; empty: somebody is
	l    *net.UnixListener
	came chan *net.UnixConn
	till <-chan time.Time
}

// cacheDoor begins to wait for the node's cache, unless there is no use in that.
func (k *maker) cacheDoor(volume, dir string) *cacheDoor {
	own := func(why string) {
		k.log.Info("the layers are made for this machine alone", "why", why)
		k.note(volume, func(c *launcherapi.Copy) { c.Alone = brief(why) })
	}
	switch {
	case k.refused != "":
		return &cacheDoor{own: own, shut: k.refused}
	case k.machine.NoAgent:
		return &cacheDoor{own: own, shut: "no agent of Berth runs on its node"}
	}
	return openCacheDoor(dir, k.log, own)
}

// brief is a text as a status has room for.
func brief(text string) string {
	const most = 300
	if len(text) > most {
		return strings.ToValidUTF8(text[:most], "") + "..."
	}
	return text
}

// alone makes the disk of a volume again, with layers of the machine's own, because the node's could not be used: another pod
// that has them can hold QEMU's lock on them, for example.
func (k *maker) alone(ctx context.Context, v kubevirt.Volume, was backing.Disk, why error) (backing.Disk, error) {
	was.CloseNodeFiles()
	k.refused = "those of the node cannot be used: " + why.Error()
	return k.disk(ctx, v)
}

// openCacheDoor begins to wait. A launcher that cannot makes its layers itself.
func openCacheDoor(dir string, log *slog.Logger, own func(string)) *cacheDoor {
	d := &cacheDoor{log: log, own: own, came: make(chan *net.UnixConn, 1), till: time.After(cachePatience)}
	l, err := rendezvous.ServeAt(filepath.Join(dir, rendezvous.LayersSocket), func(c *net.UnixConn, _ rendezvous.Hello) bool {
		select {
		case d.came <- c:
			return true
		default:
			return false // one is enough
		}
	})
	if err != nil {
		d.shut = err.Error()
	}
	d.l = l
	return d
}

func (d *cacheDoor) close() {
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

// layers takes all layers of an image from the node's cache; nil: they are to be made here. Only what is wrong with the image itself is an error.
func (d *cacheDoor) layers(ctx context.Context, img *registry.Image, dir string) (*piled, error) {
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

// shared asks for each layer in turn, and makes its file in dir a link to the open one.
func shared(ctx context.Context, c *net.UnixConn, img *registry.Image, dir string) (*piled, int, error) {
	p, made, left := &piled{}, 0, int64(launcherapi.ImageBytes)
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

// withOwnLayers is the machine with layers of its own, if libvirt refused it with layers of the node; empty: it had none of those.
func (l *Launcher) withOwnLayers(ctx context.Context, m launcherapi.Machine, why error) (string, error) {
	made := false
	for _, v := range m.Spec.Volumes {
		if why == nil || ctx.Err() != nil || !l.disks[v.Name].UsesNodeFiles() {
			continue
		}
		b, err := l.maker.alone(ctx, v, l.disks[v.Name], why)
		if err != nil {
			return "", err
		}
		l.disks[v.Name], made = b, true
	}
	if !made {
		return "", nil
	}
	return l.domain(m)
}
