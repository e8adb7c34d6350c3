package observed

import (
	"context"
	"fmt"

	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/utils/ptr"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/pkg/claim"
)

// Rooted is why the disk of a claim that stays cannot be sent into another; empty if it can.
func (s *Instance) Rooted(d diskstate.Disk) (cause state.FixedCause, detail string) {
	name, drive := d.Claim.Name, s.Drive(d.Name)
	class := s.Classes[ptr.Deref(d.Claim.Spec.StorageClassName, "")]
	switch {
	case d.Copied != nil:
		return state.CauseClaimCopied, name
	case d.Mode != accessv1.WriteExclusive:
		return state.CauseClaimShared, name
	case drive.LUN != nil || drive.CDRom != nil:
		return state.CauseClaimDrive, name
	case class == nil:
		return state.CauseClassMissing, name
	case class.Provisioner == "kubernetes.io/no-provisioner":
		return state.CauseClassStatic, fmt.Sprintf("PersistentVolumeClaim %s, and StorageClass %s", name, class.Name)
	case !claim.Waits(class) && d.PV != nil && d.PV.Spec.NodeAffinity != nil:
		return state.CauseClassImmediate, fmt.Sprintf("PersistentVolumeClaim %s, and StorageClass %s", name, class.Name)
	}
	return "", ""
}

// observeClasses reads the classes of claims that do not move by themselves.
func (r *Reader) observeClasses(ctx context.Context, s *Instance) error {
	if s.Launcher == nil {
		return nil
	}
	return r.ReadClasses(ctx, s)
}

// ReadClasses reads the classes of the claims that one node can have at a time.
func (r *Reader) ReadClasses(ctx context.Context, s *Instance) error {
	s.Classes = map[string]*storagev1.StorageClass{}
	for _, d := range s.GuestDisks() {
		name := ""
		if d.Stays() {
			name = ptr.Deref(d.Claim.Spec.StorageClassName, "")
		}
		if name == "" || s.Classes[name] != nil {
			continue
		}
		class, err := cluster.Get[storagev1.StorageClass](ctx, r.Cached, "", name)
		if err != nil {
			return err
		}
		s.Classes[name] = class
	}
	return nil
}
