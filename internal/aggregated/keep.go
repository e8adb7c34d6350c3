package aggregated

import (
	"context"
	"fmt"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// keep has the guest's copy of a volume written to a claim. That the claim was made for it is the claim's to say: the right to keep
// is the right to read the disk, and none to write to claims.
func (s *Server) keep(a asked) (int, any, error) {
	var o kubevirt.KeepOptions
	if err := a.into(&o); err != nil {
		return 0, nil, err
	}
	if o.Name == "" || o.ClaimName == "" {
		return 0, nil, apierrors.NewBadRequest("KeepOptions requires name and claimName to be set")
	}
	return s.carry(a, o.DryRun, func(ctx context.Context) (Change, error) {
		i, err := s.Cluster.Instance(ctx, a.namespace, a.name)
		if err != nil {
			return Change{}, err
		}
		return keepCopy(i, o)
	})
}

// keepCopy returns the change that has a copy kept. A copy is kept in one claim at a time.
func keepCopy(i *kubevirt.VirtualMachineInstance, o kubevirt.KeepOptions) (Change, error) {
	refused := func(format string, args ...any) (Change, error) {
		return Change{}, apierrors.NewConflict(instances, i.Name, fmt.Errorf(format, args...))
	}
	at := slices.IndexFunc(i.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Name == o.Name })
	switch {
	case !runs(i) || i.Status.Phase != kubevirt.PhaseRunning:
		return refused("VMI is not running")
	case at < 0:
		return refused("volume [%s] does not exist", o.Name)
	case i.Spec.Volumes[at].Copied() == nil:
		return refused("the guest has no copy of volume [%s]: it writes to the volume itself", o.Name)
	case i.Spec.Volumes[at].KeepAs == o.ClaimName:
		return Change{}, nil
	case keeping(i, o.Name):
		return refused("the copy of volume [%s] is being kept in claim [%s]; delete that to end it", o.Name, i.Spec.Volumes[at].KeepAs)
	}
	c := Change{Instance: i, Volumes: slices.Clone(i.Spec.Volumes)}
	c.Volumes[at].KeepAs = o.ClaimName
	return c, nil
}

// keeping reports whether the copy of a volume is on its way to a claim.
func keeping(i *kubevirt.VirtualMachineInstance, volume string) bool {
	return slices.ContainsFunc(i.Status.VolumeStatus, func(v kubevirt.VolumeStatus) bool {
		if v.Name != volume || v.Copy == nil || v.Copy.Keep == nil {
			return false
		}
		return v.Copy.Keep.Reason == kubevirt.KeepStarting || v.Copy.Keep.Reason == kubevirt.KeepUnderWay
	})
}
