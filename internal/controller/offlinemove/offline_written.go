package offlinemove

import (
	"context"
	"fmt"
	"slices"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/controller/claimusers"
	"github.com/berth-vm/berth/internal/controller/diskstate"
)

// observeWritten finds a user's pod that may have written to the old disks since the machine's pod reserved the disk: what it
// wrote may be missing in the copies. Pods of Berth are kept out by the record that the machine's pod is in.
func (r *Reconciler) observeWritten(ctx context.Context, v *move) error {
	for _, d := range v.old {
		if v.pod == nil || len(v.copies) == 0 || v.copies[0].Claim == nil {
			return nil
		}
		writers, err := claimusers.Since(ctx, r.Read.Cached, r.Read.Live, d.Claim, v.pod.CreationTimestamp.Time)
		if err != nil {
			return err
		}
		for _, p := range writers {
			holds, err := r.Read.Records.Holds(ctx, d.ID, p.UID)
			if err != nil {
				return err
			}
			if p.Spec.NodeName != "" && p.UID != v.pod.UID && !holds {
				v.written = fmt.Sprintf("pod %s may have written to PersistentVolumeClaim %s meanwhile", p.Name, d.Claim.Name)
			}
		}
	}
	return nil
}

// reading returns the disks as they are held while they are copied: shared by readers, without writers.
func reading(disks []diskstate.Disk) []diskstate.Disk {
	out := slices.Clone(disks)
	for i := range out {
		out[i].Mode = accessv1.ReadShared
	}
	return out
}
