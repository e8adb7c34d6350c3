// Package containerimage makes the disk of a machine that boots from a container image: it pulls the image, and makes either the disk that is
// in it, or a stack of files, one for each layer, which the machine's own disk lies over. Layers that the node's cache has are used from there.
//
// It does not know copies or libvirt. What happens inside the guest is in internal/imagevm.
package containerimage

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/remote"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source/http"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
)

// guestArch is the architecture of guests, whatever the node's is.
const guestArch = "amd64"

// imageRoom is the size of the disk of a machine that does not set one. Room is taken only by what is written.
const imageRoom = 8 << 30

// Maker makes the disks of a machine's container images.
type Maker struct {
	Machine launcherapi.Machine
	Log     *slog.Logger
	Dial    func(ctx context.Context, network, address string) (net.Conn, error) // connects to allowed registries only
	Note    func(volume string, change func(*launcherapi.Copy))                  // changes what is reported of a volume
	// refused is why the node's cache of layers is not used any more; empty while it may be used.
	Refused string
}

// Disk makes the disk of a volume: the disk in the image if the image has one and no program, and otherwise a stack of its layers.
func (k *Maker) Disk(ctx context.Context, v kubevirt.Volume) (backing.Disk, error) {
	m, cache := k.Machine, k.CacheDoor(v.Name, launcherapi.MeetDir)
	defer cache.Close()
	mounted := filepath.Join(launcherapi.MountDir, v.Name)
	s := v.ContainerImage
	img, err := registry.Pull(ctx, imageOrder(m, v, mounted), guestArch, http.Dial(k.Dial))
	if err != nil {
		return backing.Disk{}, remote.ClassifyWeb(err)
	}
	defer func() { _ = img.Close() }()
	dir := filepath.Join(mounted, "disk")
	// An earlier run in this pod may have left parts of a disk.
	if err := errors.Join(os.RemoveAll(dir), os.MkdirAll(dir, 0o700)); err != nil {
		return backing.Disk{}, fmt.Errorf("make room for the image: %w", err)
	}
	orders := program(s, img.Config, os.Environ())
	if len(orders.Command) == 0 {
		return diskInside(ctx, img, dir)
	}
	orders.Host = m.Spec.Hostname
	if orders.Host == "" {
		orders.Host = m.Name
	}
	b, from, err := Stack(ctx, img, dir, v.Copy, cache)
	if err != nil {
		return backing.Disk{}, remote.ClassifyWeb(err)
	}
	for n := from; n < img.Layers; n++ {
		orders.Layers = append(orders.Layers, n)
	}
	text, err := json.Marshal(orders)
	if err != nil {
		return backing.Disk{}, fmt.Errorf("write what to run: %w", err)
	}
	b.Orders = domain.OrdersFile
	return b, os.WriteFile(domain.OrdersFile, text, 0o600)
}

// imageOrder says where a volume's image is and how to log in there. mounted is the directory with the volume's Secrets.
func imageOrder(m launcherapi.Machine, v kubevirt.Volume, mounted string) task.Registry {
	s := v.ContainerImage
	plain := slices.Contains(m.Plain, v.Name)
	order := task.Registry{URL: launcherapi.ImageScheme + cmp.Or(m.Mirrored[v.Name], s.Image), PlainHTTP: plain}
	order.Insecure = plain
	if s.ImagePullSecret != "" {
		order.CredentialsDir = filepath.Join(mounted, netdisk.CredentialsDir)
	}
	if s.CertConfigMap != "" {
		order.CADir = filepath.Join(mounted, netdisk.CADir)
	}
	return order
}

// program returns the program that the machine runs: the image's, with the changes of the volume, which are those that a container
// can make.
func program(s *kubevirt.ContainerImageSource, c v1.Config, own []string) imagevm.Orders {
	o := imagevm.Orders{Command: slices.Concat(c.Entrypoint, c.Cmd), User: c.User, Dir: c.WorkingDir, Stop: c.StopSignal}
	switch {
	case len(s.Command) > 0:
		o.Command = slices.Concat(s.Command, s.Args)
	case len(s.Args) > 0:
		o.Command = slices.Concat(c.Entrypoint, s.Args)
	}
	if s.WorkingDir != "" {
		o.Dir = s.WorkingDir
	}
	given := map[string]string{}
	for _, e := range own {
		name, value, _ := strings.Cut(e, "=")
		given[name] = value
	}
	set := func(name, value string) {
		o.Env = slices.DeleteFunc(o.Env, func(e string) bool { return strings.HasPrefix(e, name+"=") })
		o.Env = append(o.Env, name+"="+value)
	}
	for _, e := range c.Env {
		name, value, _ := strings.Cut(e, "=")
		set(name, value)
	}
	for _, e := range own {
		if name, ok := strings.CutPrefix(e, launcherapi.EnvFromPrefix); ok {
			name, value, _ := strings.Cut(name, "=")
			set(name, value)
		}
	}
	for _, e := range s.Env {
		value, ok := given[launcherapi.EnvPrefix+e.Name]
		switch {
		case e.ValueFrom == nil:
			set(e.Name, e.Value)
		case ok: // a reference that is optional may have no value
			set(e.Name, value)
		}
	}
	return o
}

// diskInside unpacks the disk of an image that has no program.
func diskInside(ctx context.Context, img *registry.Image, dir string) (backing.Disk, error) {
	path := filepath.Join(dir, "disk.img")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return backing.Disk{}, fmt.Errorf("make room for the disk: %w", err)
	}
	found, err := img.Disk(ctx, f, launcherapi.ImageBytes)
	if err := errors.Join(err, f.Close()); err != nil {
		return backing.Disk{}, remote.ClassifyWeb(err)
	}
	if !found {
		return backing.Disk{}, fmt.Errorf("%s has no entrypoint, no command, and no disk under /disk/: say what to run with command", img.Name)
	}
	format, err := backing.DetectFormat(path)
	return backing.Disk{Path: path, Format: format}, err
}

// WithProgramEnd adds to the report of a machine that ran an image's program how the program ended.
func WithProgramEnd(r launcherapi.Report, said []byte) launcherapi.Report {
	e := imagevm.Read(said)
	switch {
	case r.End == launcherapi.PoweredOff && e == nil:
		r.End, r.Detail = launcherapi.Failed, "the guest powered off and did not say how the image's program ended"
	case r.End == launcherapi.PoweredOff && (e.Status != 0 || e.Error != ""):
		r.End, r.Detail = launcherapi.Failed, e.String()
	case r.End == launcherapi.PoweredOff, r.End == launcherapi.Stopped && e != nil:
		r.Detail = e.String()
	}
	return r
}
