package bootdisk

import (
	"bytes"
	"encoding/hex"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/berth-vm/berth/images/guest"
)

// The layout is written three times: for sfdisk, for this package and for tests. They must agree.
func TestLayout(t *testing.T) {
	layout, err := os.ReadFile("../../../images/guest/disk.sfdisk")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string][2]int64{}
	for _, m := range regexp.MustCompile(`start=(\d+), *size=(\d+), .* name="(.*)"`).FindAllStringSubmatch(string(layout), -1) {
		start, errStart := strconv.ParseInt(m[1], 10, 64)
		size, errSize := strconv.ParseInt(m[2], 10, 64)
		if err := errors.Join(errStart, errSize); err != nil {
			t.Fatal(err)
		}
		got[m[3]] = [2]int64{start * sector, size * sector}
	}
	want := map[string][2]int64{
		"berth-bios": {biosStart, biosSize}, "berth-esp": {espStart, espSize}, "berth-data": {guest.DataOffset, guest.DataSize},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("partitions (-want +got):\n%s", diff)
	}
	if end := int64(guest.DataOffset + guest.DataSize); end > guest.DiskSize-34*sector {
		t.Errorf("the data partition ends at %d and leaves no room for the second partition table", end)
	}
}

func TestArchiveIsNewc(t *testing.T) {
	var b bytes.Buffer
	c := &cpio{w: &b}
	c.entry("ab", modeFile|0o644, []byte("hello"))
	c.console("c")
	c.end()
	if c.err != nil {
		t.Fatal(c.err)
	}
	want := "070701" + "00000001" + "000081A4" + "00000000" + "00000000" + "00000001" + "00000000" + "00000005" +
		"00000000" + "00000000" + "00000000" + "00000000" + "00000003" + "00000000" + "ab\x00\x00\x00\x00hello\x00\x00\x00" +
		"070701" + "00000002" + "00002180" + "00000000" + "00000000" + "00000001" + "00000000" + "00000000" +
		"00000000" + "00000000" + "00000005" + "00000001" + "00000002" + "00000000" + "c\x00" +
		"070701" + "00000003" + "00000000" + "00000000" + "00000000" + "00000001" + "00000000" + "00000000" +
		"00000000" + "00000000" + "00000000" + "00000000" + "0000000B" + "00000000" + "TRAILER!!!\x00\x00\x00\x00"
	if diff := cmp.Diff(hex.Dump([]byte(want)), hex.Dump(b.Bytes())); diff != "" {
		t.Errorf("archive (-want +got):\n%s", diff)
	}
}

func TestCopySparseLeavesHoles(t *testing.T) {
	dir := t.TempDir()
	from := make([]byte, 300<<10)
	copy(from[200<<10:], "data")
	path := filepath.Join(dir, "from")
	if err := os.WriteFile(path, from, 0o600); err != nil {
		t.Fatal(err)
	}
	w := &writes{at: map[int64]int{}}
	if err := copySparse(w, path, 1000); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[int64]int{1000 + 192<<10: 64 << 10}, w.at); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
}

// writes remembers where how much was written.
type writes struct{ at map[int64]int }

func (w *writes) WriteAt(p []byte, off int64) (int, error) {
	w.at[off] = len(p)
	return len(p), nil
}

func TestModuleName(t *testing.T) {
	for file, want := range map[string]string{
		"kernel/drivers/char/hw_random/virtio-rng.ko": "virtio_rng", "nls_cp437": "nls_cp437", "./drivers/nvme/host/nvme-core.ko": "nvme_core",
	} {
		if got := moduleName(file); got != want {
			t.Errorf("module in %s = %s, want %s", file, got, want)
		}
	}
}
