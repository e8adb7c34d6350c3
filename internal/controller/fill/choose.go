package fill

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	reach "k8s.io/component-helpers/storage/volume"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/render"
)

// chooseClone decides how the origin is cloned and finds out what still has to happen before that can begin.
func (e *Engine) chooseClone(ctx context.Context, s *Seen) error {
	o := &s.origin
	if o.claim == nil && o.snapshot == nil || s.lacks != nil {
		return nil
	}
	user, err := e.userOf(ctx, o.claim)
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
		if user != "" {
			o.is(volume.Busy, "pod %s uses it", user)
			o.again = refusedEvery // the pod is not ours to watch
			return nil
		}
		if o.strategy == clone.Stream && s.claim != nil {
			return e.observeServer(ctx, s)
		}
	case clone.Impossible:
		o.fact = volume.Unfit
	}
	return nil
}

func (e *Engine) choose(ctx context.Context, s *Seen, busy bool) error {
	o := &s.origin
	source := clone.Source{IsSnapshot: o.claim == nil, Busy: busy}
	source.Namespace, _ = s.originName()
	target := clone.Target{
		Namespace: s.order.Namespace, Block: s.block(), Made: s.claim != nil, Provisioner: provisioner(s.class),
	}
	if o.claim != nil {
		source.Provisioner = provisioner(o.class)
		source.Block = isBlock(o.claim.Spec.VolumeMode)
	} else {
		source.Provisioner, source.Block = e.snapshotDriver(ctx, o.snapshot), target.Block
	}
	size := s.wanted.Resources.Requests[corev1.ResourceStorage]
	target.Larger = size.Cmp(o.size) > 0
	classes, err := e.abilities(ctx, s)
	if err != nil {
		return err
	}
	if o.claim != nil && s.claim != nil {
		if target.Apart, err = e.apart(ctx, o.claim, s.claim); err != nil {
			return err
		}
	}
	if s.claim == nil {
		if target.Elsewhere, err = e.elsewhere(ctx, s); err != nil {
			return err
		}
	}
	o.strategy, o.why = clone.Choose(source, target, classes)
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
	if c.Driver {
		preferred := ""
		if profile != nil {
			preferred = deref(profile.Status.SnapshotClass)
		}
		c.SnapshotClass, err = e.snapshotClass(ctx, s.class.Provisioner, preferred)
	}
	return c, err
}

// userOf names a pod that writes to a claim, or none. Our own workers only read it.
func (e *Engine) userOf(ctx context.Context, c *corev1.PersistentVolumeClaim) (string, error) {
	if c == nil {
		return "", nil
	}
	var pods corev1.PodList
	if err := e.reader.List(ctx, &pods, client.InNamespace(c.Namespace)); err != nil {
		return "", fmt.Errorf("list pods of %s: %w", c.Namespace, err)
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if uses(pod, c.Name) && pod.Labels[render.LabelApp] != render.App {
			return pod.Namespace + "/" + pod.Name, nil
		}
	}
	return "", nil
}

func uses(pod *corev1.Pod, name string) bool {
	if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
		return false
	}
	for _, v := range pod.Spec.Volumes {
		if p := v.PersistentVolumeClaim; p != nil && p.ClaimName == name && !p.ReadOnly {
			return true
		}
	}
	return false
}

// apart: no node reaches both claims' volumes, so one pod cannot have both.
func (e *Engine) apart(ctx context.Context, a, b *corev1.PersistentVolumeClaim) (bool, error) {
	if a.Spec.VolumeName == "" || b.Spec.VolumeName == "" {
		return false, nil // the scheduler will place what is not placed yet beside the other
	}
	var volumes []*corev1.PersistentVolume
	for _, name := range []string{a.Spec.VolumeName, b.Spec.VolumeName} {
		pv, err := cluster.Get[corev1.PersistentVolume](ctx, e.reader, "", name)
		if err != nil || pv == nil {
			return false, err
		}
		volumes = append(volumes, pv)
	}
	var nodes corev1.NodeList
	if err := e.reader.List(ctx, &nodes); err != nil {
		return false, fmt.Errorf("list nodes: %w", err)
	}
	for i := range nodes.Items {
		labels := nodes.Items[i].Labels
		if reach.CheckNodeAffinity(volumes[0], labels) == nil && reach.CheckNodeAffinity(volumes[1], labels) == nil {
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
