//go:build host

package format_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/berth-vm/berth/internal/testing/formattest"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// run runs a command of qemu-utils and fails the test with its words.
func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// made is an image qemu-img makes: how it is created, and whether it is written by a conversion or by qemu-io.
type made struct {
	name    string
	fmt     string // as qemu-img calls it
	options string
	size    string
	convert bool     // from a raw disk, else created empty and written to
	args    []string // of convert
	before  []string // qemu-img commands after the first writes, IMAGE stands for the file
	kind    format.Kind
}

func qcow2s() []made {
	var list []made
	add := func(m made) {
		m.fmt, m.kind = "qcow2", format.QCOW2
		m.name = "qcow2 " + m.name
		list = append(list, m)
	}
	for _, bits := range []int{9, 12, 14, 16, 18, 21} {
		add(made{name: fmt.Sprintf("cluster_bits %d", bits), options: fmt.Sprintf("cluster_size=%d", 1<<bits)})
		add(made{name: fmt.Sprintf("cluster_bits %d zlib", bits), options: fmt.Sprintf("cluster_size=%d", 1<<bits),
			convert: true, args: []string{"-c"}})
	}
	for _, bits := range []int{14, 16, 21} {
		o := fmt.Sprintf("extended_l2=on,cluster_size=%d", 1<<bits)
		add(made{name: fmt.Sprintf("extended_l2 %d", bits), options: o})
		add(made{name: fmt.Sprintf("extended_l2 %d zstd", bits), options: o + ",compression_type=zstd", convert: true,
			args: []string{"-c"}})
	}
	for _, compat := range []string{"0.10", "1.1"} {
		add(made{name: "compat " + compat, options: "compat=" + compat})
		add(made{name: "compat " + compat + " compressed", options: "compat=" + compat, convert: true, args: []string{"-c"}})
	}
	for _, p := range []string{"off", "metadata", "falloc", "full"} {
		add(made{name: "preallocation " + p, options: "preallocation=" + p})
	}
	for _, b := range []int{1, 2, 8, 16, 64} {
		add(made{name: fmt.Sprintf("refcount_bits %d", b), options: fmt.Sprintf("refcount_bits=%d", b)})
	}
	add(made{name: "zstd", options: "compression_type=zstd", convert: true, args: []string{"-c"}})
	add(made{name: "lazy_refcounts", options: "lazy_refcounts=on"})
	add(made{name: "out of order", convert: true, args: []string{"-W", "-m", "16"}})
	add(made{name: "compressed out of order", convert: true, args: []string{"-c", "-W", "-m", "16"}})
	add(made{name: "odd size", size: "70000128", convert: true})
	add(made{name: "odd size compressed", size: "70000128", convert: true, args: []string{"-c"}})
	add(made{name: "odd size extended_l2", size: "70000128", options: "extended_l2=on"})
	add(made{name: "snapshots", before: []string{"snapshot -c one IMAGE", "snapshot -c two IMAGE"}})
	add(made{name: "snapshots small clusters", options: "cluster_size=4096", before: []string{"snapshot -c one IMAGE"}})
	add(made{name: "grown", before: []string{"resize -q IMAGE 3G"}, size: "100M"})
	add(made{name: "bitmap", before: []string{"bitmap --add --enable IMAGE changes"}})
	return list
}

func others() []made {
	return []made{
		{name: "raw", fmt: "raw", kind: format.Raw},
		{name: "vhd dynamic", fmt: "vpc", kind: format.VHD},
		{name: "vhd dynamic converted", fmt: "vpc", convert: true, kind: format.VHD},
		{name: "vhd dynamic exact", fmt: "vpc", options: "force_size=on", kind: format.VHD},
		{name: "vhd fixed", fmt: "vpc", options: "subformat=fixed", kind: format.VHD},
		{name: "vhd fixed exact", fmt: "vpc", options: "subformat=fixed,force_size=on", kind: format.VHD},
		{name: "vhd large geometry", fmt: "vpc", size: "140G", kind: format.VHD},
		{name: "vdi dynamic", fmt: "vdi", kind: format.VDI},
		{name: "vdi dynamic converted", fmt: "vdi", convert: true, kind: format.VDI},
		{name: "vdi odd size", fmt: "vdi", size: "70000128", kind: format.VDI},
		{name: "vdi fixed", fmt: "vdi", options: "static=on", kind: format.VDI},
		{name: "vhdx dynamic", fmt: "vhdx", kind: format.VHDX},
		{name: "vhdx dynamic converted", fmt: "vhdx", convert: true, kind: format.VHDX},
		{name: "vhdx small blocks", fmt: "vhdx", options: "block_size=1M", size: "9G", kind: format.VHDX},
		{name: "vhdx large blocks", fmt: "vhdx", options: "block_size=64M", kind: format.VHDX},
		{name: "vhdx fixed", fmt: "vhdx", options: "subformat=fixed", kind: format.VHDX},
		{name: "vhdx block states", fmt: "vhdx", options: "block_state_zero=off", kind: format.VHDX},
		{name: "vhdx large log", fmt: "vhdx", options: "log_size=4M", kind: format.VHDX},
		{name: "vmdk sparse", fmt: "vmdk", kind: format.VMDK},
		{name: "vmdk sparse converted", fmt: "vmdk", convert: true, kind: format.VMDK},
		{name: "vmdk sparse odd size", fmt: "vmdk", size: "70000128", kind: format.VMDK},
		{name: "vmdk sparse zeroed grain", fmt: "vmdk", options: "zeroed_grain=on", kind: format.VMDK},
		{name: "vmdk sparse large", fmt: "vmdk", size: "300G", kind: format.VMDK},
		{name: "vmdk version 6", fmt: "vmdk", options: "compat6=on", kind: format.VMDK},
		{name: "vmdk streamOptimized", fmt: "vmdk", options: "subformat=streamOptimized", convert: true, kind: format.VMDK},
		{name: "vmdk streamOptimized odd size", fmt: "vmdk", options: "subformat=streamOptimized", size: "70000128",
			convert: true, kind: format.VMDK},
	}
}

// make makes the image and the raw disk QEMU reads from it.
func (m made) make(t *testing.T) (image, disk string) {
	t.Helper()
	dir := t.TempDir()
	image, disk = filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	size := m.size
	if size == "" {
		size = "70M"
	}
	if m.convert {
		from := filepath.Join(dir, "from")
		run(t, "qemu-img", "create", "-q", "-f", "raw", from, size)
		scatter(t, "raw", from, 1)
		args := append([]string{"convert", "-q", "-f", "raw", "-O", m.fmt}, m.args...)
		if m.options != "" {
			args = append(args, "-o", m.options)
		}
		run(t, "qemu-img", append(args, from, image)...)
	} else {
		args := []string{"create", "-q", "-f", m.fmt}
		if m.options != "" {
			args = append(args, "-o", m.options)
		}
		run(t, "qemu-img", append(args, image, size)...)
		scatter(t, m.fmt, image, 1)
		for _, b := range m.before {
			run(t, "qemu-img", strings.Fields(strings.ReplaceAll(b, "IMAGE", image))...)
		}
		scatter(t, m.fmt, image, 40)
	}
	run(t, "qemu-img", "convert", "-q", "-f", m.fmt, "-O", "raw", image, disk)
	return image, disk
}

// scatter writes patterns all over the first 60 MiB, in an order that makes tables come after data, and some zeroes.
func scatter(t *testing.T, kind, image string, seed uint64) {
	t.Helper()
	var args []string
	x := seed
	for i := range 60 {
		x = x*6364136223846793005 + 1442695040888963407
		at := (x >> 33) % (60 << 20) &^ 511
		n := (x>>13)%(300<<10)&^511 + 512
		op := fmt.Sprintf("write -q -P %d %d %d", 1+i%250, at, n)
		if zeroes := kind == "raw" || kind == "qcow2" || kind == "vmdk"; zeroes && i%9 == 8 {
			op = fmt.Sprintf("write -q -z %d %d", at, n)
		}
		args = append(args, "-c", op)
	}
	run(t, "qemu-io", append(args, "-f", kind, image)...)
}

func TestQEMUReadsTheSameDisk(t *testing.T) {
	t.Parallel()
	for _, m := range append(qcow2s(), others()...) {
		t.Run(m.name, func(t *testing.T) {
			t.Parallel()
			image, disk := m.make(t)
			sameDisk(t, m.kind, image, disk)
		})
	}
}

// The builder in formattest makes what VMware's tools make; QEMU must agree that it is an image of that disk.
func TestQEMUReadsTheSameExportedVMDK(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	image, disk := filepath.Join(dir, "image"), filepath.Join(dir, "disk")
	if err := os.WriteFile(image, formattest.StreamVMDK(exported()), 0o644); err != nil {
		t.Fatal(err)
	}
	run(t, "qemu-img", "convert", "-q", "-f", "vmdk", "-O", "raw", image, disk)
	sameDisk(t, format.VMDK, image, disk)
}

func sameDisk(t *testing.T, kind format.Kind, image, disk string) {
	t.Helper()
	file, err := os.Open(image)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	size := info.Size()
	head, tail := make([]byte, min(size, format.HeadSize)), make([]byte, min(size, format.TailSize))
	f := extent.File{ReaderAt: file, Size: size}
	if err := f.Fill(head, 0, "head"); err != nil {
		t.Fatal(err)
	}
	if err := f.Fill(tail, size-int64(len(tail)), "tail"); err != nil {
		t.Fatal(err)
	}
	if got := format.Detect(head, tail, size); got != kind {
		t.Fatalf("detected %s, want %s", got, kind)
	}
	img, err := format.Open(kind, file, size)
	if err != nil {
		t.Fatal(err)
	}
	got, err := formattest.Assemble(context.Background(), img, f, 4<<20)
	if err != nil {
		t.Fatal(err)
	}
	want := readDisk(t, disk)
	if diff := got.Diff(want); diff != "" {
		t.Fatal(diff)
	}
	kind = format.Detect(head, nil, -1)
	for _, c := range []struct {
		chunk int64
		crash int
	}{{1 << 20, 0}, {100_003, 0}, {333_333, 7}} {
		out, err := formattest.Stream(context.Background(), kind, f, c.chunk, c.crash)
		if err != nil {
			t.Fatalf("stream in chunks of %d with a crash every %d: %v", c.chunk, c.crash, err)
		}
		if diff := out.Disk.Diff(want); diff != "" {
			t.Fatalf("stream in chunks of %d with a crash every %d: %s", c.chunk, c.crash, diff)
		}
	}
}

// readDisk reads a sparse raw disk.
func readDisk(t *testing.T, path string) *formattest.Disk {
	t.Helper()
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	info, err := file.Stat()
	if err != nil {
		t.Fatal(err)
	}
	d, err := formattest.ReadDisk(file, info.Size(), func(from int64) (int64, int64) {
		start, err := unix.Seek(int(file.Fd()), from, unix.SEEK_DATA)
		if err != nil {
			return info.Size(), info.Size()
		}
		end, err := unix.Seek(int(file.Fd()), start, unix.SEEK_HOLE)
		if err != nil {
			t.Fatal(err)
		}
		return start, end
	})
	if err != nil {
		t.Fatal(err)
	}
	return d
}
