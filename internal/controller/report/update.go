package report

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
)

// Migrated are the volumes whose disks are being sent into other claims.
func Migrated(s *observed.Instance) []kubevirt.MigratedVolume {
	var out []kubevirt.MigratedVolume
	for _, c := range s.Updates.Due() {
		out = append(out, kubevirt.MigratedVolume{VolumeName: c.Volume, SourcePVCInfo: DiskStatus(c.From).PersistentVolumeClaimInfo,
			DestinationPVCInfo: DiskStatus((diskstate.Disk{Claim: c.Claim})).PersistentVolumeClaimInfo})
	}
	return out
}
