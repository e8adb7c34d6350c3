package machine

import (
	"strings"
	"testing"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
)

// TestADiskTheGuestKeeps: it is said in the status and by one event, for a disk that was added and for one the machine was
// started with, and no longer when the guest has given it back.
func TestADiskTheGuestKeeps(t *testing.T) {
	for name, asks := range map[string][]func(*world){
		"added":        {addDisk(false)},
		"started with": {addDisk(false), requests(kubevirt.StopRequest, kubevirt.StartRequest)},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scenario{strategy: kubevirt.RunAlways, asks: append(asks, removeDisk)})
			w.keeps = true
			w.run()
			got := w.volumeStatus("extra")
			if got == nil || got.Phase != kubevirt.VolumeDetaching || got.Reason != machine.GuestKeepsIt || got.Message != "it was asked for" {
				t.Errorf("status of the disk: %+v", got)
			}
			if n := w.complaints(); n != 1 {
				t.Errorf("%d events about it", n)
			}
			w.keeps = false
			w.settle()
			if got := w.volumeStatus("extra"); got != nil {
				t.Errorf("status of a disk that was given back: %+v", got)
			}
		})
	}
}

func (w *world) volumeStatus(name string) *kubevirt.VolumeStatus {
	for _, v := range w.instance().Status.VolumeStatus {
		if v.Name == name {
			return &v
		}
	}
	return nil
}

// complaints counts the events so far about disks that are kept.
func (w *world) complaints() int {
	n := 0
	for range len(w.events.Events) {
		if strings.Contains(<-w.events.Events, machine.GuestKeepsIt) {
			n++
		}
	}
	return n
}

// TestBackupHoldsDisks: a disk that is added or removed while a backup reads the guest's disks waits, says why, and is added or removed afterwards.
func TestBackupHoldsDisks(t *testing.T) {
	for name, row := range map[string]struct {
		asks  []func(*world)
		phase string
		after bool // the guest has the disk
	}{
		"added":   {[]func(*world){hold, addDisk(false)}, kubevirt.VolumeAttached, true},
		"removed": {[]func(*world){addDisk(false), hold, removeDisk}, kubevirt.VolumeDetaching, false},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t, scenario{strategy: kubevirt.RunAlways, asks: row.asks})
			w.run()
			got := w.volumeStatus("extra")
			if got == nil || got.Phase != row.phase || got.Reason != machine.BackupHoldsDisks || !strings.Contains(got.Message, "a backup reads the disks") {
				t.Errorf("status of the disk: %+v", got)
			}
			w.backedUp = false
			w.settle()
			if got := w.volumeStatus("extra"); (got != nil) != row.after || row.after && got.Phase != kubevirt.VolumeReady {
				t.Errorf("status of the disk afterwards: %+v", got)
			}
		})
	}
}

// hold has the launcher hold the guest's disks for a backup.
func hold(w *world) { w.backedUp = true }
