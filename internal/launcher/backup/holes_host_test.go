//go:build host

package backup

import (
	"os"
	"testing"

	written "github.com/berth-vm/berth/internal/transfer/backup"
)

// sparse makes the disks files with holes: a boot sector and 4 MiB of data each. The guest adds its numbers.
func (m *machine) sparse(sector []byte) {
	m.t.Helper()
	for _, d := range disks {
		f, err := os.Create(m.disk(d))
		if err != nil {
			m.t.Fatal(err)
		}
		data := make([]byte, 4<<20)
		for i := range data {
			data[i] = byte(i%251) + 1
		}
		_, err = f.WriteAt(data, 72<<20)
		if err == nil && d.Volume == "root" {
			_, err = f.WriteAt(sector, 0)
		}
		if err == nil {
			err = f.Truncate(d.Size)
		}
		if err == nil {
			err = f.Close()
		}
		if err != nil {
			m.t.Fatal(err)
		}
	}
}

// TestHolesAreLeftOut: what a disk does not have is neither read nor written.
func TestHolesAreLeftOut(t *testing.T) {
	m := prepare(t)
	m.sparse(m.sector())
	m.start(nil)
	m.run("stop", nil)
	moment := m.begin(Order{Checkpoint: checkpoint("c0")})
	set := t.TempDir()
	write(t, set, "b0", "", moment)
	all, err := written.List(t.Context(), set)
	if err != nil || len(all) != 1 {
		t.Fatalf("%d backups: %v", len(all), err)
	}
	for _, d := range all[0].Disks {
		t.Logf("disk %s of %d bytes: %d bytes", d.Name, d.Size, d.Bytes)
		if d.Bytes > 12<<20 {
			t.Errorf("disk %s has 4 MiB of data, and its image %d bytes", d.Name, d.Bytes)
		}
	}
}
