//go:build host

package plug

import (
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/qmp"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/testing/hosttool"
	"github.com/berth-vm/berth/internal/testing/qmptest"
)

// TestDisksGrow: a real QEMU gives its guest larger disks while it runs: in a file, on a device, and on a device that was added.
func TestDisksGrow(t *testing.T) {
	const small, large = 16 << 20, 48 << 20
	dir := t.TempDir()
	files := map[string]string{}
	for _, name := range []string{"file", "block", "hot", "copy", "keeps"} {
		files[name] = filepath.Join(dir, name)
		if err := os.WriteFile(files[name], nil, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Truncate(files[name], small); err != nil {
			t.Fatal(err)
		}
	}
	args := []string{"-S", "-nodefaults", "-display", "none", "-machine", "q35", "-qmp", "unix:" + filepath.Join(dir, "monitor") + ",server=on,wait=off"}
	disks, devices := map[string]backing.Disk{}, map[string]string{}
	for name, path := range files {
		b := backing.Disk{Path: path, Format: "raw", Copied: name == "copy"}
		if name == "block" || name == "hot" {
			b.Path, b.Device = strings.TrimSpace(hosttool.Run(t, "losetup", "--show", "-f", path)), true
			devices[name] = b.Path
			t.Cleanup(func() { hosttool.Run(t, "losetup", "-d", b.Path) })
		}
		if name != "hot" {
			disks[name] = b
		}
		driver := map[bool]string{true: "host_device", false: "file"}[b.Device]
		args = append(args, "-blockdev", fmt.Sprintf(`{"driver":"raw","node-name":"n-%s","file":{"driver":%q,"filename":%q}}`, name, driver, b.Path),
			"-device", fmt.Sprintf("virtio-blk-pci,id=%s,drive=n-%s", qmp.Device(name), name))
	}
	cmd := exec.Command("qemu-system-x86_64", args...)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = cmd.Process.Kill(); _ = cmd.Wait() })
	qemu := qmptest.Await(t, filepath.Join(dir, "monitor"))
	measure, err := os.Open(devices["hot"])
	if err != nil {
		t.Fatal(err)
	}
	defer measure.Close()
	p := &plugs{qemu: qemu, log: slog.New(slog.DiscardHandler), has: map[string]*plug{"hot": {id: qmp.Device("hot"), measure: measure}},
		growth: newGrowth(launcherapi.Machine{Sizes: map[string]int64{"file": small, "copy": large}}, disks)}
	now := time.Now()
	sizes := func() map[string]int64 {
		now = now.Add(growEvery)
		p.grow(map[string]int64{"file": large}, now)
		all, err := qemu.Drives()
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]int64{}
		for name, d := range all {
			out[name] = d.Size
		}
		return out
	}
	if got := sizes(); got["file"] != large || got["block"] != small || got["hot"] != small || got["copy"] != small || got["keeps"] != small {
		t.Errorf("after the claim of the file grew: %v", got)
	}
	for name, device := range devices {
		if err := os.Truncate(files[name], large); err != nil {
			t.Fatal(err)
		}
		hosttool.Run(t, "losetup", "-c", device)
	}
	if got := sizes(); got["block"] != large || got["hot"] != large {
		t.Errorf("after the devices grew: %v", got)
	}
	if info, err := os.Stat(files["file"]); err != nil || info.Size() != large {
		t.Errorf("the file: %v %v", info, err)
	}
}

// TestFileFitsItsFilesystem: a disk grows to what was asked for, and on a claim's own filesystem to what that holds.
func TestFileFitsItsFilesystem(t *testing.T) {
	dir := t.TempDir()
	image, point := filepath.Join(dir, "image"), filepath.Join(dir, "point")
	hosttool.Run(t, "truncate", "-s", "128M", image)
	hosttool.Run(t, "mkfs.ext4", "-q", "-F", "-m", "0", image)
	hosttool.Run(t, "mkdir", point)
	hosttool.Run(t, "mount", "-o", "loop", image, point)
	defer hosttool.Run(t, "umount", point)
	disk := filepath.Join(point, "disk.img")
	if err := os.WriteFile(disk, make([]byte, 32<<20), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := backing.GrowFile(disk, 120<<20); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(disk)
	if err != nil || info.Size() < 90<<20 || info.Size() >= 120<<20 {
		t.Fatalf("%v %v", info.Size(), err)
	}
	before := info.Size()
	if err := backing.GrowFile(disk, 124<<20); err != nil { // nothing has changed
		t.Fatal(err)
	}
	if info, err = os.Stat(disk); err != nil || info.Size() != before {
		t.Errorf("it grew from %d to %d", before, info.Size())
	}
	plain := filepath.Join(dir, "plain.img") // a filesystem that others share
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := backing.GrowFile(plain, 64<<20); err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(plain); err != nil || info.Size() != 64<<20 {
		t.Errorf("%v %v", info, err)
	}
}
