package diskstate

import (
	"fmt"
	"path"
	"slices"
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/state"
)

// HostDirectories reads the administrator's list of directories that hostDisk may use.
func HostDirectories(list string) ([]string, error) {
	var out []string
	for dir := range strings.SplitSeq(list, ",") {
		if dir = strings.TrimSpace(dir); dir == "" {
			continue
		}
		if !path.IsAbs(dir) || path.Clean(dir) != dir || dir == "/" {
			return nil, fmt.Errorf("%q is no directory that can be named here: it must be absolute, without . and .., and not /", dir)
		}
		out = append(out, dir)
	}
	return out, nil
}

// HostDisk is a disk that must not be, or nil. A file must lie in a directory of the list itself: what is below one may have
// been put there by another machine, a link for example.
func HostDisk(allowed []string, v kubevirt.Volume) *Disk {
	if v.HostDisk == nil {
		return nil
	}
	dir, file := path.Split(v.HostDisk.Path)
	if path.Clean(v.HostDisk.Path) == v.HostDisk.Path && file != "" && slices.Contains(allowed, path.Clean(dir)) {
		return nil
	}
	why := fmt.Sprintf("volume %s: hostDisk %s is not allowed; ", v.Name, v.HostDisk.Path)
	if len(allowed) == 0 {
		why += "hostDisk is switched off: use a persistentVolumeClaim, or ask an administrator to allow a directory (--host-disk-directories of the controller)"
	} else {
		why += "the file must lie in one of the directories that the administrator allows: " + strings.Join(allowed, ", ")
	}
	return &Disk{Name: v.Name, State: machine.Failed, Reason: state.DiskForbidden, Why: why}
}
