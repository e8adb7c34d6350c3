package format_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/formattest"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// fuzzDisk bounds the disks a fuzzer makes, so that it tries many small ones rather than a few large ones.
const fuzzDisk = 4 << 20

// agree reads a file at random and as a stream, whole and with a crash in the middle. Nothing may panic. What the stream
// accepts must be accepted at random too, and be the same disk; the stream may refuse what shares bytes.
func agree(t *testing.T, kind format.Kind, file []byte) {
	f := extent.File{ReaderAt: bytes.NewReader(file), Size: int64(len(file))}
	m, err := format.Open(kind, f.ReaderAt, f.Size)
	if err == nil && m.Size() > fuzzDisk {
		return
	}
	var want *formattest.Disk
	if err == nil {
		want, err = formattest.Assemble(context.Background(), m, f, 1<<16)
	}
	reasoned(t, err)
	if err == nil {
		samePlaces(t, kind, file, m)
	}
	crashes := []int{0, 1}
	if len(file) > 1<<20 {
		crashes = crashes[:1] // a head of megabytes is read again after each crash, which is right but slow
	}
	for _, crash := range crashes {
		out, failed := formattest.Stream(context.Background(), kind, f, max(1<<12, f.Size/16), crash)
		reasoned(t, failed)
		switch {
		case failed != nil:
		case err != nil:
			t.Fatalf("the stream was taken, but at random it is refused: %v", err)
		case out.Disk.Diff(want) != "":
			t.Fatalf("the stream gives another disk: %s", out.Disk.Diff(want))
		}
	}
}

// reasoned fails unless an error has a reason: bad input must not be reported as a fault of the network or the disk.
func reasoned(t *testing.T, err error) {
	t.Helper()
	var bad *task.Error
	if err == nil || errors.As(err, &bad) && bad.Reason.Outcome() == task.Fatal || formattest.Tolerable(err) {
		return
	}
	t.Fatalf("refused without a reason: %v", err)
}

func FuzzQCOW2(f *testing.F) {
	packed := formattest.Deflated(bytes.Repeat([]byte{7}, 512))
	for _, q := range []formattest.QCOW2{
		{},
		{Backing: "/etc/passwd"},
		{Incompatible: 4, DataFile: "/etc/shadow"},
		{L1: []uint64{1024}, Clusters: map[uint64][]byte{2: formattest.Words(1536, 0, 1, 2048), 3: packed, 4: packed}},
		{L1: []uint64{1536}, Clusters: map[uint64][]byte{2: packed, 3: formattest.Words(1<<62|1024, 1<<62|1<<61|1028, 1024)}},
		{ClusterBits: 14, Incompatible: 16, L1: []uint64{1 << 15},
			Clusters: map[uint64][]byte{2: formattest.Words(3<<14, 0xf0000000f, 4<<14, 0xffff0000), 4: packed}},
	} {
		f.Add(q.Bytes())
	}
	f.Add(readSample(f, "qcow2-zlib-tiny"))
	f.Fuzz(func(t *testing.T, file []byte) { agree(t, format.QCOW2, file) })
}

func FuzzVMDK(f *testing.F) {
	f.Add(descriptorIn(flatDescriptor, 2048))
	f.Add([]byte(flatDescriptor))
	f.Add(formattest.StreamVMDK(bytes.Repeat([]byte("berth"), 1<<10)))
	f.Add(readSample(f, "vmdk-stream"))
	f.Fuzz(func(t *testing.T, file []byte) { agree(t, format.VMDK, file) })
}

func FuzzVDI(f *testing.F) {
	f.Add(vdi(1, 1<<20, 1))
	small := vdi(1, 3*4096, 3)
	binary.LittleEndian.PutUint32(small[0x178:], 4096)
	copy(small[512:], "\x01\x00\x00\x00\xff\xff\xff\xff\x00\x00\x00\x00")
	f.Add(append(small, bytes.Repeat([]byte("vdi!"), 2048)...))
	f.Fuzz(func(t *testing.T, file []byte) { agree(t, format.VDI, file) })
}

func FuzzVHD(f *testing.F) {
	f.Add(vhd(3, 1<<20, 512, 2048))
	f.Add(vhd(4, 1<<20, 512, 2048))
	small := vhd(3, 4096, 1024, 4)
	copy(small[1536:], "\x00\x00\x00\x04\xff\xff\xff\xff\x00\x00\x00\x08")
	f.Add(append(small, bytes.Repeat([]byte("vhd!"), 2048)...))
	f.Fuzz(func(t *testing.T, file []byte) { agree(t, format.VHD, sealVHD(bytes.Clone(file))) })
}

// FuzzVHDX changes a real image, since an empty one already has megabytes: the input is a list of places and bytes.
func FuzzVHDX(f *testing.F) {
	base := readSample(f, "vhdx-dynamic")
	patch := func(at uint32, p ...byte) []byte {
		return append(binary.BigEndian.AppendUint32(nil, at), append([]byte{byte(len(p))}, p...)...)
	}
	f.Add([]byte{})
	f.Add(patch(sampleLogID, 1, 2, 3, 4))
	f.Add(patch(192<<10+16+16, 0, 0, 0, 0, 1)) // a region that is elsewhere
	f.Add(patch(sampleParams, 0, 0, 0x20, 0, 2))
	f.Add(append(patch(sampleTable, 7), patch(sampleTable+8, 6, 0, 0x50)...))
	f.Fuzz(func(t *testing.T, patches []byte) {
		file := bytes.Clone(base)
		for len(patches) >= 5 {
			at, n := int(binary.BigEndian.Uint32(patches))%(4<<20), int(patches[4])
			patches = patches[5:]
			n = min(n, len(patches))
			copy(file[at:], patches[:n])
			patches = patches[n:]
		}
		agree(t, format.VHDX, sealVHDX(file))
	})
}

// sealVHDX mends the checksums of headers and region tables.
func sealVHDX(p []byte) []byte {
	for at, n := range map[int]int{64 << 10: 4 << 10, 128 << 10: 4 << 10, 192 << 10: 64 << 10, 256 << 10: 64 << 10} {
		b := p[at : at+n]
		clear(b[4:8])
		binary.LittleEndian.PutUint32(b[4:], crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)))
	}
	return p
}

// FuzzUnsigned holds streams without a signature against what can be seen at random.
func FuzzUnsigned(f *testing.F) {
	f.Add([]byte("raw"), uint16(1))
	f.Add(append(make([]byte, 4096), fixedFooter(4096)...), uint16(700))
	f.Fuzz(func(t *testing.T, file []byte, chunk uint16) {
		kind := format.Detect(file, file[max(0, len(file)-format.TailSize):], int64(len(file)))
		if format.Detect(file, nil, -1) != format.Unsigned {
			return
		}
		e := extent.File{ReaderAt: bytes.NewReader(file), Size: int64(len(file))}
		want, err := random(kind, e)
		if err != nil {
			t.Fatal(err)
		}
		out, err := formattest.Stream(context.Background(), format.Unsigned, e, int64(chunk)+1, 3)
		if err != nil {
			t.Fatal(err)
		}
		if diff := out.Disk.Diff(want); diff != "" {
			t.Fatalf("%s: %s", kind, diff)
		}
	})
}

// FuzzResume gives Resume checkpoints that are damaged. It may refuse them or continue, but not panic.
func FuzzResume(f *testing.F) {
	file := readSample(f, "qcow2-zlib-tiny")
	out := &formattest.Memory{}
	d, err := format.NewDecoder(format.QCOW2, out)
	if err != nil {
		f.Fatal(err)
	}
	for len(file) > 0 {
		n := min(len(file), 20_000)
		if _, err := d.Write(file[:n]); err != nil {
			f.Fatal(err)
		}
		if state := d.State(); state != nil {
			f.Add(state)
		}
		file = file[n:]
	}
	f.Fuzz(func(_ *testing.T, state []byte) {
		d, err := format.Resume(state, &formattest.Memory{Parks: bytes.Clone(out.Parks), Limit: fuzzDisk})
		if err != nil {
			return
		}
		if _, err := d.Write(make([]byte, 100_000)); err != nil {
			return
		}
		_, _ = d.Finish(context.Background()) // what it says does not matter here
	})
}
