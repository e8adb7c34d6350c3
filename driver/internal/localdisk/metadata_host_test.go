//go:build host

package localdisk

import (
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/container-storage-interface/spec/lib/go/csi"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// told is a message of either call.
type told interface {
	GetBlockMetadataType() csi.BlockMetadataType
	GetVolumeCapacityBytes() int64
	GetBlockMetadata() []*csi.BlockMetadata
}

// receive is the next message of a stream.
type receive func() (told, error)

func asked[M any, P interface {
	*M
	told
}](stream grpc.ServerStreamingClient[M], err error) receive {
	return func() (told, error) {
		if err != nil {
			return nil, err
		}
		m, err := stream.Recv()
		return P(m), err
	}
}

// readAll reads a stream to its end and holds it to the specification.
func readAll(t *testing.T, most int32, next receive) (spans []span, capacity int64, err error) {
	t.Helper()
	end := int64(-1)
	for n := 0; ; n++ {
		m, err := next()
		if errors.Is(err, io.EOF) {
			if n == 0 {
				t.Error("a stream without a message does not tell the capacity")
			}
			return spans, capacity, nil
		}
		if err != nil {
			return nil, 0, err
		}
		list := m.GetBlockMetadata()
		if n > 0 && (m.GetVolumeCapacityBytes() != capacity || len(list) == 0) {
			t.Errorf("message %d has %d ranges and a capacity of %d, before it was %d", n, len(list), m.GetVolumeCapacityBytes(), capacity)
		}
		capacity = m.GetVolumeCapacityBytes()
		if m.GetBlockMetadataType() != csi.BlockMetadataType_VARIABLE_LENGTH || most > 0 && len(list) > int(most) || len(list) > rangesPerMessage {
			t.Errorf("a message has type %v and %d ranges", m.GetBlockMetadataType(), len(list))
		}
		for _, b := range list {
			s := span{b.GetByteOffset(), b.GetByteOffset() + b.GetSizeBytes()}
			if s.from <= end || s.to <= s.from || s.to > capacity { // ranges that touch are one
				t.Errorf("range %v follows one that ends at %d, in %d bytes", s, end, capacity)
			}
			end = s.to
			spans = append(spans, s)
		}
	}
}

func all(t *testing.T, most int32, next receive) []span {
	t.Helper()
	spans, _, err := readAll(t, most, next)
	if err != nil {
		t.Fatal(err)
	}
	return spans
}

// named takes a snapshot under a name.
func (c client) named(t *testing.T, name, volume string) string {
	t.Helper()
	made, err := c.CreateSnapshot(t.Context(), &csi.CreateSnapshotRequest{Name: name, SourceVolumeId: volume})
	if err != nil {
		t.Fatal(err)
	}
	return made.GetSnapshot().GetSnapshotId()
}

// writeEvery writes a block at every so many bytes of a volume.
func writeEvery(t *testing.T, d *Driver, volume string, step, end int64) {
	t.Helper()
	f, err := os.OpenFile(imageOf(t, d, volume), os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	for at := int64(0); at < end; at += step {
		if _, err := f.WriteAt([]byte{1, 2, 3}, at); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
}

// TestChangesOfUsedVolume: what is written through the device of a volume in use, in either mode, and what its growing adds.
func TestChangesOfUsedVolume(t *testing.T) {
	d, c := open(t, testSettings(poolOn(t, "xfs", 4)))
	for name, ability := range abilities() {
		t.Run(name, func(t *testing.T) {
			u := user{t: t, c: c, dir: t.TempDir(), ability: ability}
			u.handle = c.mustCreate(t, wanting("used-"+name, 400, ability)).GetVolumeId()
			u.use(func() {
				u.write("before")
				base := c.named(t, "base-"+name, u.handle)
				u.write("after")
				target := c.named(t, "target-"+name, u.handle)
				spans := all(t, 0, asked(c.GetMetadataDelta(t.Context(), &csi.GetMetadataDeltaRequest{BaseSnapshotId: base, TargetSnapshotId: target})))
				was, is := imageOf(t, d, base), imageOf(t, d, target)
				differing(t, was, is, spans)
				if len(spans) == 0 {
					t.Error("nothing is reported")
				}
				if ability.GetBlock() != nil && !slices.Equal(spans, []span{{0, blockSize}}) {
					t.Errorf("changed are %v", spans)
				}
			})
		})
	}
}

// differing fails if two files differ outside of ranges.
func differing(t *testing.T, was, is string, spans []span) {
	t.Helper()
	var b [2][]byte
	for n, path := range []string{was, is} {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		b[n] = text
	}
	in := blocksOf(spans)
	for at := int64(0); at < int64(len(b[1])); at += blockSize {
		if !in[at/blockSize] && !slices.Equal(b[0][at:at+blockSize], b[1][at:at+blockSize]) {
			t.Fatalf("the block at %d differs and is not reported", at)
		}
	}
}

// TestChangesRefused: each wrong request has the code that the specification has for it.
func TestChangesRefused(t *testing.T) {
	t.Parallel()
	_, c := open(t, testSettings(poolOn(t, "xfs", 1)))
	a, b := c.mustCreate(t, asking("a", 16)).GetVolumeId(), c.mustCreate(t, asking("b", 16)).GetVolumeId()
	ofA, later, ofB := c.named(t, "of-a", a), c.named(t, "later", a), c.named(t, "of-b", b)
	gone := c.named(t, "gone", a)
	if _, err := c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: gone}); err != nil {
		t.Fatal(err)
	}
	away, err := parseID(kindSnapshot, ofA)
	if err != nil {
		t.Fatal(err)
	}
	away.node = "node2"
	for name, row := range map[string]struct {
		base, target string
		at           int64
		most         int32
		want         codes.Code
	}{
		"right":                  {base: ofA, target: later},
		"with itself":            {base: ofA, target: ofA},
		"from the end":           {base: ofA, target: later, at: 16 << 20},
		"no base":                {target: later, want: codes.InvalidArgument},
		"no target":              {base: ofA, want: codes.InvalidArgument},
		"a base that is gone":    {base: gone, target: later, want: codes.NotFound},
		"a target that is gone":  {base: ofA, target: gone, want: codes.NotFound},
		"a volume":               {base: a, target: later, want: codes.NotFound},
		"of another driver":      {base: "0815", target: later, want: codes.NotFound},
		"a path":                 {base: "../../etc", target: later, want: codes.InvalidArgument},
		"on another node":        {base: away.String(), target: later, want: codes.NotFound},
		"of another volume":      {base: ofB, target: later, want: codes.InvalidArgument},
		"before the beginning":   {base: ofA, target: later, at: -1, want: codes.OutOfRange},
		"behind the end":         {base: ofA, target: later, at: 16<<20 + 1, want: codes.OutOfRange},
		"less than no results":   {base: ofA, target: later, most: -1, want: codes.InvalidArgument},
		"more than all that are": {base: ofA, target: later, most: 1<<31 - 1},
	} {
		t.Run(name, func(t *testing.T) {
			_, _, err := readAll(t, row.most, asked(c.GetMetadataDelta(t.Context(), &csi.GetMetadataDeltaRequest{
				BaseSnapshotId: row.base, TargetSnapshotId: row.target, StartingOffset: row.at, MaxResults: row.most,
			})))
			if status.Code(err) != row.want {
				t.Errorf("delta: %v, want %v", err, row.want)
			}
			if row.base != ofA {
				return
			}
			_, capacity, err := readAll(t, row.most, asked(c.GetMetadataAllocated(t.Context(), &csi.GetMetadataAllocatedRequest{
				SnapshotId: row.target, StartingOffset: row.at, MaxResults: row.most,
			})))
			if status.Code(err) != row.want || err == nil && capacity != 16<<20 {
				t.Errorf("allocated: %v, capacity %d, want %v", err, capacity, row.want)
			}
		})
	}
}

// TestChangesNeedSharedBlocks: on a filesystem that copies, the caller is told to read everything; what is allocated it learns.
func TestChangesNeedSharedBlocks(t *testing.T) {
	t.Parallel()
	d, c := open(t, testSettings(poolOn(t, "ext4", 1)))
	volume := c.mustCreate(t, asking("a", 16)).GetVolumeId()
	writeEvery(t, d, volume, 4<<20, 16<<20)
	base, target := c.named(t, "base", volume), c.named(t, "target", volume)
	_, _, err := readAll(t, 0, asked(c.GetMetadataDelta(t.Context(), &csi.GetMetadataDeltaRequest{BaseSnapshotId: base, TargetSnapshotId: target})))
	if status.Code(err) != codes.FailedPrecondition {
		t.Errorf("delta: %v", err)
	}
	spans := all(t, 0, asked(c.GetMetadataAllocated(t.Context(), &csi.GetMetadataAllocatedRequest{SnapshotId: target})))
	if want := []span{{0, 4096}, {4 << 20, 4<<20 + 4096}, {8 << 20, 8<<20 + 4096}, {12 << 20, 12<<20 + 4096}}; !slices.Equal(spans, want) {
		t.Errorf("allocated: %v", spans)
	}
}

// answer is a stream whose reader is the test.
type answer struct {
	grpc.ServerStream
	ctx  context.Context
	send func([]*csi.BlockMetadata)
}

func (a answer) Context() context.Context { return a.ctx }

func (a answer) Send(m *csi.GetMetadataDeltaResponse) error {
	a.send(m.GetBlockMetadata())
	return nil
}

// TestChangesWhileSnapshotsGo: an answer stays right if its snapshots are removed while it is read and the volume is written all
// over. Their blocks are not free before the answer ends, or what took their place would be taken for them.
func TestChangesWhileSnapshotsGo(t *testing.T) {
	t.Parallel()
	const end = 256 << 20
	d, c := open(t, testSettings(poolOn(t, "xfs", 1)))
	volume := c.mustCreate(t, asking("a", end>>20)).GetVolumeId()
	writeEvery(t, d, volume, 8192, end)
	base := c.named(t, "base", volume)
	writeEvery(t, d, volume, 32768, end)
	target := c.named(t, "target", volume)
	request := &csi.GetMetadataDeltaRequest{BaseSnapshotId: base, TargetSnapshotId: target, MaxResults: 1}
	want := all(t, 1, asked(c.GetMetadataDelta(t.Context(), request)))

	var got []span
	err := d.GetMetadataDelta(request, answer{ctx: t.Context(), send: func(list []*csi.BlockMetadata) {
		if got == nil {
			for _, s := range []string{base, target} {
				if _, err := c.DeleteSnapshot(t.Context(), &csi.DeleteSnapshotRequest{SnapshotId: s}); err != nil {
					t.Error(err)
				}
			}
			writeEvery(t, d, volume, 4096, end)
		}
		for _, b := range list {
			got = append(got, span{b.GetByteOffset(), b.GetByteOffset() + b.GetSizeBytes()})
		}
	}})
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%d ranges were reported, %d are right: %v", len(got), len(want), err)
	}
	if _, err := asked(c.GetMetadataDelta(t.Context(), request))(); status.Code(err) != codes.NotFound {
		t.Errorf("asked again: %v", err)
	}
}

// TestManyChanges: an answer of any length takes little memory, and ends when its reader leaves. (Not in parallel: memory is of
// the whole process.)
func TestManyChanges(t *testing.T) {
	const end = 1 << 30
	d, c := open(t, testSettings(poolOn(t, "xfs", 4)))
	volume := c.mustCreate(t, asking("a", end>>20)).GetVolumeId()
	base := c.named(t, "base", volume)
	writeEvery(t, d, volume, 8192, end)
	target := c.named(t, "target", volume)
	request := &csi.GetMetadataDeltaRequest{BaseSnapshotId: base, TargetSnapshotId: target}

	ctx, leave := context.WithCancel(t.Context())
	next := asked(c.GetMetadataDelta(ctx, request))
	if _, err := next(); err != nil {
		t.Fatal(err)
	}
	leave()
	for {
		if _, err := next(); err != nil {
			if status.Code(err) != codes.Canceled {
				t.Errorf("left: %v", err)
			}
			break
		}
	}
	opened := func() (n int) {
		links, err := filepath.Glob("/proc/self/fd/*")
		if err != nil {
			t.Fatal(err)
		}
		for _, l := range links {
			if path, err := os.Readlink(l); err == nil && path == imageOf(t, d, target) {
				n++
			}
		}
		return n
	}
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for opened() > 0 { // until the driver has noticed; the test's own deadline bounds it
		<-tick.C
	}

	n, most, before := 0, int64(0), held()
	err := d.GetMetadataDelta(request, answer{ctx: t.Context(), send: func(list []*csi.BlockMetadata) {
		most = max(most, held()-before)
		n += len(list)
	}})
	if err != nil || n != end/8192 {
		t.Errorf("%d ranges, want %d: %v", n, end/8192, err)
	}
	if most > 1<<20 { // all ranges would be 8 MiB
		t.Errorf("%d bytes were in use for %d ranges", most, n)
	}
}

// held is the memory in use.
func held() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
