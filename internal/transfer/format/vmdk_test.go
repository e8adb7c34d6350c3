package format_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/formattest"
	"github.com/berth-vm/berth/internal/transfer/format"
)

// exported returns a disk of 100 MiB and some sectors with data in three of its four grain tables.
func exported() []byte {
	disk := make([]byte, 100<<20+3*512)
	for _, at := range []int{0, 63 << 10, 70 << 20, len(disk) - 700} {
		copy(disk[at:], bytes.Repeat([]byte{byte(at>>16) + 1, 2, 3}, 200))
	}
	return disk
}

func TestSuiteOnStreamOptimizedVMDK(t *testing.T) {
	t.Parallel()
	disk := exported()
	d := formattest.NewDisk(int64(len(disk)))
	if err := d.Write(disk, 0); err != nil {
		t.Fatal(err)
	}
	formattest.Suite(t, formattest.Sample{Kind: format.VMDK, File: formattest.StreamVMDK(disk), Sum: d.Sum()})
}

// A stream is placed by its markers; the tables at the end must not say otherwise.
func TestStreamOptimizedVMDKWhoseTablesContradictItsMarkers(t *testing.T) {
	t.Parallel()
	file := formattest.StreamVMDK(exported())
	binary.LittleEndian.PutUint64(file[128*512:], 128) // the first grain claims to be the second
	_, err := format.Stream(context.Background(), format.VMDK, bytes.NewReader(file), &formattest.Memory{})
	var bad *task.Error
	if !errors.As(err, &bad) || bad.Reason != task.BadImage {
		t.Fatalf("it is refused with %v", err)
	}
}

func TestStreamOptimizedVMDKParksNoData(t *testing.T) {
	t.Parallel()
	file := formattest.StreamVMDK(bytes.Repeat([]byte("0123456789abcdef"), 1<<19))
	out := &formattest.Memory{}
	if _, err := format.Stream(context.Background(), format.VMDK, bytes.NewReader(file), out); err != nil {
		t.Fatal(err)
	}
	if len(out.Parks) > 80<<10 {
		t.Fatalf("%d bytes of %d were parked, tables and header are less than 80 KiB", len(out.Parks), len(file))
	}
}
