package containerimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/transfer/erofs"
	"github.com/berth-vm/berth/internal/transfer/layerdisk"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
)

// layerChain are the layers of an image as files of a qcow2 chain.
type layerChain struct {
	disk layerdisk.Disk
	from int        // the lowest layer that the guest needs: those below it are hidden
	held []*os.File // the open files of the node's cache; empty if the files are this pod's
}

// Stack makes the stack of an image's layers in dir, and returns the lowest layer that the guest needs. Layers come from the node's cache if it
// has a connection to that.
func Stack(ctx context.Context, img *registry.Image, dir string, c *kubevirt.DiskCopy, cache *cacheDoor) (backing.Disk, int, error) {
	p, err := cache.layers(ctx, img, dir)
	if err != nil {
		return backing.Disk{}, 0, err
	}
	if p == nil {
		if p, err = ownLayers(ctx, img, dir); err != nil {
			return backing.Disk{}, 0, err
		}
	}
	var b backing.Disk
	for n := range img.Layers {
		b = over(b, filepath.Join(dir, layerdisk.LayerFile(n)))
		if n < len(p.held) {
			b.NodeFile = p.held[n]
		}
	}
	size := p.disk.Least(imageRoom)
	if c != nil && c.Size != nil {
		size = c.Size.Value()
	}
	b = over(b, filepath.Join(dir, "top.qcow2"))
	f, err := newFile(b.Path)
	if err != nil {
		return backing.Disk{}, 0, err
	}
	_, err = p.disk.Room(f, layerdisk.LayerFile(img.Layers-1), imagevm.RoomName, size)
	return b, p.from, errors.Join(err, f.Close())
}

// over puts a file of the stack on top of another.
func over(below backing.Disk, path string) backing.Disk {
	b := backing.Disk{Path: path, Format: "qcow2"}
	if below.Path != "" {
		b.Master = &below
	}
	return b
}

// newFile creates a file of the stack.
func newFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_RDWR, 0o600)
	if err != nil {
		return nil, fmt.Errorf("make room for a layer: %w", err)
	}
	return f, nil
}

// ownLayers makes the files of all layers for this machine alone.
func ownLayers(ctx context.Context, img *registry.Image, dir string) (_ *layerChain, err error) {
	var p layerChain
	var tree erofs.Tree
	limits := erofs.DefaultLimits
	limits.Bytes = launcherapi.ImageBytes
	var files []*os.File // all stay open: a later layer may refer to a file in an earlier one
	defer func() {
		for _, f := range files {
			err = errors.Join(err, f.Close())
		}
	}()
	for n := range img.Layers {
		f, err := newFile(filepath.Join(dir, layerdisk.LayerFile(n)))
		if err != nil {
			return nil, err
		}
		files = append(files, f)
		err = img.Read(ctx, n, limits.Bytes, func(r io.Reader) error {
			next, err := p.disk.Layer(f, layerdisk.LayerFile(n-1), imagevm.LayerName(n), func(w layerdisk.File) (int64, error) {
				made, err := erofs.Convert(r, w, &tree, limits)
				if made.Alone {
					p.from = n
				}
				limits.Bytes -= made.Size
				return made.Size, err
			})
			p.disk = next
			return err
		})
		if err != nil {
			return nil, err
		}
	}
	return &p, nil
}
