package expand

import (
	"bytes"
	"compress/zlib"
	"errors"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer/format"
)

// TestGrainBeyondTheDisk: the last grain of a disk may hold more than the disk has, and its sum is checked all the same: a damaged
// grain that decodes to more than it should was taken for one.
func TestGrainBeyondTheDisk(t *testing.T) {
	want := bytes.Repeat([]byte("a grain of a disk "), 4<<10)[:64<<10]
	var b bytes.Buffer
	w := zlib.NewWriter(&b)
	if _, err := w.Write(want); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	for _, size := range []int64{64 << 10, 64<<10 - 512, 512} {
		x := New()
		e := format.Extent{Size: size, Stored: int64(b.Len()), Coding: format.Zlib}
		got, err := x.Expand(e, b.Bytes())
		if err != nil || !bytes.Equal(got, want[:size]) {
			t.Errorf("%d bytes: %v", size, err)
		}
		damaged := bytes.Clone(b.Bytes())
		damaged[len(damaged)-1] ^= 1
		var bad *task.Error
		if _, err := x.Expand(e, damaged); !errors.As(err, &bad) || bad.Reason != task.BadImage {
			t.Errorf("%d bytes with a wrong sum: %v", size, err)
		}
		x.Close()
	}
}
