package launcher

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/transfer/format"
)

// all makes every volume of the machine something QEMU can open.
func (k *maker) all(ctx context.Context) (map[string]Backing, error) {
	out := map[string]Backing{}
	for _, v := range k.machine.Spec.Volumes {
		b, err := k.disk(ctx, v)
		if err != nil {
			return nil, err
		}
		out[v.Name] = b
	}
	return out, nil
}

// disk makes a volume something QEMU can open. If that fails with layers of the node, it is tried once more with layers of the machine's own.
func (k *maker) disk(ctx context.Context, v kubevirt.Volume) (Backing, error) {
	b, err := k.master(ctx, v)
	orders := b.Orders
	if err == nil && v.Copied() != nil {
		master := b
		b, err = k.copy(ctx, v, master)
		if err != nil && master.nodes() && ctx.Err() == nil {
			return k.alone(ctx, v, master, err)
		}
	}
	b.Orders = orders
	b.Shared = v.AccessMode == kubevirt.WriteShared
	if err != nil {
		return Backing{}, fmt.Errorf("volume %s: %w", v.Name, err)
	}
	return b, nil
}

// master is what a volume is before it is copied.
func (k *maker) master(ctx context.Context, v kubevirt.Volume) (Backing, error) {
	switch {
	case v.Networked():
		return k.remotes.backing(ctx, k.machine, v)
	case v.ContainerImage != nil:
		return k.image(ctx, v)
	}
	return backing(ctx, k.machine, v)
}

func backing(ctx context.Context, m launcherapi.Machine, v kubevirt.Volume) (Backing, error) {
	made := imageFile(v.Name)
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
		return empty(made, s.EmptyDisk.Capacity.Value())
	case s.HostDisk != nil:
		return hostDisk(filepath.Join(mounted, filepath.Base(s.HostDisk.Path)), s.HostDisk)
	case s.CloudInitNoCloud != nil, s.CloudInitConfigDrive != nil:
		keys, err := publicKeys(launcherapi.MountDir, m.Spec.AccessCredentials, s.CloudInitNoCloud != nil)
		if err != nil {
			return Backing{}, err
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
	return Backing{}, errors.New("it has no source this launcher knows")
}

// claimed is the disk of a volume in a claim. One that is being filled is had from the worker that fills it.
func claimed(ctx context.Context, m launcherapi.Machine, v kubevirt.Volume) (Backing, error) {
	if slices.Contains(m.Block, v.Name) || slices.Contains(m.Sent, v.Name) || v.Copied() != nil {
		return claim(m, v.Name)
	}
	b, err := served(ctx, diskFile(v.Name))
	if b == nil && err == nil {
		return claim(m, v.Name)
	}
	if err != nil {
		return Backing{}, err
	}
	return *b, nil
}

// claim is the disk of a claim: the device itself, or disk.img in it.
func claim(m launcherapi.Machine, volume string) (Backing, error) {
	if slices.Contains(m.Block, volume) {
		return Backing{Path: diskDevice(volume), Device: true, Format: "raw"}, nil
	}
	path := diskFile(volume)
	if slices.Contains(m.Sent, volume) {
		return Backing{Path: path, Format: "raw"}, nil // the source tells how large it is
	}
	if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) && m.Empty[volume] > 0 {
		return firstDisk(path, m.Empty[volume])
	} else if err != nil {
		return Backing{}, fmt.Errorf("the claim has no disk.img; fill it through a DataVolume or put a raw image there: %w", err)
	}
	if size := m.Sizes[volume]; size > 0 && m.Incoming == "" { // a guest that comes has the disk open elsewhere
		_ = growFile(path, size) // it is tried again, and complained of, while the guest runs
	}
	return Backing{Path: path, Format: "raw"}, nil
}

// containerDisk is the one file that was copied out of the image.
func containerDisk(dir string) (Backing, error) {
	files, err := os.ReadDir(dir)
	if err != nil {
		return Backing{}, err
	}
	if len(files) != 1 {
		return Backing{}, fmt.Errorf("the image has %d files under /disk; it must have one", len(files))
	}
	path := filepath.Join(dir, files[0].Name())
	format, err := containerFormat(path)
	return Backing{Path: path, Format: format}, err
}

// containerFormat tells qcow2 from raw as the data plane does, and refuses a qcow2 that names another file. Every other format
// is raw to the guest: QEMU is told the format and never guesses.
func containerFormat(path string) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return "", err
	}
	head := make([]byte, format.HeadSize)
	n, err := f.ReadAt(head, 0)
	if err != nil && !errors.Is(err, io.EOF) {
		return "", fmt.Errorf("read the image: %w", err)
	}
	if format.Detect(head[:n], nil, info.Size()) != format.QCOW2 {
		return "raw", nil
	}
	if _, err := format.Open(format.QCOW2, f, info.Size()); err != nil {
		return "", fmt.Errorf("the image in the container: %w", err)
	}
	return "qcow2", nil
}

func empty(path string, size int64) (Backing, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return Backing{}, err
	}
	return Backing{Path: path, Format: "raw"}, errors.Join(f.Truncate(size), f.Close())
}

// hostDisk is a plain file of the node's directory. A link would lead somewhere that nobody has allowed.
func hostDisk(path string, h *kubevirt.HostDisk) (Backing, error) {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist) && h.Type == "DiskOrCreate":
		return empty(path, h.Capacity.Value())
	case err != nil:
		return Backing{}, fmt.Errorf("hostDisk of type %s: %w", h.Type, err)
	case !info.Mode().IsRegular():
		return Backing{}, fmt.Errorf("hostDisk %s is not a plain file; links and devices are not followed", h.Path)
	}
	return Backing{Path: path, Format: "raw"}, nil
}

func label(l string) string {
	if l == "" {
		return "cfgdata"
	}
	return l
}

// directoryISO is a read-only disk with the files of a directory. The kubelet keeps those behind symbolic links.
func directoryISO(ctx context.Context, path, label, dir string) (Backing, error) {
	err := run(ctx, "genisoimage", "-quiet", "-joliet", "-rock", "-follow-links", "-exclude", "..*", "-volid", label, "-output", path, dir)
	return Backing{Path: path, Format: "raw", ReadOnly: true}, err
}

// cloudInit writes the files of a data source and makes a disk of them. Secrets it refers to are mounted.
func cloudInit(ctx context.Context, path, mounted string, d dataSource) (Backing, error) {
	dir := strings.TrimSuffix(path, ".img") + ".d"
	for name, text := range d.files {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o700); err != nil {
			return Backing{}, err
		}
		if text.secret != "" {
			found, err := firstFile(filepath.Join(mounted, text.secret), text.keys)
			if err != nil {
				return Backing{}, err
			}
			text.inline = found
		}
		if text.encoded != "" {
			plain, err := base64.StdEncoding.DecodeString(text.encoded)
			if err != nil {
				return Backing{}, fmt.Errorf("%s is not base64: %w", name, err)
			}
			text.inline = string(plain)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text.inline), 0o600); err != nil {
			return Backing{}, err
		}
	}
	return directoryISO(ctx, path, d.label, dir)
}

func firstFile(dir string, names []string) (string, error) {
	for _, n := range names {
		if b, err := os.ReadFile(filepath.Join(dir, n)); err == nil {
			return string(b), nil
		}
	}
	return "", fmt.Errorf("the secret has none of the keys %s", strings.Join(names, ", "))
}

func run(ctx context.Context, name string, args ...string) error {
	if err := runTo(exec.CommandContext(ctx, name, args...), nil); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}

// runTo runs a program. What it says goes to said, if that is not nil, and is in the error otherwise.
func runTo(cmd *exec.Cmd, said io.Writer) error {
	var complaint bytes.Buffer
	cmd.Stdout, cmd.Stderr = &complaint, &complaint
	if said != nil {
		cmd.Stdout = said
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(complaint.String()))
	}
	return nil
}
