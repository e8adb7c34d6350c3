//go:build host

package format_test

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/formattest"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// What QEMU makes and an import must refuse, because it needs another file or a key.
func TestQEMUsOwnImagesThatNeedMoreAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args   string // of qemu-img create; DIR stands for the directory, and a raw disk is in DIR/base
		kind   format.Kind
		reason task.Reason
		says   string
	}{
		"qcow2 with a backing file": {"-f qcow2 -b DIR/base -F raw DIR/image", format.QCOW2, task.UnsafeImage, "DIR/base"},
		"qcow2 version 2 with a backing file": {"-f qcow2 -o compat=0.10 -b DIR/base -F raw DIR/image", format.QCOW2,
			task.UnsafeImage, "DIR/base"},
		"qcow2 with a data file": {"-f qcow2 -o data_file=DIR/data DIR/image 1M", format.QCOW2, task.UnsafeImage, "DIR/data"},
		"qcow2 with a raw data file": {"-f qcow2 -o data_file=DIR/data,data_file_raw=on DIR/image 1M", format.QCOW2,
			task.UnsafeImage, "DIR/data"},
		// Not luks: qemu-img times its key derivation first and gives up on a busy machine. The unit tests have luks.
		"encrypted qcow2": {"-f qcow2 --object secret,id=s,data=secret -o encrypt.format=aes,encrypt.key-secret=s DIR/image 1M",
			format.QCOW2, task.UnsupportedImage, "encrypted"},
		"vmdk with a parent":        {"-f vmdk -b DIR/base.vmdk -F vmdk DIR/image", format.VMDK, task.UnsafeImage, "base.vmdk"},
		"vmdk monolithicFlat":       {"-f vmdk -o subformat=monolithicFlat DIR/image 1M", format.VMDK, task.UnsafeImage, "FLAT"},
		"vmdk twoGbMaxExtentSparse": {"-f vmdk -o subformat=twoGbMaxExtentSparse DIR/image 3G", format.VMDK, task.UnsafeImage, "s001"},
		"vmdk twoGbMaxExtentFlat":   {"-f vmdk -o subformat=twoGbMaxExtentFlat DIR/image 3G", format.VMDK, task.UnsafeImage, "f001"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			run(t, "qemu-img", "create", "-q", "-f", "raw", filepath.Join(dir, "base"), "1M")
			run(t, "qemu-img", "create", "-q", "-f", "vmdk", filepath.Join(dir, "base.vmdk"), "1M")
			args := append([]string{"create", "-q"}, strings.Fields(strings.ReplaceAll(c.args, "DIR", dir))...)
			run(t, "qemu-img", args...)
			file, err := os.ReadFile(filepath.Join(dir, "image"))
			if err != nil {
				t.Fatal(err)
			}
			if got := format.Detect(file, file[len(file)-min(len(file), 512):], int64(len(file))); got != c.kind {
				t.Fatalf("detected %s, want %s", got, c.kind)
			}
			_, err = random(c.kind, extent.File{ReaderAt: bytes.NewReader(file), Size: int64(len(file))})
			_, streamErr := format.Stream(context.Background(), c.kind, bytes.NewReader(file), &formattest.Memory{})
			for how, err := range map[string]error{"at random": err, "streamed": streamErr} {
				var bad *task.Error
				if says := strings.ReplaceAll(c.says, "DIR", dir); !errors.As(err, &bad) || bad.Reason != c.reason ||
					!strings.Contains(err.Error(), says) {
					t.Errorf("%s: refused with %v, want %s and %q", how, err, c.reason, says)
				}
			}
		})
	}
}
