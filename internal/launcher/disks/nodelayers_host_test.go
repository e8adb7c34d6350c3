//go:build host

package disks

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
	"k8s.io/apimachinery/pkg/api/resource"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/containerimage"
	"github.com/berth-vm/berth/internal/launcher/domain"
	"github.com/berth-vm/berth/internal/launcher/progress"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/testing/hosttool"
	"github.com/berth-vm/berth/internal/testing/imagetest"
	"github.com/berth-vm/berth/internal/transfer/layercache"
)

// shareLayers prepares a machine that is introduced to a cache when its disk is made first. tries counts how often that is.
func shareLayers(t *testing.T, kept string) (k *Maker, said *progress.Copies, tries *int) {
	t.Helper()
	c, err := layercache.Open(kept, kept, 1<<30, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	img, dir, said, tries := imagetest.Pulled(t, []string{"a"}, []string{"b"}), t.TempDir(), progress.New(), new(int)
	k = &Maker{images: &containerimage.Maker{Log: slog.New(slog.DiscardHandler), Note: said.Change}, note: said.Change, path: func(string) string { return filepath.Join(dir, "copy.qcow2") }}
	k.image = func(ctx context.Context, v kubevirt.Volume) (backing.Disk, error) {
		meet := t.TempDir()
		door := k.images.CacheDoor(v.Name, meet)
		defer door.Close()
		if *tries++; *tries == 1 {
			imagetest.MeetCache(t, meet, c)
		}
		b, _, err := containerimage.Stack(ctx, img, t.TempDir(), nil, door)
		if b.UsesNodeFiles() != (*tries == 1) {
			t.Errorf("try %d: the node's layers are used: %t", *tries, b.UsesNodeFiles())
		}
		return b, err
	}
	return k, said, tries
}

// ofTheImage is the volume of a container image.
func ofTheImage(mode kubevirt.CopyMode) kubevirt.Volume {
	return kubevirt.Volume{Name: "root", Copy: &kubevirt.DiskCopy{Mode: mode}, VolumeSource: kubevirt.VolumeSource{
		ContainerImage: &kubevirt.ContainerImageSource{Image: "team/image"}}}
}

// TestLockedLayers: another user of the node's layers locks them for writing after they were handed out. The machine makes its
// own, once, and has a disk.
func TestLockedLayers(t *testing.T) {
	kept := t.TempDir()
	k, said, tries := shareLayers(t, kept)
	path := k.path
	k.path = func(volume string) string {
		lockAll(t, kept)
		return path(volume)
	}
	b, err := k.disk(t.Context(), ofTheImage(kubevirt.CopyClone))
	if err != nil || *tries != 2 {
		t.Fatalf("after %d tries: %v", *tries, err)
	}
	imagetest.OwnFiles(t, b)
	hosttool.Run(t, "qemu-img", "check", "-q", b.Path)
	if got := said.Now()["root"].Alone; !strings.HasPrefix(got, "those of the node cannot be used: ") || !strings.Contains(got, "lock") {
		t.Errorf("it says %q", got)
	}
}

// TestRefusedWithLayers: a machine that libvirt refuses with layers of the node is made again with its own, once.
func TestRefusedWithLayers(t *testing.T) {
	k, said, tries := shareLayers(t, t.TempDir())
	m := launcherapi.Machine{Namespace: "team", Name: "vm", Emulate: true}
	m.Spec.Domain.Memory, m.Spec.Volumes = &kubevirt.Memory{Guest: new(resource.MustParse("128Mi"))}, []kubevirt.Volume{ofTheImage(kubevirt.CopyOnWrite)}
	k.machine = m
	disks, err := k.All(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	first := disks["root"]
	made, err := k.WithOwnLayers(t.Context(), disks, errors.New("it is locked"))
	if err != nil || !made || *tries != 2 {
		t.Fatalf("after %d tries: %v", *tries, err)
	}
	b := disks["root"]
	d, err := domain.New(m, disks, domain.Host{})
	if err != nil {
		t.Fatal(err)
	}
	xml, err := d.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	imagetest.OwnFiles(t, b)
	hosttool.Run(t, "qemu-img", "info", "--backing-chain", b.Path)
	if !strings.Contains(xml, b.Master.Path) || strings.Contains(xml, first.Master.Path) {
		t.Errorf("libvirt is told of %s", xml)
	}
	if got := said.Now()["root"].Alone; got != "those of the node cannot be used: it is locked" {
		t.Errorf("it says %q", got)
	}
	if made, err := k.WithOwnLayers(t.Context(), disks, errors.New("it is refused again")); made || err != nil || *tries != 2 {
		t.Errorf("it is made a third time: %v", err)
	}
}

// lockAll locks the layers of a cache as QEMU locks an image that it writes to.
func lockAll(t *testing.T, dir string) {
	t.Helper()
	all, err := filepath.Glob(filepath.Join(dir, "*.qcow2"))
	if err != nil || len(all) == 0 {
		t.Fatal("there are no layers", err)
	}
	for _, path := range all {
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Start: 101, Len: 1}); err != nil {
			t.Fatal(err)
		}
	}
}
