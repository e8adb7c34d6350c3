package format_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/formattest"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// TestDamageThatShows: bytes that were lost or changed in what an import does not need mean that others were too. QEMU refuses
// these files; the mutated files of TestMutatedFiles showed that we read zeroes from them.
func TestDamageThatShows(t *testing.T) {
	t.Parallel()
	qcow2 := append(formattest.QCOW2{}.Bytes(), make([]byte, 4096)...)
	vmdk := formattest.StreamVMDK(exported())
	for name, c := range map[string]struct {
		file   []byte
		kind   format.Kind
		change func(p []byte)
		says   string
	}{
		"qcow2 refcount table":   {qcow2, format.QCOW2, func(p []byte) { p[55] = 9 }, "refcount table is at byte"},
		"qcow2 snapshot table":   {qcow2, format.QCOW2, func(p []byte) { p[71] = 9 }, "snapshot table is at byte"},
		"qcow2 header extension": {qcow2, format.QCOW2, func(p []byte) { copy(p[112:], "\x12\x34\x56\x78\x00\xff\xff\xff") }, "header extension at byte 112"},
		"vmdk sent as text":      {vmdk, format.VMDK, func(p []byte) { p[75] = '\n' }, "transfer as text"},
		"vmdk descriptor":        {vmdk, format.VMDK, func(p []byte) { p[bytes.Index(p, []byte("# Disk"))] = 0 }, `no "# Disk DescriptorFile"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if _, err := random(c.kind, extent.File{ReaderAt: bytes.NewReader(c.file), Size: int64(len(c.file))}); err != nil {
				t.Fatalf("as it was: %v", err)
			}
			p := bytes.Clone(c.file)
			c.change(p)
			_, err := random(c.kind, extent.File{ReaderAt: bytes.NewReader(p), Size: int64(len(p))})
			_, streamed := format.Stream(context.Background(), c.kind, bytes.NewReader(p), &formattest.Memory{})
			for how, err := range map[string]error{"at random": err, "streamed": streamed} {
				var bad *task.Error
				if !errors.As(err, &bad) || bad.Reason != task.BadImage || !strings.Contains(err.Error(), c.says) {
					t.Errorf("%s: %v, want BadImage with %q", how, err, c.says)
				}
			}
		})
	}
}
