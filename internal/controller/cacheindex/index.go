// Package cacheindex says by what controllers find pods, claims and volumes in their cache. Without an index the cache looks through all
// objects of a kind for every volume, which takes longer the more others there are in the cluster. It also says what of others'
// pods is kept there.
//
// It knows what is looked for, not what for.
package cacheindex

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/controller/replacedclaim"
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
	// VolumeUID finds the pods and claims that were made for a volume, by the volume's UID in their labels. A label proves nothing:
	// the caller has to check the owner.
	VolumeUID = "volumeUID"
	// VolumeDisk finds PersistentVolumes by the name of the identity of their disk: two may lead to one disk.
	VolumeDisk = "volumeDisk"
	// PodServes finds servers by the object in another namespace that they work for, namespace/name. It is an annotation, and
	// proves no more.
	PodServes = "podServes"
	// VolumeMoved finds volumes by the claims that their record of a move names, namespace/name: the one whose data they have, and its
	// replacement.
	VolumeMoved = "volumeMoved"
)

// Index is one index of the cache.
type Index struct {
	Object client.Object
	Field  string
	Of     client.IndexerFunc
}

// All returns the indexes that the controllers of volumes need.
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
	claim, ok := replacedclaim.ClaimOf(pv)
	if !ok {
		return nil
	}
	out := []string{claim.String()}
	if v, ok := replacedclaim.Read(pv); ok {
		out = append(out, claim.Namespace+"/"+v.Record.Replacement)
	}
	return out
}
