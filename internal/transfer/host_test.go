//go:build host

package transfer

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/disktest"
	"github.com/berth-vm/berth/internal/transfer/source"
	"github.com/berth-vm/berth/internal/transfer/zeropage"
)

func command(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v\n%s", name, args, err, out)
	}
	return strings.TrimSpace(string(out))
}

// loopDevice returns a block device of so many bytes, full of old content.
func loopDevice(t *testing.T, size int) string {
	t.Helper()
	backing := filepath.Join(t.TempDir(), "backing")
	if err := os.WriteFile(backing, bytes.Repeat([]byte("old content "), size/12+1)[:size], 0o600); err != nil {
		t.Fatal(err)
	}
	dev := command(t, "losetup", "--find", "--show", backing)
	t.Cleanup(func() { command(t, "losetup", "--detach", dev) })
	return dev
}

func wantOnDevice(t *testing.T, dev string, want []byte, size int) {
	t.Helper()
	f, err := os.Open(dev)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	got, err := io.ReadAll(f)
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != size || !bytes.Equal(got[:len(want)], want) {
		t.Fatalf("the device of %d bytes does not begin with the image of %d", len(got), len(want))
	}
	if !zeropage.IsZero(got[len(want):]) {
		t.Fatal("what lies behind the image on the device is not zero")
	}
}

// TestDeviceEveryShape fills block devices, larger than the image and exactly as large, and breaks off on the way.
func TestDeviceEveryShape(t *testing.T) {
	disk := disktest.Text(26<<20, 8)
	copy(disk[len(disk)-700_000:], disktest.Noise(700_000, 1)) // where the note lies on a device of the same size
	copy(disk[len(disk)-100_000:], bytes.Repeat([]byte("end"), 40_000))
	images := map[string][]byte{
		"raw":                disk,
		"qcow2":              disktest.QCOW2(t, disk, 1, false, false),
		"qcow2, compressed":  disktest.QCOW2(t, disk, 2, true, true),
		"raw.gz":             disktest.Gzip(t, disk),
		"qcow2, late, .gz":   disktest.Gzip(t, disktest.QCOW2(t, disk, 3, false, true)),
		"compressed, late, ": disktest.Zstd(t, disktest.QCOW2(t, disk, 4, true, true)),
	}
	for name, file := range images {
		for _, size := range []int{len(disk), 64 << 20} {
			for _, pre := range []bool{false, true} {
				t.Run(fmt.Sprintf("%s/%d/%v", name, size, pre), func(t *testing.T) {
					dev := loopDevice(t, size)
					k := fromURL("http://not.used", dev)
					k.Checksum, k.Target.Preallocate = sumOf(file), pre
					resumed := int64(0)
					for tries := 1; ; tries++ {
						blob := &flaky{p: file, version: "v1"}
						blob.left.Store(int64(len(file)/5 + tries*len(file)/40))
						work := New(k)
						work.Every, work.every = 20*time.Millisecond, 1<<20
						r := work.RunFrom(t.Context(), blob)
						resumed = max(resumed, r.Resumed)
						if r.Outcome == task.Done {
							if r.Virtual != int64(size) {
								t.Errorf("report %+v", r)
							}
							break
						}
						if r.Reason != task.SourceUnreachable || tries == 60 {
							t.Fatalf("run %d: %+v", tries, r)
						}
					}
					if resumed == 0 && (name == "raw" || name == "qcow2") {
						t.Error("no run went on where another left off")
					}
					wantOnDevice(t, dev, disk, size)
				})
			}
		}
	}
}

func TestDeviceTooSmallOrBusy(t *testing.T) {
	file := disktest.Text(9<<20, 1)
	dev := loopDevice(t, 8<<20)
	r := New(fromURL("http://not.used", dev)).RunFrom(t.Context(), inMemory(file, "v1"))
	if r.Reason != task.DoesNotFit || !strings.Contains(r.Detail, "9437184 is larger than the reported available storage 8388608") {
		t.Errorf("report %+v", r)
	}
	held := loopDevice(t, 16<<20)
	command(t, "mkfs.ext4", "-q", held)
	mnt := t.TempDir()
	command(t, "mount", held, mnt)
	t.Cleanup(func() { command(t, "umount", mnt) })
	if r := New(fromURL("http://not.used", held)).RunFrom(t.Context(), inMemory(file, "v1")); r.Reason != task.TargetBusy {
		t.Errorf("a mounted device: %+v", r)
	}
}

// TestFilesystems clones and imports on the filesystems volumes have; on XFS a clone shares its blocks.
func TestFilesystems(t *testing.T) {
	disk := append(disktest.Noise(30<<20, 3), make([]byte, 20<<20)...)
	for _, fs := range [][]string{{"mkfs.ext4", "-q"}, {"mkfs.xfs", "-q", "-f", "-m", "reflink=1"}} {
		t.Run(fs[0], func(t *testing.T) {
			dev := loopDevice(t, 400<<20)
			command(t, fs[0], append(fs[1:], dev)...)
			mnt := t.TempDir()
			command(t, "mount", dev, mnt)
			t.Cleanup(func() { command(t, "umount", mnt) })
			a, b := filepath.Join(mnt, "a", "disk.img"), filepath.Join(mnt, "b", "disk.img")
			for _, p := range []string{a, b} {
				if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			if r := New(fromURL("http://not.used", a)).RunFrom(t.Context(), inMemory(disk, "v1")); r.Outcome != task.Done {
				t.Fatalf("report %+v", r)
			}
			r := New(task.Task{Version: task.Version, Source: task.Source{Local: &task.Local{Path: a, Raw: true}},
				Target: task.Target{Path: b, Content: task.Disk, Size: 60 << 20}}).Run(t.Context())
			if r.Outcome != task.Done {
				t.Fatalf("report %+v", r)
			}
			wantDisk(t, b, disk, 60<<20)
			if shared := r.Read == 0; shared != (fs[0] == "mkfs.xfs") {
				t.Errorf("blocks were shared: %v", shared)
			}
		})
	}
}

// TestFullVolume runs out of space in the middle; nothing may look finished, and the numbers must make sense.
// TestNoSecondVolume brings an image whose tables come last, as a stream, into a filesystem with no room for it twice.
func TestNoSecondVolume(t *testing.T) {
	dev := loopDevice(t, 64<<20)
	command(t, "mkfs.ext4", "-q", "-m", "0", dev)
	mnt := t.TempDir()
	command(t, "mount", dev, mnt)
	t.Cleanup(func() { command(t, "umount", mnt) })
	to := filepath.Join(mnt, "disk.img")
	disk := bytes.Repeat([]byte("full of data, no page of it is zero. "), 1<<20)
	r := New(fromURL("http://not.used", to)).RunFrom(t.Context(), unranged{inMemory(disktest.QCOW2(t, disk, 1, false, true), "")})
	if r.Outcome != task.Done {
		t.Fatalf("report %+v", r)
	}
	got, err := os.ReadFile(to)
	if err != nil || !bytes.Equal(got, disk) {
		t.Fatalf("the disk of %d bytes differs: %v", len(got), err)
	}
}

func TestFullVolume(t *testing.T) {
	dev := loopDevice(t, 64<<20)
	command(t, "mkfs.ext4", "-q", dev)
	mnt := t.TempDir()
	command(t, "mount", dev, mnt)
	t.Cleanup(func() { command(t, "umount", mnt) })
	to := filepath.Join(mnt, "disk.img")
	disk := bytes.Repeat([]byte("full of data, no page of it is zero. "), 2<<20)
	r := New(fromURL("http://not.used", to)).RunFrom(t.Context(), inMemory(disk, "v1"))
	if r.Reason != task.DoesNotFit || strings.Contains(r.Detail, "-1") {
		t.Errorf("known size: %+v", r)
	}
	r = New(fromURL("http://not.used", to)).RunFrom(t.Context(), unranged{inMemory(disktest.Gzip(t, disk), "")})
	if r.Reason != task.DoesNotFit {
		t.Errorf("unknown size: %+v", r)
	}
	if names := leftovers(t, to); len(names) > 1 { // lost+found
		t.Errorf("left behind: %v", names)
	}
	// The claim was for 64 MiB and the filesystem took its share: the disk gets what is left.
	k := fromURL("http://not.used", to)
	k.Target.Size = 64 << 20
	r = New(k).RunFrom(t.Context(), inMemory(disk[:1<<20], "v1"))
	if r.Outcome != task.Done || r.Virtual >= 64<<20 || r.Virtual < 40<<20 {
		t.Errorf("grown: %+v", r)
	}
}

// TestOracle compares with what qemu-img makes of the same image.
func TestOracle(t *testing.T) {
	dir := t.TempDir()
	raw := filepath.Join(dir, "disk.raw")
	disk := disktest.Text(40<<20, 6)
	if err := os.WriteFile(raw, disk, 0o600); err != nil {
		t.Fatal(err)
	}
	for name, args := range map[string][]string{
		"qcow2":             {"-O", "qcow2"},
		"qcow2 -c":          {"-O", "qcow2", "-c"},
		"qcow2 zstd":        {"-O", "qcow2", "-c", "-o", "compression_type=zstd"},
		"qcow2 512":         {"-O", "qcow2", "-o", "cluster_size=512"},
		"qcow2 2M":          {"-O", "qcow2", "-c", "-o", "cluster_size=2M"},
		"qcow2 extended":    {"-O", "qcow2", "-o", "extended_l2=on,cluster_size=128k"},
		"qcow2 v2":          {"-O", "qcow2", "-o", "compat=0.10"},
		"vmdk":              {"-O", "vmdk"},
		"vmdk stream":       {"-O", "vmdk", "-o", "subformat=streamOptimized"},
		"vdi":               {"-O", "vdi"},
		"vhd":               {"-O", "vpc", "-o", "force_size=on"},
		"vhd fixed":         {"-O", "vpc", "-o", "subformat=fixed,force_size=on"},
		"vhdx":              {"-O", "vhdx"},
		"qcow2 preallocate": {"-O", "qcow2", "-o", "preallocation=metadata"},
	} {
		t.Run(name, func(t *testing.T) {
			image := filepath.Join(t.TempDir(), "image")
			command(t, "qemu-img", append(append([]string{"convert", "-f", "raw"}, args...), raw, image)...)
			file, err := os.ReadFile(image)
			if err != nil {
				t.Fatal(err)
			}
			for how, blob := range map[string]source.Blob{
				"ranges": inMemory(file, "v1"), "stream": unranged{inMemory(file, "")}, "gz": inMemory(disktest.Gzip(t, file), "v1"),
			} {
				to := filepath.Join(t.TempDir(), "disk.img")
				r := New(fromURL("http://not.used", to)).RunFrom(t.Context(), blob)
				if r.Outcome != task.Done {
					t.Errorf("%s: %+v", how, r)
					continue
				}
				wantDisk(t, to, disk, len(disk))
			}
		})
	}
}

// TestTargetFails fills a device whose medium cannot hold what it promises: in the middle its writes begin to fail.
func TestTargetFails(t *testing.T) {
	medium := loopDevice(t, 24<<20)
	command(t, "mkfs.ext4", "-q", medium)
	mnt := t.TempDir()
	command(t, "mount", medium, mnt)
	t.Cleanup(func() { command(t, "umount", mnt) })
	backing := filepath.Join(mnt, "backing")
	command(t, "truncate", "--size", "64M", backing)
	dev := command(t, "losetup", "--find", "--show", backing)
	t.Cleanup(func() { command(t, "losetup", "--detach", dev) })
	disk := bytes.Repeat([]byte("full of data, no page of it is zero. "), 1<<20)
	for name, blob := range map[string]source.Blob{"ranges": inMemory(disk, "v1"), "stream": unranged{inMemory(disktest.Gzip(t, disk), "")}} {
		r := New(fromURL("http://not.used", dev)).RunFrom(t.Context(), blob)
		if r.Outcome == task.Done || r.Reason != task.TargetFailed && r.Reason != task.DoesNotFit {
			t.Errorf("%s: %+v", name, r)
		}
	}
}

// TestDiskGetsWhatFits: a blank disk on a new filesystem is never refused, and is as large as was asked for or as there is room;
// beside other files the size stands. Sizes are those of claims, less what is configured for the filesystem.
func TestDiskGetsWhatFits(t *testing.T) {
	kinds := map[string][]string{"ext4": {"mkfs.ext4", "-q", "-m", "0"}, "reserved": {"mkfs.ext4", "-q"}, "xfs": {"mkfs.xfs", "-q"}}
	for name, mkfs := range kinds {
		for _, mib := range []int64{16, 32, 64, 100, 128, 200, 300, 512, 1024, 2048, 4096} {
			if name == "xfs" && mib < 300 {
				continue
			}
			t.Run(fmt.Sprint(name, mib), func(t *testing.T) {
				mnt, image := t.TempDir(), filepath.Join(t.TempDir(), "image")
				command(t, "truncate", "-s", fmt.Sprint(mib<<20), image)
				command(t, mkfs[0], append(mkfs[1:len(mkfs):len(mkfs)], image)...)
				command(t, "mount", "-o", "loop", image, mnt)
				t.Cleanup(func() { command(t, "umount", mnt) })
				asked := mib << 20 * 94 / 100 >> 20 << 20
				k := task.Task{Version: task.Version, Source: task.Source{Blank: &task.Blank{}},
					Target: task.Target{Path: filepath.Join(mnt, "disk.img"), Content: task.Disk, Size: asked}}
				r := New(k).Run(t.Context())
				if r.Outcome != task.Done || r.Virtual > asked || r.Virtual < asked*2/3 || (r.Virtual < asked) != (r.Detail != "") {
					t.Fatalf("asked for %d: %+v", asked, r)
				}
				var left unix.Statfs_t
				if err := unix.Statfs(mnt, &left); err != nil || r.Virtual > int64(left.Bavail)*left.Bsize*99/100 {
					t.Errorf("a disk of %d leaves nothing of %d blocks to the filesystem, %v", r.Virtual, left.Bavail, err)
				}
				if r.Virtual == asked {
					return
				}
				if err := os.Remove(k.Target.Path); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(mnt, "other"), []byte("x"), 0o600); err != nil {
					t.Fatal(err)
				}
				if r := New(k).Run(t.Context()); r.Outcome != task.Done && r.Reason != task.DoesNotFit {
					t.Errorf("beside another file: %+v", r)
				}
			})
		}
	}
}

// TestBlankDevice: a device that was used before reads as zeroes, whatever its size, and with preallocation all of its blocks are there.
func TestBlankDevice(t *testing.T) {
	for name, c := range map[string]struct {
		size        int
		preallocate bool
	}{"plain": {24 << 20, false}, "preallocated": {24 << 20, true}, "odd size": {9<<20 + 512, false}, "odd and preallocated": {9<<20 + 512, true}} {
		t.Run(name, func(t *testing.T) {
			dev := loopDevice(t, c.size)
			work := New(task.Task{Version: task.Version, Source: task.Source{Blank: &task.Blank{}}, Claim: "claim-1",
				Target: task.Target{Path: dev, Content: task.Disk, Preallocate: c.preallocate}})
			r := work.Run(t.Context())
			if r.Outcome != task.Done || r.Virtual != int64(c.size) {
				t.Fatalf("report %+v", r)
			}
			if p := work.Progress(); p.Total != int64(c.size) || p.Done != p.Total || p.Percent != 100 {
				t.Errorf("progress %+v", p)
			}
			wantOnDevice(t, dev, nil, c.size)
			backing := command(t, "losetup", "--noheadings", "--output", "BACK-FILE", dev)
			var st unix.Stat_t
			if err := unix.Stat(backing, &st); err != nil {
				t.Fatal(err)
			}
			if full := st.Blocks*512 >= int64(c.size)&^4095; c.preallocate && !full {
				t.Errorf("%d of %d bytes are allocated", st.Blocks*512, c.size)
			}
		})
	}
}
