package launcher

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/berth-vm/berth/internal/launcher/backing"
	"github.com/berth-vm/berth/internal/launcher/qmp"
)

// fullDisks says which disks of a paused guest have no room, and what to do about each.
func fullDisks(qemu *qmp.Monitor, disks map[string]backing.Disk) []string {
	answer, err := qemu.Run("query-block", nil)
	if err != nil {
		return nil // the guest is paused all the same, and that is said
	}
	var out []string
	for _, volume := range withoutRoom(answer) {
		out = append(out, fullText(volume, disks[volume]))
	}
	return out
}

// withoutRoom are the volumes whose device says nospace, in QEMU's list of drives.
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

// fullMaster begins what is said of a volume that is no copy.
const fullMaster = "volume "

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
