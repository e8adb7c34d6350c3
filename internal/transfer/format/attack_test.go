package format_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/testing/formattest"
	"github.com/berth-vm/berth/internal/transfer/format"
	"github.com/berth-vm/berth/internal/transfer/format/extent"
)

// attack is an image in the shape of a known attack and how it must be refused.
type attack struct {
	name   string
	kind   format.Kind
	file   []byte
	reason task.Reason
	says   []string
}

// descriptorIn returns a sparse VMDK with a descriptor inside.
func descriptorIn(text string, capacity uint64) []byte {
	le := binary.LittleEndian
	p := make([]byte, 64<<10)
	copy(p, "KDMV")
	le.PutUint32(p[4:], 1)
	le.PutUint64(p[12:], capacity)
	le.PutUint64(p[20:], 128)
	le.PutUint64(p[28:], 1)
	le.PutUint64(p[36:], 20)
	le.PutUint32(p[44:], 512)
	le.PutUint64(p[56:], 26)
	le.PutUint64(p[64:], 128)
	copy(p[512:], text)
	return p
}

const flatDescriptor = "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n" +
	"RW 2048 FLAT \"/etc/shadow\" 0\n"

func attacks() []attack {
	const huge = 1 << 62
	return []attack{
		{"CVE-2024-32498 external data file", format.QCOW2,
			formattest.QCOW2{Incompatible: 4, DataFile: "/etc/shadow"}.Bytes(), task.UnsafeImage, []string{`"/etc/shadow"`}},
		{"CVE-2024-32498 external data file without a name", format.QCOW2,
			formattest.QCOW2{Incompatible: 4}.Bytes(), task.UnsafeImage, []string{"external file"}},
		{"CVE-2024-32498 json: data file", format.QCOW2,
			formattest.QCOW2{Incompatible: 4, DataFile: `json:{"driver":"file","filename":"/dev/sda"}`}.Bytes(), task.UnsafeImage,
			[]string{`/dev/sda`}},
		{"CVE-2015-5163 backing file", format.QCOW2,
			formattest.QCOW2{Backing: "/etc/passwd"}.Bytes(), task.UnsafeImage,
			[]string{`is invalid because it has invalid backing file "/etc/passwd"`}},
		{"CVE-2015-5163 backing file in version 2", format.QCOW2,
			formattest.QCOW2{Version: 2, Backing: "/etc/passwd"}.Bytes(), task.UnsafeImage, []string{`"/etc/passwd"`}},
		{"CVE-2015-5163 backing file with a name that plays tricks on a terminal", format.QCOW2,
			formattest.QCOW2{Backing: "\x1b[2Jall is well\n"}.Bytes(), task.UnsafeImage, []string{`\x1b[2Jall is well\n`}},
		{"CVE-2022-47951 descriptor file", format.VMDK, []byte(flatDescriptor), task.UnsafeImage,
			[]string{"monolithicFlat", "/etc/shadow"}},
		{"CVE-2022-47951 descriptor after comments", format.VMDK, []byte("#\n# Disk Descriptorfile\n" + flatDescriptor), task.UnsafeImage,
			[]string{"/etc/shadow"}},
		{"CVE-2022-47951 flat extent in a sparse file", format.VMDK, descriptorIn(flatDescriptor, 2048), task.UnsafeImage,
			[]string{"monolithicFlat", "/etc/shadow"}},
		{"CVE-2022-47951 flat extent in a file that says sparse", format.VMDK,
			descriptorIn(strings.ReplaceAll(flatDescriptor, "monolithicFlat", "monolithicSparse"), 2048), task.UnsafeImage,
			[]string{"/etc/shadow"}},
		{"CVE-2022-47951 header without a disk", format.VMDK, descriptorIn(flatDescriptor, 0), task.UnsafeImage, []string{"descriptor"}},
		{"CVE-2022-47951 two extents", format.VMDK,
			descriptorIn("createType=\"streamOptimized\"\nRW 8 SPARSE \"a\"\nRW 8 SPARSE \"/dev/sda\"\n", 16), task.UnsafeImage,
			[]string{"2 files", "/dev/sda"}},
		{"vmdk parent", format.VMDK,
			descriptorIn("parentCID=0badcafe\ncreateType=\"monolithicSparse\"\nparentFileNameHint=\"/etc/passwd\"\n", 16), task.UnsafeImage,
			[]string{`invalid backing file "/etc/passwd"`}},
		{"encrypted", format.QCOW2, formattest.QCOW2{Encryption: 2}.Bytes(), task.UnsupportedImage, []string{"encrypted"}},
		{"unknown feature", format.QCOW2, formattest.QCOW2{Incompatible: 1 << 40}.Bytes(), task.UnsupportedImage, []string{"bit 40"}},
		{"marked corrupt", format.QCOW2, formattest.QCOW2{Incompatible: 2}.Bytes(), task.BadImage, []string{"qemu-img check -r all"}},
		{"cluster_bits 63", format.QCOW2, formattest.QCOW2{ClusterBits: 63}.Bytes(), task.BadImage, []string{"63", "9 to 21"}},
		{"cluster_bits 8", format.QCOW2, formattest.QCOW2{ClusterBits: 8}.Bytes(), task.BadImage, []string{"9 to 21"}},
		{"virtual size 2^63", format.QCOW2, formattest.QCOW2{Size: 1 << 63, L1Entries: 1}.Bytes(), task.BadImage,
			[]string{"9223372036854775808"}},
		{"virtual size 2^63-1", format.QCOW2, formattest.QCOW2{Size: math.MaxInt64, L1Entries: 1}.Bytes(), task.BadImage,
			[]string{"9223372036854775807"}},
		{"L1 table of 32 GiB", format.QCOW2, formattest.QCOW2{L1Entries: math.MaxUint32}.Bytes(), task.BadImage, []string{"4294967295"}},
		{"L1 table at the end of the address space", format.QCOW2, formattest.QCOW2{L1Offset: 1<<64 - 512}.Bytes(), task.BadImage,
			[]string{"18446744073709551104"}},
		{"L1 table beyond the file", format.QCOW2, formattest.QCOW2{L1Offset: huge}.Bytes(), task.BadImage,
			[]string{"truncated", "4611686018427387904"}},
		{"L2 table beyond the file", format.QCOW2, formattest.QCOW2{L1: []uint64{1 << 50}}.Bytes(), task.BadImage,
			[]string{"truncated", "1125899906842624"}},
		{"L2 table off its cluster", format.QCOW2, formattest.QCOW2{ClusterBits: 12, L1: []uint64{512}}.Bytes(), task.BadImage,
			[]string{"byte 512", "4096"}},
		{"cluster beyond the file", format.QCOW2, formattest.QCOW2{L1: []uint64{1024},
			Clusters: map[uint64][]byte{2: formattest.Words(1 << 50)}}.Bytes(), task.BadImage, []string{"truncated", "1125899906842624"}},
		{"compressed cluster beyond the file", format.QCOW2, formattest.QCOW2{L1: []uint64{1024},
			Clusters: map[uint64][]byte{2: formattest.Words(1<<62 | 1<<40)}}.Bytes(), task.BadImage, []string{"truncated", "1099511627776"}},
		{"zero cluster in version 2", format.QCOW2, formattest.QCOW2{Version: 2, L1: []uint64{1024},
			Clusters: map[uint64][]byte{2: formattest.Words(1)}}.Bytes(), task.BadImage, []string{"version 3"}},
		{"vhd parent", format.VHD, vhd(4, 1<<20, 512, 2048), task.UnsafeImage, []string{"invalid backing file"}},
		{"vhd of 2^63 bytes", format.VHD, vhd(3, 1<<63, 512, 1), task.BadImage, []string{"9223372036854775808"}},
		{"vhd with too few entries", format.VHD, vhd(3, 1<<40, 512, 1), task.BadImage, []string{"1 entries"}},
		{"vdi with a parent", format.VDI, vdi(4, 1<<20, 1), task.UnsafeImage, []string{"invalid backing file"}},
		{"vdi of 2^63 bytes", format.VDI, vdi(1, 1<<63, 1), task.BadImage, []string{"9223372036854775808"}},
		{"vdi with too few blocks", format.VDI, vdi(1, 1<<40, 1), task.BadImage, []string{"1099511627776"}},
	}
}

// vhd returns a dynamic VHD without blocks.
func vhd(kind uint32, size uint64, block, entries uint32) []byte {
	be := binary.BigEndian
	p := make([]byte, 512+1024+4*int(min(entries, 1<<16)))
	copy(p, "conectix")
	be.PutUint64(p[16:], 512)
	copy(p[28:], "win ")
	be.PutUint64(p[48:], size)
	be.PutUint32(p[60:], kind)
	h := p[512:1536]
	copy(h, "cxsparse")
	be.PutUint64(h[16:], 1536)
	be.PutUint32(h[28:], entries)
	be.PutUint32(h[32:], block)
	for i := 1536; i < len(p); i++ {
		p[i] = 0xff
	}
	return sealVHD(p)
}

// sealVHD mends the checksums.
func sealVHD(p []byte) []byte {
	seal := func(b []byte, at int) {
		clear(b[at : at+4])
		var n uint32
		for _, c := range b {
			n += uint32(c)
		}
		binary.BigEndian.PutUint32(b[at:], ^n)
	}
	if len(p) >= 1536 {
		seal(p[512:1536], 36)
	}
	if len(p) >= 512 {
		seal(p[:512], 64)
	}
	return p
}

// vdi returns a VDI without blocks.
func vdi(kind uint32, size uint64, blocks uint32) []byte {
	le := binary.LittleEndian
	p := make([]byte, 1024)
	le.PutUint32(p[0x40:], 0xbeda107f)
	le.PutUint32(p[0x44:], 0x00010001)
	le.PutUint32(p[0x4c:], kind)
	le.PutUint32(p[0x154:], 512)
	le.PutUint32(p[0x158:], 1024)
	le.PutUint32(p[0x168:], 512)
	le.PutUint64(p[0x170:], size)
	le.PutUint32(p[0x178:], 1<<20)
	le.PutUint32(p[0x180:], blocks)
	for i := 512; i < len(p); i++ {
		p[i] = 0xff
	}
	return p
}

func TestAttacksAreRefused(t *testing.T) {
	t.Parallel()
	for _, a := range attacks() {
		t.Run(a.name, func(t *testing.T) {
			t.Parallel()
			if got := format.Detect(a.file, a.file[max(0, len(a.file)-512):], int64(len(a.file))); got != a.kind {
				t.Fatalf("detected %s, want %s", got, a.kind)
			}
			f := extent.File{ReaderAt: bytes.NewReader(a.file), Size: int64(len(a.file))}
			_, err := random(a.kind, f)
			a.check(t, "at random", err)
			out := &formattest.Memory{}
			_, err = format.Stream(context.Background(), a.kind, bytes.NewReader(a.file), out)
			a.check(t, "streamed", err)
			if a.reason == task.UnsafeImage && out.Disk != nil {
				t.Error("the disk was begun before the image was refused")
			}
		})
	}
}

func (a attack) check(t *testing.T, how string, err error) {
	t.Helper()
	var bad *task.Error
	if !errors.As(err, &bad) || bad.Reason != a.reason {
		t.Fatalf("%s: %v, want %s", how, err, a.reason)
	}
	for _, s := range a.says {
		if !strings.Contains(err.Error(), s) {
			t.Errorf("%s: the message %q does not say %q", how, err, s)
		}
	}
}

// random reads an image at random.
func random(kind format.Kind, f extent.File) (*formattest.Disk, error) {
	m, err := format.Open(kind, f.ReaderAt, f.Size)
	if err != nil {
		return nil, err
	}
	return formattest.Assemble(context.Background(), m, f, 1<<20)
}

// CVE-2026-24708: the first bytes of a volume are its guest's to choose. A copy of one uses Raw, and then nothing in it is
// interpreted, neither at its beginning nor at its end.
func TestCVE_2026_24708_RawIsNeverInterpreted(t *testing.T) {
	t.Parallel()
	for _, volume := range [][]byte{
		formattest.QCOW2{Backing: "/etc/passwd"}.Bytes(),
		append(make([]byte, 1<<20), fixedFooter(1<<20)...),
	} {
		f := extent.File{ReaderAt: bytes.NewReader(volume), Size: int64(len(volume))}
		want := formattest.NewDisk(f.Size)
		if err := want.Write(volume, 0); err != nil {
			t.Fatal(err)
		}
		d, err := random(format.Raw, f)
		if err != nil {
			t.Fatal(err)
		}
		if diff := d.Diff(want); diff != "" {
			t.Error(diff)
		}
		out, err := formattest.Stream(context.Background(), format.Raw, f, 1000, 0)
		if err != nil {
			t.Fatal(err)
		}
		if diff := out.Disk.Diff(want); diff != "" {
			t.Error(diff)
		}
	}
}

func fixedFooter(size uint64) []byte {
	p := vhd(2, size, 0, 0)[:512]
	return sealVHD(p)
}

// An image may map the same bytes many times, or lay tables over data. QEMU reads it; here it must not take more memory
// than any other, and must give the same disk or none.
func TestSharedAndOverlappingClustersAreHarmless(t *testing.T) {
	t.Parallel()
	same := make([]uint64, 64)
	for i := range same {
		same[i] = 3 * 512
	}
	packed := formattest.Deflated(bytes.Repeat([]byte{7}, 512))
	for name, q := range map[string]formattest.QCOW2{
		"one cluster for the whole disk": {L1: []uint64{1024, 1024}, Clusters: map[uint64][]byte{
			2: formattest.Words(same...), 3: bytes.Repeat([]byte{5}, 512)}},
		"table that is its own data": {L1: []uint64{1024, 1024}, Clusters: map[uint64][]byte{
			2: formattest.Words(1024, 1024, 0, 1024)}},
		"L1 table that is an L2 table": {L1: []uint64{512, 512}},
		"L2 table that is the header":  {L1: []uint64{0, 1024}, Clusters: map[uint64][]byte{2: formattest.Words(0, 512, 512)}},
		"one compressed cluster shared": {L1: []uint64{1024, 1024}, Clusters: map[uint64][]byte{
			2: formattest.Words(1<<62|1536, 1<<62|1536, 1<<62|1536), 3: packed}},
		"compressed on top of plain": {L1: []uint64{1024}, Clusters: map[uint64][]byte{
			2: formattest.Words(1<<62|1536, 1536), 3: packed}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			file := q.Bytes()
			f := extent.File{ReaderAt: bytes.NewReader(file), Size: int64(len(file))}
			want, err := random(format.QCOW2, f)
			var bad *task.Error
			if err != nil && !errors.As(err, &bad) {
				t.Fatal(err)
			}
			out, streamErr := formattest.Stream(context.Background(), format.QCOW2, f, 100, 0)
			switch {
			case streamErr != nil && !errors.As(streamErr, &bad):
				t.Fatal(streamErr)
			case streamErr == nil && err != nil:
				t.Fatalf("the stream was taken, but at random it is refused: %v", err)
			case streamErr == nil && out.Disk.Diff(want) != "":
				t.Fatal(out.Disk.Diff(want))
			}
		})
	}
}

// A bomb's tables are small and its disk is huge. What matters here is that finding out costs no memory.
func TestBombsCostNoMemory(t *testing.T) {
	// 2 PiB in 64 KiB clusters, every L1 entry naming the same L2 table whose every entry names the same cluster.
	const entries = 32 << 20 / 8
	l1, l2 := make([]uint64, entries), make([]uint64, 8192)
	for i := range l1 {
		l1[i] = 1 << 26
	}
	for i := range l2 {
		l2[i] = 1<<26 + 1<<16
	}
	file := formattest.QCOW2{ClusterBits: 16, Size: entries << 29, L1: l1, Clusters: map[uint64][]byte{
		1 << 10: formattest.Words(l2...), 1<<10 + 1: bytes.Repeat([]byte{1}, 1<<16)}}.Bytes()
	m, err := format.Open(format.QCOW2, bytes.NewReader(file), int64(len(file)))
	if err != nil {
		t.Fatal(err)
	}
	if want := int64(entries << 29); m.Size() != want {
		t.Fatalf("the disk has %d bytes, want %d", m.Size(), want)
	}
	before := heap()
	_, err = m.Extents(context.Background(), 0, int64(len(file)))
	var bad *task.Error
	if !errors.As(err, &bad) || bad.Reason != task.BadImage {
		t.Fatalf("it is refused with %v", err)
	}
	if used := heap() - before; used > 32<<20 {
		t.Fatalf("it took %d bytes to find out", used)
	}
	out := &formattest.Memory{Limit: 1 << 40}
	if _, err := format.Stream(context.Background(), format.QCOW2, bytes.NewReader(file), out); err == nil || out.Disk != nil {
		t.Fatalf("a disk that does not fit was begun: %v", err)
	}
	runtime.KeepAlive(file)
}

// heap returns how many bytes are in use.
func heap() int64 {
	runtime.GC()
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}
