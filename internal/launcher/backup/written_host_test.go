//go:build host

package backup

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/internal/transfer"
	written "github.com/berth-vm/berth/internal/transfer/backup"
	"github.com/berth-vm/berth/internal/transfer/guestdisk"
)

// write writes a moment of both disks into a set, as a backup on its parent.
func write(t *testing.T, set, name, parent string, moment *Moment) {
	t.Helper()
	plan := written.Plan{Checkpoint: name, Parent: parent, Created: moment.Time, Machine: json.RawMessage(`{"kind":"VirtualMachine"}`)}
	bitmap := ""
	if moment.Incremental {
		bitmap = Bitmap
	}
	for _, d := range disks {
		conn, err := net.Dial("unix", moment.Socket)
		if err != nil {
			t.Fatal(err)
		}
		disk, err := guestdisk.Open(conn, d.Volume, bitmap)
		if err != nil {
			t.Fatal(err)
		}
		defer disk.Close()
		plan.Disks = append(plan.Disks, disk.Source())
	}
	if _, err := written.Write(t.Context(), set, plan); err != nil {
		t.Fatal(err)
	}
}

// restore reads a disk of a backup as a worker does.
func restore(t *testing.T, set, name string, d Disk) []byte {
	t.Helper()
	to := filepath.Join(t.TempDir(), "disk.img")
	job := transfer.New(task.Task{
		Version: task.Version, Volume: "team/vol", Claim: "claim",
		Source: task.Source{Backup: &task.Backup{Set: task.Source{Local: &task.Local{Path: set}}, Checkpoint: name, Disk: d.Volume}},
		Target: task.Target{Path: to, Content: task.Disk},
	})
	if r := job.Run(t.Context()); r.Outcome != task.Done {
		t.Fatalf("restore: %+v", r)
	}
	data, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// TestBackupsAreWrittenAndRestored: a full backup and three increments of a guest that writes all the time are written as sets are kept; each is
// restored, and is both disks as they were at its moment.
func TestBackupsAreWrittenAndRestored(t *testing.T) {
	m := newMachine(t)
	set := t.TempDir()
	var root, data [][]byte
	for i := range 4 {
		m.writesMore(25)
		name, parent := fmt.Sprint("b", i), ""
		o := Order{Checkpoint: checkpoint(name)}
		if i > 0 {
			parent = fmt.Sprint("b", i-1)
			o.Since = checkpoint(parent)
		}
		moment := m.begin(o)
		if moment.Incremental != (i > 0) {
			t.Fatalf("backup %d: %+v", i, moment)
		}
		began := time.Now()
		write(t, set, name, parent, moment)
		t.Logf("written in %v", time.Since(began))
		root, data = append(root, read(t, moment, disks[0], nil)), append(data, read(t, moment, disks[1], nil))
		sameMoment(t, root[i], data[i])
		m.end(moment, true)
	}
	for i := range root {
		name := fmt.Sprint("b", i)
		if !bytes.Equal(restore(t, set, name, disks[0]), root[i]) || !bytes.Equal(restore(t, set, name, disks[1]), data[i]) {
			t.Errorf("backup %s is not what the disks were", name)
		}
	}
	full, err := os.Stat(filepath.Join(set, "b0", "root.qcow2"))
	if err != nil {
		t.Fatal(err)
	}
	next, err := os.Stat(filepath.Join(set, "b1", "root.qcow2"))
	if err != nil || next.Size() > full.Size()/4 {
		t.Errorf("an increment has %d bytes, the full backup %d: %v", next.Size(), full.Size(), err)
	}
}
