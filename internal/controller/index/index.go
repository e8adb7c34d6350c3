// Package index says by what controllers find pods, claims and volumes in their cache. Without an index the cache looks through all
// objects of a kind for every volume, which takes longer the more others there are in the cluster. It also says what of others'
// pods is kept there.
//
// It knows what is looked for, not what for.
package index

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/controller/replaced"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

// The indexes, for client.MatchingFields.
const (
	// PodClaim finds pods by the claims among their volumes; look in one namespace.
	PodClaim = "podClaim"
	// PodNode finds pods by the node they are on.
	PodNode = "podNode"
	// VolumeUID finds what was made for a volume, pods and claims, by the volume's UID in its labels. A label proves nothing:
	// whoever finds something so has to look whose it is.
	VolumeUID = "volumeUID"
	// VolumeDisk finds PersistentVolumes by the name of the identity of their disk: two may lead to one disk.
	VolumeDisk = "volumeDisk"
	// PodServes finds servers by whom they work for in another namespace, namespace/name. That is an annotation, and proves no more.
	PodServes = "podServes"
	// VolumeMoved finds volumes by the claims that their record of a move names, namespace/name: the one whose data they have, and its
	// replacement.
	VolumeMoved = "volumeMoved"
)

// Index is one of them.
type Index struct {
	Object client.Object
	Field  string
	Of     client.IndexerFunc
}

// All are the indexes that the controllers of volumes need.
func All() []Index {
	return []Index{
		{&corev1.Pod{}, PodClaim, claims},
		{&corev1.Pod{}, PodNode, node},
		{&corev1.Pod{}, VolumeUID, volume},
		{&corev1.Pod{}, PodServes, served},
		{&corev1.PersistentVolumeClaim{}, VolumeUID, volume},
		{&corev1.PersistentVolume{}, VolumeDisk, disk},
		{&corev1.PersistentVolume{}, VolumeMoved, moved},
	}
}

// Register makes the indexes known to a cache, before it is started.
func Register(ctx context.Context, to client.FieldIndexer) error {
	for _, i := range All() {
		if err := to.IndexField(ctx, i.Object, i.Field, i.Of); err != nil {
			return fmt.Errorf("index %T by %s: %w", i.Object, i.Field, err)
		}
	}
	return nil
}

func claims(obj client.Object) []string {
	var names []string
	for _, v := range obj.(*corev1.Pod).Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

func disk(obj client.Object) []string {
	return []string{identity.Volume(obj.(*corev1.PersistentVolume)).Name()}
}

func node(obj client.Object) []string {
	if name := obj.(*corev1.Pod).Spec.NodeName; name != "" {
		return []string{name}
	}
	return nil
}

func volume(obj client.Object) []string {
	if uid := obj.GetLabels()[render.LabelVolumeUID]; uid != "" {
		return []string{uid}
	}
	return nil
}

func served(obj client.Object) []string {
	if whom := obj.GetAnnotations()[names.Serves]; whom != "" && obj.GetLabels()[render.LabelComponent] == render.RoleServe {
		return []string{whom}
	}
	return nil
}

func moved(obj client.Object) []string {
	pv := obj.(*corev1.PersistentVolume)
	claim, ok := replaced.ClaimOf(pv)
	if !ok {
		return nil
	}
	out := []string{claim.String()}
	if v, ok := replaced.Read(pv); ok {
		out = append(out, claim.Namespace+"/"+v.Record.Replacement)
	}
	return out
}
