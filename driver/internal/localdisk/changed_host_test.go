//go:build host

package localdisk

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"golang.org/x/sys/unix"
)

const blockSize = 4096

// memoryPool is a pool on a filesystem in memory, where waiting for the disk costs nothing.
func memoryPool(t *testing.T, options string, mkfs ...string) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "localdisk-test-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	image, point := filepath.Join(dir, "pool.img"), filepath.Join(dir, "pool")
	if err := errors.Join(os.Mkdir(point, 0o700), os.WriteFile(image, nil, 0o600), os.Truncate(image, 1<<30)); err != nil {
		t.Fatal(err)
	}
	command(t, append(mkfs, image)...)
	command(t, "mount", "-o", "loop"+options, image, point)
	t.Cleanup(func() {
		if out, err := exec.Command("umount", point).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return point
}

// histories is how many histories are tried on XFS; a tenth of it on the others. A thousand take ten minutes.
var histories = flag.Uint64("histories", 100, "random histories of volumes")

// TestChangesOfRandomHistories: whatever is done to a volume between two snapshots, the delta has every block that differs, and
// none that was not written to. Only bytes that were written again with the same value are reported without need.
func TestChangesOfRandomHistories(t *testing.T) {
	for name, row := range map[string]struct {
		histories uint64
		options   string
		mkfs      []string
		exact     bool // a block that nobody wrote to is never reported
	}{
		"xfs":   {histories: *histories, mkfs: []string{"mkfs.xfs", "-q"}, exact: true},
		"btrfs": {histories: *histories / 10, mkfs: []string{"mkfs.btrfs", "-q"}, exact: true},
		// where compressed data lies does not tell which part of it is meant, so all of it counts as changed
		"btrfs compressed": {histories: *histories / 10, options: ",compress-force=zstd", mkfs: []string{"mkfs.btrfs", "-q"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			d, c := open(t, testSettings(memoryPool(t, row.options, row.mkfs...)))
			var changed, reported, steps int
			for seed := range row.histories {
				h := newHistory(t, d, c, seed)
				h.run()
				changed, reported, steps = changed+h.changed, reported+h.reported, steps+h.steps
				if h.missed > 0 || row.exact && h.needless > 0 {
					t.Fatalf("history %d: %d blocks are missed, %d are reported that nobody wrote to", seed, h.missed, h.needless)
				}
			}
			t.Logf("%d histories, %d steps: %d blocks changed, %d were reported", row.histories, steps, changed, reported)
			if row.exact && float64(reported) > 1.1*float64(changed) {
				t.Errorf("%d blocks are reported where %d changed", reported, changed)
			}
		})
	}
}

// history is a volume, what is done to it, and what is known of its snapshots.
type history struct {
	t      *testing.T
	d      *Driver
	c      client
	r      *rand.Rand
	volume string
	file   *os.File
	taken  int
	// preallocated volumes get blocks of their own for all that they share when they grow.
	preallocated bool
	// touched are the blocks written since the last snapshot; in vain those whose bytes may be as they were.
	touched, inVain map[int64]bool

	changed, reported, missed, needless, steps int
}

func newHistory(t *testing.T, d *Driver, c client, seed uint64) *history {
	h := &history{t: t, d: d, c: c, r: rand.New(rand.NewPCG(seed, 1))}
	ask := asking(fmt.Sprintf("history-%d", seed), 1+h.r.Int64N(4))
	if h.preallocated = h.r.IntN(4) == 0; h.preallocated {
		ask.Parameters = map[string]string{paramPreallocate: "true"}
	}
	h.volume = c.mustCreate(t, ask).GetVolumeId()
	h.open()
	return h
}

func (h *history) open() {
	file, err := os.OpenFile(imageOf(h.t, h.d, h.volume), os.O_RDWR, 0)
	if err != nil {
		h.t.Fatal(err)
	}
	h.file = file
}

func (h *history) run() {
	h.t.Helper()
	var snapshots []string
	for range 2 + h.r.IntN(2) {
		for range 1 + h.r.IntN(30) {
			h.step()
		}
		next := h.snapshot()
		if n := len(snapshots); n > 0 {
			h.compare(snapshots[n-1], next)
		}
		if h.r.IntN(3) == 0 { // one that goes before the next is taken
			h.drop(h.snapshot())
		}
		h.touched, h.inVain = map[int64]bool{}, map[int64]bool{}
		snapshots = append(snapshots, next)
	}
	h.allocated(snapshots[len(snapshots)-1])
	if err := h.file.Close(); err != nil {
		h.t.Fatal(err)
	}
	for _, s := range snapshots {
		h.drop(s)
	}
	remove(h.t, h.c, h.volume)
}

func (h *history) snapshot() string {
	h.t.Helper()
	h.taken++
	made, err := h.c.CreateSnapshot(h.t.Context(), &csi.CreateSnapshotRequest{
		Name: fmt.Sprintf("%s-%d", nameOf(h.volume), h.taken), SourceVolumeId: h.volume,
	})
	if err != nil {
		h.t.Fatal(err)
	}
	return made.GetSnapshot().GetSnapshotId()
}

func (h *history) drop(snapshot string) {
	h.t.Helper()
	if _, err := h.c.DeleteSnapshot(h.t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: snapshot}); err != nil {
		h.t.Fatal(err)
	}
}

func (h *history) size() int64 {
	st, err := h.file.Stat()
	if err != nil {
		h.t.Fatal(err)
	}
	return st.Size()
}

// note keeps which blocks a step wrote to.
func (h *history) note(from, length int64, inVain bool) {
	for b := from / blockSize; b*blockSize < from+length; b++ {
		if h.touched != nil {
			h.touched[b], h.inVain[b] = true, inVain
		}
	}
}

// step does one thing to the volume.
func (h *history) step() {
	h.t.Helper()
	h.steps++
	size := h.size()
	length := min([]int64{1, 512, 4096, 20000, 65536, 300000}[h.r.IntN(6)], size)
	at := h.r.Int64N(size - length + 1)
	block := at / blockSize * blockSize
	whole := max(length/blockSize*blockSize, blockSize)
	whole = min(whole, size-block)
	var err error
	switch h.r.IntN(14) {
	case 0, 1, 2, 3:
		_, err = h.file.WriteAt(h.bytes(length), at)
		h.note(at, length, false)
	case 4, 5:
		err = h.direct(block)
		h.note(block, blockSize, false)
	case 6: // the bytes that are there
		old := make([]byte, length)
		if _, err = h.file.ReadAt(old, at); err == nil {
			_, err = h.file.WriteAt(old, at)
		}
		h.note(at, length, true)
	case 7, 8:
		err = unix.Fallocate(int(h.file.Fd()), unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, at, length)
		h.note(at, length, true)
	case 9:
		err = unix.Fallocate(int(h.file.Fd()), unix.FALLOC_FL_ZERO_RANGE, at, length)
		if errors.Is(err, unix.EOPNOTSUPP) {
			err = nil
		}
		h.note(at, length, true)
	case 10:
		err = unix.Fallocate(int(h.file.Fd()), 0, block, whole)
		h.note(block, whole, true)
	case 11:
		h.grow(size)
	case 12: // a part of the volume is shared with another part of it
		to := h.r.Int64N(size/blockSize) * blockSize
		n := min(whole, size-to)
		if block+n <= to || to+n <= block {
			err = h.share(h.file, block, n, to)
			h.note(to, n, true)
		}
	case 13:
		err = h.file.Sync()
	}
	if err != nil && !errors.Is(err, unix.EINVAL) {
		h.t.Fatal(err)
	}
}

// bytes are random; half of them can be compressed.
func (h *history) bytes(n int64) []byte {
	if h.r.IntN(2) == 0 {
		return bytes.Repeat([]byte{1 + byte(h.r.IntN(255))}, int(n))
	}
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(h.r.Uint32())
	}
	return b
}

// direct writes a block past the page cache, as the volume's loop device does.
func (h *history) direct(at int64) error {
	f, err := os.OpenFile(h.file.Name(), os.O_WRONLY|unix.O_DIRECT, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	memory, err := unix.Mmap(-1, 0, blockSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return err
	}
	copy(memory, h.bytes(blockSize))
	_, err = f.WriteAt(memory, at)
	return errors.Join(err, unix.Munmap(memory))
}

func (h *history) share(from *os.File, at, length, to int64) error {
	return unix.IoctlFileCloneRange(int(h.file.Fd()), &unix.FileCloneRange{
		Src_fd: int64(from.Fd()), Src_offset: uint64(at), Src_length: uint64(length), Dest_offset: uint64(to),
	})
}

func (h *history) grow(size int64) {
	h.t.Helper()
	if size >= 8<<20 {
		return
	}
	if _, err := h.c.ControllerExpandVolume(h.t.Context(), &csi.ControllerExpandVolumeRequest{
		VolumeId: h.volume, CapacityRange: &csi.CapacityRange{RequiredBytes: size + 1<<20},
	}); err != nil {
		h.t.Fatal(err)
	}
	if h.preallocated {
		h.note(0, size, true)
	}
}

func (h *history) content(snapshot string) []byte {
	h.t.Helper()
	b, err := os.ReadFile(imageOf(h.t, h.d, snapshot))
	if err != nil {
		h.t.Fatal(err)
	}
	return b
}

// compare reads two snapshots and holds the delta against them. It asks with messages of any size, and now and then from the
// middle on.
func (h *history) compare(base, target string) {
	h.t.Helper()
	was, is := h.content(base), h.content(target)
	was = append(was, make([]byte, max(0, len(is)-len(was)))...)
	told := blocksOf(h.delta(base, target))
	for b := range int64(len(is) / blockSize) {
		from, to := b*blockSize, (b+1)*blockSize
		same := bytes.Equal(was[from:to], is[from:to])
		if !same {
			h.changed++
		}
		switch {
		case !same && !told[b]:
			h.missed++
		case told[b] && !h.touched[b]:
			h.needless++
		case told[b] && (!same || !h.inVain[b]):
			h.reported++
		}
	}
}

// delta asks in one stream, or in several that continue where the one before was left.
func (h *history) delta(base, target string) []span {
	h.t.Helper()
	r := &csi.GetMetadataDeltaRequest{BaseSnapshotId: base, TargetSnapshotId: target, MaxResults: int32(h.r.IntN(8))}
	if h.r.IntN(2) == 0 {
		return all(h.t, r.MaxResults, asked(h.c.GetMetadataDelta(h.t.Context(), r)))
	}
	var spans []span
	for {
		stream, err := h.c.GetMetadataDelta(h.t.Context(), r)
		if err != nil {
			h.t.Fatal(err)
		}
		message, err := stream.Recv()
		if errors.Is(err, io.EOF) || err == nil && len(message.GetBlockMetadata()) == 0 {
			return spans
		}
		if err != nil {
			h.t.Fatal(err)
		}
		for _, b := range message.GetBlockMetadata() {
			r.StartingOffset = b.GetByteOffset() + b.GetSizeBytes()
			spans = append(spans, span{b.GetByteOffset(), r.StartingOffset})
		}
	}
}

// allocated holds what has data against a snapshot: all that is not zero is in it.
func (h *history) allocated(snapshot string) {
	h.t.Helper()
	is := h.content(snapshot)
	told := blocksOf(all(h.t, 3, asked(h.c.GetMetadataAllocated(h.t.Context(), &csi.GetMetadataAllocatedRequest{SnapshotId: snapshot, MaxResults: 3}))))
	for b := range int64(len(is) / blockSize) {
		if !told[b] && slices.ContainsFunc(is[b*blockSize:(b+1)*blockSize], func(x byte) bool { return x != 0 }) {
			h.missed++
		}
	}
}

func blocksOf(spans []span) map[int64]bool {
	out := map[int64]bool{}
	for _, s := range spans {
		for b := s.from / blockSize; b*blockSize < s.to; b++ {
			out[b] = true
		}
	}
	return out
}
