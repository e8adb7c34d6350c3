package fill

import (
	"context"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	reach "k8s.io/component-helpers/storage/volume"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// chooseClone decides how the origin is cloned and finds out what still has to happen before that can begin.
func (e *Engine) chooseClone(ctx context.Context, s *Seen) error {
	o := &s.origin
	if o.claim == nil && o.snapshot == nil || s.lacks != nil {
		return nil
	}
	if s.claim != nil {
		if err := e.observeAids(ctx, s); err != nil {
			return err
		}
		var err error
		if o.home, err = e.home(ctx, s); err != nil {
			return err
		}
	}
	user, err := e.userOf(ctx, s)
	if err != nil {
		return err
	}
	if err := e.choose(ctx, s, user != ""); err != nil {
		return err
	}
	switch o.strategy {
	case clone.CSIClone:
		o.flow = volume.Provision
		s.wanted.DataSource = &corev1.TypedLocalObjectReference{Kind: "PersistentVolumeClaim", Name: o.claim.Name}
	case clone.Snapshot:
		o.flow = volume.Restore
		return e.prepareSnapshot(ctx, s)
	case clone.Copy, clone.Stream:
		if s.source.Snapshot != nil {
			o.via = s.source.Snapshot.Name
		} else if err := e.freeze(ctx, s, user); err != nil || o.fact != volume.Usable {
			return err
		}
		if s.claim != nil {
			return e.readFrom(ctx, s)
		}
	case clone.Impossible:
		o.fact = volume.Unfit
	}
	return nil
}

func (e *Engine) choose(ctx context.Context, s *Seen, busy bool) error {
	o := &s.origin
	source := clone.Source{IsSnapshot: s.source.Snapshot != nil, Busy: busy}
	source.Namespace, _ = s.originName()
	target := clone.Target{
		Namespace: s.order.Namespace, Block: s.block(), Made: s.claim != nil, Provisioner: provisioner(s.class),
	}
	if o.claim != nil {
		source.Provisioner = provisioner(o.class)
		source.Block = isBlock(o.claim.Spec.VolumeMode)
	} else {
		source.Provisioner, source.Block = volumesnapshot.Driver(o.taken), o.block(target.Block)
	}
	size := s.wanted.Resources.Requests[corev1.ResourceStorage]
	target.Larger = size.Cmp(o.size) > 0
	classes, err := e.abilities(ctx, s)
	if err != nil {
		return err
	}
	if s.claim != nil {
		target.Apart, err = e.apart(ctx, s)
	} else {
		target.Elsewhere, err = e.elsewhere(ctx, s)
	}
	if err != nil {
		return err
	}
	o.strategy, o.why = clone.Choose(source, target, classes)
	o.fellBack = clone.FellBack(o.strategy, source, classes)
	o.outdated = o.claim != nil && classes.SnapshotClass != "" && o.strategy != clone.Snapshot
	if s.claim != nil && s.claim.Annotations[annCloneWhy] != "" {
		o.why = s.claim.Annotations[annCloneWhy] // chosen when the claim was made; that it exists now is no reason
	}
	return nil
}

// abilities is what the target's storage can do.
func (e *Engine) abilities(ctx context.Context, s *Seen) (clone.Classes, error) {
	c := clone.Classes{}
	if s.class == nil {
		return c, nil
	}
	driver, err := cluster.Get[storagev1.CSIDriver](ctx, e.reader, "", s.class.Provisioner)
	if err != nil {
		return c, err
	}
	c.Driver = driver != nil
	c.Expands = s.class.AllowVolumeExpansion != nil && *s.class.AllowVolumeExpansion
	profile, err := cluster.Get[cdiv1.StorageProfile](ctx, e.reader, "", s.class.Name)
	if err != nil {
		return c, err
	}
	wanted := s.settings.CloneStrategyOverride
	if profile != nil && wanted == nil {
		wanted = profile.Status.CloneStrategy
	}
	if wanted != nil {
		c.Wanted = clone.Strategy(*wanted)
	}
	if s.order.CloneType != "" {
		c.Wanted, c.Asked = s.order.CloneType, true
	}
	if s.source.Snapshot != nil {
		class, err := e.restoreClass(ctx, s)
		if err != nil {
			return c, err
		}
		if class != nil {
			c.RestoreClass = class.Name
		}
	}
	if c.Driver {
		c.SnapshotClass, err = volumesnapshot.ClassOf(ctx, e.objects, s.class)
	}
	return c, err
}

// apart: no node reaches both the source and the claim's volume, so one pod cannot have both.
func (e *Engine) apart(ctx context.Context, s *Seen) (bool, error) {
	if s.claim.Spec.VolumeName == "" || s.origin.home == nil {
		return false, nil // the scheduler will place what is not placed yet beside the other
	}
	pv, err := cluster.Get[corev1.PersistentVolume](ctx, e.reader, "", s.claim.Spec.VolumeName)
	if err != nil || pv == nil {
		return false, err
	}
	nodes, err := e.nodesIn(ctx, s.origin.home)
	if err != nil {
		return false, err
	}
	for i := range nodes {
		if reach.CheckNodeAffinity(pv, nodes[i].Labels) == nil {
			return false, nil
		}
	}
	return true, nil
}

func provisioner(c *storagev1.StorageClass) string {
	if c == nil {
		return ""
	}
	return strings.TrimSpace(c.Provisioner)
}

func isBlock(mode *corev1.PersistentVolumeMode) bool {
	return mode != nil && *mode == corev1.PersistentVolumeBlock
}
