package clone

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/decide/clonenode"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/pkg/claim"
)

// observePlace reads what it depends on where a clone is made.
func (c *observer) observePlace(ctx context.Context, s *Seen, found clonesource.Found) error {
	var err error
	if s.home, err = found.Home(ctx, c.objects); err != nil || s.home == nil {
		return err
	}
	homes, err := nodeselect.In(ctx, c.reader, s.home)
	if err != nil {
		return err
	}
	s.place = clonenode.Facts{Bound: true, Free: s.target.Claim == nil && !claim.Waits(s.target.Class)}
	for i := range homes {
		s.place.Homes = append(s.place.Homes, homes[i].Name)
	}
	if s.order.Placed {
		s.place.Chosen = s.order.Annotations[names.SelectedNode]
	}
	if s.place.Chosen != "" {
		return nil // the scheduler has already been asked for the claim's user
	}
	var users corev1.PodList
	of := client.MatchingFields{cacheindex.PodClaim: s.order.Name}
	if err := c.reader.List(ctx, &users, client.InNamespace(s.order.Namespace), of); err != nil {
		return fmt.Errorf("list pods that use %s/%s: %w", s.order.Namespace, s.order.Name, err)
	}
	for i := range users.Items {
		pod := &users.Items[i]
		if !unplaced(pod, s.order.Name) || pod.Labels[render.LabelApp] == render.App {
			continue
		}
		where, err := c.among(ctx, homes, pod)
		if err != nil {
			return err
		}
		s.place.Pods = append(s.place.Pods, where)
	}
	return nil
}

// among returns which of the nodes would have a pod. It looks no further than to the first.
func (c *observer) among(ctx context.Context, homes []corev1.Node, pod *corev1.Pod) (clonenode.Pod, error) {
	p := clonenode.Pod{Name: pod.Name, Why: clonenode.Never}
	disks, err := c.disks(ctx, pod)
	if err != nil {
		return p, err
	}
	for i := range homes {
		var others corev1.PodList
		// A node may have hundreds of pods, and they are only read here, so they are not copied out of the cache.
		on := client.MatchingFields{cacheindex.PodNode: homes[i].Name}
		if err := c.reader.List(ctx, &others, on, client.UnsafeDisableDeepCopy); err != nil {
			return p, fmt.Errorf("list pods on %s: %w", homes[i].Name, err)
		}
		if p.Why = clonenode.Refuses(&homes[i], others.Items, pod, disks); p.Why == clonenode.Fits {
			p.Home = homes[i].Name
			return p, nil
		}
	}
	return p, nil
}

// disks returns the volumes of a pod's claims that are bound.
func (c *observer) disks(ctx context.Context, pod *corev1.Pod) ([]corev1.PersistentVolume, error) {
	var disks []corev1.PersistentVolume
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim == nil {
			continue
		}
		of, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, c.reader, pod.Namespace, v.PersistentVolumeClaim.ClaimName)
		if err != nil {
			return nil, err
		}
		pv, err := c.volumeOf(ctx, of)
		if err != nil {
			return nil, err
		}
		if pv != nil {
			disks = append(disks, *pv)
		}
	}
	return disks, nil
}

// placeClaim has the claim made beside its source.
func (c *Cloner) placeClaim(ctx context.Context, s *Seen) error {
	path := "/metadata/annotations/" + strings.ReplaceAll(names.SelectedNode, "/", "~1")
	err := c.cluster.Patch(ctx, s.target.Claim.DeepCopy(), cluster.Unchanged(s.target.Claim),
		cluster.Operation{Op: "add", Path: path, Value: s.where.Beside})
	if apierrors.IsConflict(err) {
		return cluster.ErrStale // the scheduler was faster; it is asked again
	}
	return err
}

// unplaced reports whether a pod that has no node yet, and has not ended, has the claim among its volumes.
func unplaced(pod *corev1.Pod, claim string) bool {
	has, _ := pods.Has(pod, claim)
	return has && pod.Status.Phase == corev1.PodPending && pod.DeletionTimestamp == nil
}
