// Package disks makes the disks of a machine before it starts: from claims, ConfigMaps and Secrets, cloud-init data, images in containers, and
// copies of any of these.
//
// It does not start the guest, and it knows no protocol of network disks: package remote opens those.
package disks

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/access"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/early"
	"github.com/berth-vm/berth/internal/launcher/tool"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// All makes the disks of all volumes, by volume.
func (k *Maker) All(ctx context.Context) (map[string]backing.Disk, error) {
	out := map[string]backing.Disk{}
	for _, v := range k.machine.Spec.Volumes {
		b, err := k.disk(ctx, v)
		if err != nil {
			return nil, err
		}
		out[v.Name] = b
	}
	return out, nil
}

// disk makes the disk of a volume. If a copy of an image with layers of the node's cache fails, it is tried once more with layers of the
// machine's own.
func (k *Maker) disk(ctx context.Context, v kubevirt.Volume) (backing.Disk, error) {
	if slices.Contains(k.machine.Opened, v.Name) {
		return k.opened(ctx, v)
	}
	if size, ok := k.machine.Whole[v.Name]; ok {
		return k.whole(ctx, v, size)
	}
	b, err := k.master(ctx, v)
	orders := b.Orders
	if err == nil && v.Copied() != nil {
		master := b
		b, err = k.copy(ctx, v, master)
		if err != nil && master.UsesNodeFiles() && ctx.Err() == nil {
			return k.alone(ctx, v, master, err)
		}
	}
	b.Orders = orders
	b.Shared = v.AccessMode == kubevirt.WriteShared
	if err != nil {
		return backing.Disk{}, fmt.Errorf("volume %s: %w", v.Name, err)
	}
	return b, nil
}

// master makes the disk of a volume without its copy.
func (k *Maker) master(ctx context.Context, v kubevirt.Volume) (backing.Disk, error) {
	switch {
	case v.Networked():
		return k.remotes.Open(ctx, k.machine, v)
	case v.ContainerImage != nil:
		return k.image(ctx, v)
	}
	return inPod(ctx, k.machine, v)
}

// inPod makes a volume's disk from what is mounted into the pod.
func inPod(ctx context.Context, m launcherapi.Machine, v kubevirt.Volume) (backing.Disk, error) {
	made := backing.GeneratedFile(v.Name)
	mounted := filepath.Join(launcherapi.MountDir, v.Name)
	switch s := v.VolumeSource; {
	case s.DataVolume != nil, s.PersistentVolumeClaim != nil:
		b, err := claimed(ctx, m, v)
		b.ReadOnly = s.PersistentVolumeClaim != nil && s.PersistentVolumeClaim.ReadOnly || v.Reads()
		return b, err
	case s.Ephemeral != nil:
		return claimed(ctx, m, v)
	case s.ContainerDisk != nil:
		return containerDisk(mounted)
	case s.EmptyDisk != nil:
		return backing.Resize(made, s.EmptyDisk.Capacity.Value())
	case s.HostDisk != nil:
		return hostDisk(filepath.Join(mounted, filepath.Base(s.HostDisk.Path)), s.HostDisk)
	case s.CloudInitNoCloud != nil, s.CloudInitConfigDrive != nil:
		keys, err := access.PublicKeys(launcherapi.MountDir, m.Spec.AccessCredentials, s.CloudInitNoCloud != nil)
		if err != nil {
			return backing.Disk{}, err
		}
		if s.CloudInitNoCloud != nil {
			return cloudInit(ctx, made, mounted, noCloud(m, s.CloudInitNoCloud, keys))
		}
		return cloudInit(ctx, made, mounted, configDrive(m, s.CloudInitConfigDrive, keys))
	case s.ConfigMap != nil:
		return directoryISO(ctx, made, label(s.ConfigMap.VolumeLabel), mounted)
	case s.Secret != nil:
		return directoryISO(ctx, made, label(s.Secret.VolumeLabel), mounted)
	case s.DownwardAPI != nil:
		return directoryISO(ctx, made, label(s.DownwardAPI.VolumeLabel), mounted)
	case s.Sysprep != nil:
		return directoryISO(ctx, made, "unattendCD", mounted)
	}
	return backing.Disk{}, errors.New("it has no source this launcher knows")
}

// claimed is the disk on a claim. While the claim is being filled, its worker serves the disk.
func claimed(ctx context.Context, m launcherapi.Machine, v kubevirt.Volume) (backing.Disk, error) {
	if slices.Contains(m.Block, v.Name) || slices.Contains(m.Sent, v.Name) || v.Copied() != nil {
		return Claim(m, v.Name)
	}
	b, err := early.Open(ctx, backing.ClaimFile(v.Name))
	if b == nil && err == nil {
		return Claim(m, v.Name)
	}
	if err != nil {
		return backing.Disk{}, err
	}
	return *b, nil
}

// Claim is the disk on a claim that is filled: its device, or the disk.img in it.
func Claim(m launcherapi.Machine, volume string) (backing.Disk, error) {
	if slices.Contains(m.Block, volume) {
		return backing.Disk{Path: backing.ClaimDevice(volume), Device: true, Format: "raw"}, nil
	}
	path := backing.ClaimFile(volume)
	if slices.Contains(m.Sent, volume) {
		return backing.Disk{Path: path, Format: "raw"}, nil // the launcher that the guest comes from makes it, as it tells how large it is
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && m.Empty[volume] > 0 {
		return backing.CreateDisk(path, m.Empty[volume])
	} else if err != nil {
		return backing.Disk{}, fmt.Errorf("the claim has no disk.img; fill it through a DataVolume or put a raw image there: %w", err)
	}
	if size := m.Sizes[volume]; size > 0 && m.Incoming == "" { // a guest that moves here has the disk open elsewhere
		_ = backing.GrowFile(path, size) // it is tried again while the guest runs, and reported then
	}
	return backing.Disk{Path: path, Format: "raw"}, nil
}

// containerDisk is the disk of a containerDisk volume: the one file that was copied out of its image.
func containerDisk(dir string) (backing.Disk, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return backing.Disk{}, err
	}
	if len(files) != 1 {
		return backing.Disk{}, fmt.Errorf("the image has %d files under /disk; it must have one", len(files))
	}
	path := filepath.Join(dir, files[0].Name())
	format, err := backing.DetectFormat(path)
	return backing.Disk{Path: path, Format: format}, err
}

// hostDisk is a plain file in a directory of the node. A link could lead to a file that is not allowed.
func hostDisk(path string, h *kubevirt.HostDisk) (backing.Disk, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && h.Type == "DiskOrCreate":
		return backing.Resize(path, h.Capacity.Value())
	case err != nil:
		return backing.Disk{}, fmt.Errorf("hostDisk of type %s: %w", h.Type, err)
	case !info.Mode().IsRegular():
		return backing.Disk{}, fmt.Errorf("hostDisk %s is not a plain file; links and devices are not followed", h.Path)
	}
	return backing.Disk{Path: path, Format: "raw"}, nil
}

// label is the label of a disk with the files of a directory.
func label(l string) string {
	if l == "" {
		return "cfgdata"
	}
	return l
}

// directoryISO makes a read-only disk with the files of a directory. It follows symbolic links, since the kubelet makes the files of ConfigMaps
// and Secrets links.
func directoryISO(ctx context.Context, path, label, dir string) (backing.Disk, error) {
	err := tool.Run(ctx, "genisoimage", "-quiet", "-joliet", "-rock", "-follow-links", "-exclude", "..*", "-volid", label, "-output", path, dir)
	return backing.Disk{Path: path, Format: "raw", ReadOnly: true}, err
}

// cloudInit writes the files of a data source and makes a disk of them. Secrets that the data source refers to are below mounted.
func cloudInit(ctx context.Context, path, mounted string, d dataSource) (backing.Disk, error) {
	dir := strings.TrimSuffix(path, ".img") + ".d"
	for name, text := range d.files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			return backing.Disk{}, err
		}
		if text.secret != "" {
			found, err := firstFile(filepath.Join(mounted, text.secret), text.keys)
			if err != nil {
				return backing.Disk{}, err
			}
			text.inline = found
		}
		if text.encoded != "" {
			plain, err := base64.StdEncoding.DecodeString(text.encoded)
			if err != nil {
				return backing.Disk{}, fmt.Errorf("%s is not base64: %w", name, err)
			}
			text.inline = string(plain)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text.inline), 0o600); err != nil {
			return backing.Disk{}, err
		}
	}
	return directoryISO(ctx, path, d.label, dir)
}

// firstFile returns the content of the first of these files that exists in dir.
func firstFile(dir string, names []string) (string, error) {
	for _, n := range names {
		if b, err := os.ReadFile(filepath.Join(dir, n)); err == nil {
			return string(b), nil
		}
	}
	return "", fmt.Errorf("the secret has none of the keys %s", strings.Join(names, ", "))
}
