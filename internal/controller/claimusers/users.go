// Package claimusers finds the pods that may write to the disk behind a claim. Controllers that read a disk without being its
// owner (clones, exports, snapshots, moves of machines that do not run) use it. It compares disks, not claims: after a move two
// claims may lead to one volume, and an administrator may have made two PersistentVolumes of one.
//
// It does not know the content of a claim, nor whether it is complete; internal/clonesource does. Pods of Berth are in the records
// of internal/controller/diskaccess as well.
package claimusers

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
)

// disk returns the identity of the disk behind a claim; false if the claim is not bound. What a claim says of its volume counts when
// the volume says the same.
func disk(ctx context.Context, reader client.Reader, claim *corev1.PersistentVolumeClaim) (identity.Disk, bool, error) {
	if claim == nil || claim.Status.Phase != corev1.ClaimBound {
		return identity.Disk{}, false, nil
	}
	pv, err := cluster.VolumeOf(ctx, reader, claim)
	if err != nil || pv == nil {
		return identity.Disk{}, false, err
	}
	return identity.Volume(pv), true, nil
}

// Of returns the pods that have the disk of a claim, have not ended, and may write to it. A worker that fills it is one; one that reads
// it is not. reader has the indexes of internal/controller/cacheindex.
func Of(ctx context.Context, reader client.Reader, claim *corev1.PersistentVolumeClaim) ([]*corev1.Pod, error) {
	all, err := writers(ctx, reader, claim)
	var out []*corev1.Pod
	for _, pod := range all {
		if !pods.Over(pod) {
			out = append(out, pod)
		}
	}
	return out, err
}

// Since returns those, and the pods that have ended but may have written to the disk after since. The cache does not have when pods of
// others ended, so live, the API server itself, is asked for them.
func Since(ctx context.Context, reader, live client.Reader, claim *corev1.PersistentVolumeClaim, since time.Time) ([]*corev1.Pod, error) {
	all, err := writers(ctx, reader, claim)
	if err != nil {
		return nil, err
	}
	var out []*corev1.Pod
	for _, pod := range all {
		if !pods.Over(pod) {
			out = append(out, pod)
			continue
		}
		if pod.Spec.NodeName == "" {
			continue // it never ran
		}
		now, err := cluster.Get[corev1.Pod](ctx, live, pod.Namespace, pod.Name)
		if err != nil {
			return nil, err
		}
		if now != nil && now.UID == pod.UID && !lastRun(now).Before(since) {
			out = append(out, pod)
		}
	}
	return out, nil
}

// lastRun returns when the last container of a pod that is over ended.
func lastRun(p *corev1.Pod) time.Time {
	last := time.Time{}
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.InitContainerStatuses, p.Status.ContainerStatuses, p.Status.EphemeralContainerStatuses} {
		for _, s := range statuses {
			if t := s.State.Terminated; t != nil && t.FinishedAt.After(last) {
				last = t.FinishedAt.Time
			}
		}
	}
	if last.IsZero() {
		return pods.Ended(p)
	}
	return last
}

// writers returns the pods, ended or not, that have the disk of a claim and can write to it.
func writers(ctx context.Context, reader client.Reader, claim *corev1.PersistentVolumeClaim) ([]*corev1.Pod, error) {
	claims, err := leadingThere(ctx, reader, claim)
	if err != nil {
		return nil, err
	}
	var out []*corev1.Pod
	for _, c := range claims {
		var all corev1.PodList
		if err := reader.List(ctx, &all, client.InNamespace(c.Namespace), client.MatchingFields{cacheindex.PodClaim: c.Name}); err != nil {
			return nil, fmt.Errorf("list pods that use %s/%s: %w", c.Namespace, c.Name, err)
		}
		for i := range all.Items {
			pod := &all.Items[i]
			if _, writes := pods.Has(pod, c.Name); writes && !render.OnlyReads(pod, c.Name) {
				out = append(out, pod)
			}
		}
	}
	return out, nil
}

// leadingThere returns the claims whose volume is the same disk, the claim itself first.
func leadingThere(ctx context.Context, reader client.Reader, claim *corev1.PersistentVolumeClaim) ([]client.ObjectKey, error) {
	out := []client.ObjectKey{client.ObjectKeyFromObject(claim)}
	id, bound, err := disk(ctx, reader, claim)
	if err != nil || !bound {
		return out, err
	}
	var volumes corev1.PersistentVolumeList
	if err := reader.List(ctx, &volumes, client.MatchingFields{cacheindex.VolumeDisk: id.Name()}); err != nil {
		return nil, fmt.Errorf("list the volumes of a disk: %w", err)
	}
	for i := range volumes.Items {
		ref := volumes.Items[i].Spec.ClaimRef
		if ref == nil || ref.UID == claim.UID {
			continue
		}
		other, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, reader, ref.Namespace, ref.Name)
		if err != nil {
			return nil, err
		}
		if other != nil && other.UID != ref.UID {
			continue // a later claim of that name, which has another volume
		}
		out = append(out, client.ObjectKey{Namespace: ref.Namespace, Name: ref.Name})
	}
	return out, nil
}
