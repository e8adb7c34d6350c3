package claim_test

import (
	"math"
	"testing"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/pkg/claim"
)

// FuzzInflate holds the one promise that matters: a disk fits in the claim that was made for it, and a claim one MiB
// smaller would not do, by the overhead that is configured or by what a small filesystem keeps.
func FuzzInflate(f *testing.F) {
	for _, size := range []int64{0, 1, 1 << 20, 1 << 30, 940 << 20, 10<<30 + 1, math.MaxInt64} {
		for _, overhead := range []string{"0", "0.06", "0.055", "0.999", "1", "-1", "0.0001"} {
			f.Add(size, overhead)
		}
	}
	const mib = 1 << 20
	f.Fuzz(func(t *testing.T, disk int64, overhead string) {
		if disk < 0 {
			return
		}
		size, err := claim.Inflate(disk, cdiv1.Percent(overhead))
		if err != nil {
			return
		}
		if size < disk || size%mib != 0 {
			t.Fatalf("a disk of %d with overhead %s got a claim of %d", disk, overhead, size)
		}
		aligned := disk / mib * mib
		if room, err := claim.Usable(size, cdiv1.Percent(overhead)); err != nil || room < aligned {
			t.Fatalf("the claim of %d for a disk of %d with overhead %s has room for %d, %v", size, disk, overhead, room, err)
		}
		if overhead != "0" && claim.Ext4.Holds(size) < disk {
			t.Fatalf("the claim of %d for a disk of %d with overhead %s may hold only %d", size, disk, overhead, claim.Ext4.Holds(size))
		}
		if size == 0 {
			return
		}
		small := overhead != "0" && claim.Ext4.Holds(size-mib) < disk
		if room, err := claim.Usable(size-mib, cdiv1.Percent(overhead)); err != nil || room >= disk && disk > 0 && !small {
			t.Fatalf("a claim of %d would do for a disk of %d with overhead %s, got %d", size-mib, disk, overhead, size)
		}
	})
}

func TestOverheadOf(t *testing.T) {
	configured := &cdiv1.FilesystemOverhead{Global: "0.1", StorageClass: map[string]cdiv1.Percent{"fast": "0.02", "odd": ""}}
	for name, row := range map[string]struct {
		overhead *cdiv1.FilesystemOverhead
		class    string
		want     cdiv1.Percent
	}{
		"nothing configured": {nil, "fast", "0.06"},
		"empty":              {&cdiv1.FilesystemOverhead{}, "fast", "0.06"},
		"global":             {configured, "slow", "0.1"},
		"of the class":       {configured, "fast", "0.02"},
		"empty of the class": {configured, "odd", "0.1"},
	} {
		t.Run(name, func(t *testing.T) {
			if got := claim.OverheadOf(row.overhead, row.class); got != row.want {
				t.Errorf("got %s, want %s", got, row.want)
			}
		})
	}
}

// TestEverySize: from 16 MiB to 16 TiB a claim holds its disk, a larger disk never gets a smaller claim, and no claim is much
// larger than the filesystem's overhead requires.
func TestEverySize(t *testing.T) {
	const mib = 1 << 20
	for _, kind := range []claim.Filesystem{claim.Ext4, claim.XFS} {
		last := int64(0)
		for disk := int64(16 * mib); disk <= 16<<40; {
			size, err := kind.Inflate(disk, claim.DefaultOverhead)
			if err != nil {
				t.Fatal(err)
			}
			usable, err := claim.Usable(size, claim.DefaultOverhead)
			if err != nil || usable < disk || kind.Holds(size) < disk || size < last {
				t.Fatalf("%s: a disk of %d gets a claim of %d after one of %d, which holds %d and %d, %v",
					kind, disk, size, last, usable, kind.Holds(size), err)
			}
			if most := disk + disk/15 + 300*mib; size > most {
				t.Fatalf("%s: a disk of %d gets a claim of %d", kind, disk, size)
			}
			last = size
			if disk < 4<<30 {
				disk += mib
			} else {
				disk += disk / 100 / mib * mib
			}
		}
	}
	if size, err := claim.Inflate(64*mib, "0"); err != nil || size != 64*mib {
		t.Errorf("storage without a filesystem of its own gets %d, %v", size, err)
	}
}

// TestDiskOfAClaim: a claim that was made for a disk is for that disk, or for the largest one of which the claim has the same size.
func TestDiskOfAClaim(t *testing.T) {
	const mib = 1 << 20
	for _, f := range []claim.Filesystem{claim.Ext4, claim.XFS} {
		for _, overhead := range []cdiv1.Percent{"0", "0.06", "0.1"} {
			for disk := int64(mib); disk < 4<<30; disk += 7 * mib {
				size, err := f.Inflate(disk, overhead)
				if err != nil {
					t.Fatal(err)
				}
				got, err := f.Disk(size, overhead)
				if again, _ := f.Inflate(got, overhead); err != nil || got < disk || again != size {
					t.Fatalf("%s, overhead %s: a claim of %d for a disk of %d is for %d, %v", f, overhead, size, disk, got, err)
				}
			}
		}
	}
}
