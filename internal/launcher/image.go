package launcher

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/imagevm"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/source/http"
	"github.com/berth-vm/berth/internal/transfer/source/registry"
)

// guestArch is what guests are, whatever the node is.
const guestArch = "amd64"

// imageRoom is how much a machine may write that does not say how large its disk is to be. It takes no room before it is written.
const imageRoom = 8 << 30

// imageDisk makes a machine's disk of a container image: the disk in it, if it is one of a disk, and else a stack of its layers.
func (k *maker) imageDisk(ctx context.Context, v kubevirt.Volume) (backing.Disk, error) {
	m, cache := k.machine, k.cacheDoor(v.Name, launcherapi.MeetDir)
	defer cache.close()
	mounted := filepath.Join(launcherapi.MountDir, v.Name)
	s := v.ContainerImage
	img, err := registry.Pull(ctx, imageOrder(m, v, mounted), guestArch, http.Dial(k.remotes.door.dialer("http")))
	if err != nil {
		return backing.Disk{}, webFault(err)
	}
	defer func() { _ = img.Close() }()
	dir := filepath.Join(mounted, "disk")
	// What an earlier run in this pod made may be half made.
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
	b, from, err := pile(ctx, img, dir, v.Copy, cache)
	if err != nil {
		return backing.Disk{}, webFault(err)
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

// imageOrder is where a volume's image is, and how it may be had. What belongs to the volume is mounted at a directory.
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

// program is what the machine runs: what the image says, changed as a container's is.
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
		case ok: // else it was optional, and is not there
			set(e.Name, value)
		}
	}
	return o
}

// diskInside is the disk of an image that has no program.
func diskInside(ctx context.Context, img *registry.Image, dir string) (backing.Disk, error) {
	path := filepath.Join(dir, "disk.img")
	f, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return backing.Disk{}, fmt.Errorf("make room for the disk: %w", err)
	}
	found, err := img.Disk(ctx, f, launcherapi.ImageBytes)
	if err := errors.Join(err, f.Close()); err != nil {
		return backing.Disk{}, webFault(err)
	}
	if !found {
		return backing.Disk{}, fmt.Errorf("%s has no entrypoint, no command, and no disk under /disk/: say what to run with command", img.Name)
	}
	format, err := backing.DetectFormat(path)
	return backing.Disk{Path: path, Format: format}, err
}

// programEnd is how a machine ended that ran an image's program.
func programEnd(r launcherapi.Report, said []byte) launcherapi.Report {
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
