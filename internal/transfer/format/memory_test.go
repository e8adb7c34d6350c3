package format_test

import (
	"context"
	"encoding/binary"
	"io"
	"runtime"
	"runtime/debug"
	"sync/atomic"
	"testing"

	"github.com/berth-vm/berth/internal/testing/formattest"
	"github.com/berth-vm/berth/internal/transfer/format"
)

// vast is a qcow2 that exists only where it is read: 64 GiB in 64 KiB clusters, no two of which are side by side both
// in the file and on the disk, so that its map cannot be made smaller.
type vast struct {
	head []byte
	peak atomic.Int64 // of the heap, whenever a table was read
}

const (
	vastClusters = 1 << 20
	vastL2s      = vastClusters / 8192
	vastData     = 2 + vastL2s // the first data cluster; header and L1 table are one each
	vastStride   = 1_000_003   // odd, so multiplying by it visits every cluster
	vastSize     = (vastData + vastClusters) << 16
)

func newVast() *vast {
	l1 := make([]uint64, vastL2s)
	for i := range l1 {
		l1[i] = uint64(2+i) << 16
	}
	return &vast{head: formattest.QCOW2{ClusterBits: 16, Size: vastClusters << 16, L1: l1}.Bytes()}
}

func vastHost(guest int64) int64 { return (vastData + guest*vastStride%vastClusters) << 16 }

func (v *vast) ReadAt(p []byte, off int64) (int, error) {
	var s runtime.MemStats
	runtime.ReadMemStats(&s)
	v.peak.Store(max(v.peak.Load(), int64(s.HeapAlloc)))
	if off < int64(len(v.head)) {
		if n := copy(p, v.head[off:]); n < len(p) {
			return n, io.ErrUnexpectedEOF
		}
		return len(p), nil
	}
	for i := 0; i+8 <= len(p); i += 8 {
		guest := (off + int64(i) - 2<<16) / 8
		binary.BigEndian.PutUint64(p[i:], uint64(vastHost(guest)))
	}
	return len(p), nil
}

// TestVastMapsFitInMemory asks for windows all over an image whose map would take 25 MiB.
func TestVastMapsFitInMemory(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(5)) // so that garbage does not count
	v := newVast()
	before := heap()
	m, err := format.Open(format.QCOW2, v, vastSize)
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for from := int64(0); from < vastSize; from += vastSize / 4 {
		es, err := m.Extents(context.Background(), from, from+16<<20)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range es {
			seen++
			if within := e.Host % (64 << 10); vastHost(e.Guest>>16) != e.Host-within || e.Guest%(64<<10) != within {
				t.Fatalf("extent %+v is not where it should be", e)
			}
		}
	}
	if seen < 4*200 {
		t.Fatalf("only %d extents were found", seen)
	}
	if used := v.peak.Load() - before; used > 32<<20 {
		t.Fatalf("reading the map took %d MiB", used>>20)
	} else {
		t.Logf("reading the map took %d MiB", used>>20)
	}
}
