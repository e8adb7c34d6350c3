package watch

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/qmp"
)

// FullDisks describes the disks of a paused guest that have no room, and what to do about each.
func FullDisks(qemu *qmp.Monitor, disks map[string]backing.Disk) []string {
	answer, err := qemu.Run("query-block", nil)
	if err != nil {
		return nil // that the guest is paused is reported in any case
	}
	var out []string
	for _, volume := range withoutRoom(answer) {
		out = append(out, fullText(volume, disks[volume]))
	}
	return out
}

// withoutRoom returns the volumes whose device has the status nospace in QEMU's list of drives.
func withoutRoom(answer []byte) []string {
	var drives []struct {
		Device string `json:"qdev"`
		Status string `json:"io-status"`
	}
	if err := json.Unmarshal(answer, &drives); err != nil {
		return nil
	}
	var out []string
	for _, d := range drives {
		if volume, ok := qmp.VolumeOf(d.Device); ok && d.Status == "nospace" {
			out = append(out, volume)
		}
	}
	slices.Sort(out)
	return out
}

// fullMaster begins the text about a volume that is no copy.
const fullMaster = "volume "

// fullText says that a disk is full, and what to do.
func fullText(volume string, b backing.Disk) string {
	switch {
	case !b.Copied:
		return fmt.Sprintf(fullMaster+"%s is full: let it grow, or free space where it is", volume)
	case b.Limit > 0:
		return fmt.Sprintf("the copy of volume %s is full: it may take %d bytes and takes %d; restart the machine with a larger copy.capacity, "+
			"which begins from the master again", volume, b.Limit, backing.Stored(b.Path))
	}
	return fmt.Sprintf("the copy of volume %s is full: its medium has no room beyond %d bytes; let its claim grow, or free space there", volume, backing.Stored(b.Path))
}
