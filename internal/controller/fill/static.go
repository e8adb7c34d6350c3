package fill

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/cacheindex"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/pkg/claim"
)

// A worker writes only to a claim that is known to be empty: the claim was made empty for its order, and its volume was made for
// the claim or was free for any claim. A volume that was reserved for the claim, or a claim whose marks are gone, may hold what
// is wanted: a restored disk, an adopted one, one that a machine has used for years.

// observeReserved finds the volume of the claim if it existed before the claim: the one the claim is bound to, or one that names
// the claim, which will be bound to it. While the claim is not made it finds a volume whose data has to be kept.
func (e *Engine) observeReserved(ctx context.Context, s *Seen) error {
	c := s.claim
	if c == nil {
		return e.observeWaiting(ctx, s)
	}
	if !s.order.owns(c) || c.Annotations[names.PodPhase] == string(corev1.PodSucceeded) {
		return nil
	}
	if name := c.Spec.VolumeName; name != "" {
		var pv corev1.PersistentVolume
		there, err := e.objects.Read(ctx, "", name, &pv)
		if there && !madeFor(&pv, c) {
			s.reserved = &pv
		}
		s.filled = s.order.itself(c) && there && pv.Annotations[cluster.AnnFilledFor] == string(c.UID)
		return err
	}
	volumes, err := e.reservedFor(ctx, c.Namespace, c.Name)
	if err != nil {
		return err
	}
	for i := range volumes {
		if uid := volumes[i].Spec.ClaimRef.UID; (uid == "" || uid == c.UID) && !madeFor(&volumes[i], c) {
			s.reserved = &volumes[i]
		}
	}
	return nil
}

// observeWaiting finds the volume that is reserved for a claim that is not made yet, if such volumes keep their data.
func (e *Engine) observeWaiting(ctx context.Context, s *Seen) error {
	if _, check := s.order.Annotations[names.CheckStatic]; !check {
		return nil
	}
	volumes, err := e.reservedFor(ctx, s.order.Namespace, s.order.Name)
	for i := range volumes {
		if volumes[i].Spec.ClaimRef.UID == "" {
			s.reserved = &volumes[i]
		}
	}
	return err
}

// reservedFor returns the volumes that name a claim.
func (e *Engine) reservedFor(ctx context.Context, namespace, name string) ([]corev1.PersistentVolume, error) {
	var volumes corev1.PersistentVolumeList
	err := e.reader.List(ctx, &volumes, client.MatchingFields{cacheindex.VolumeIndex: cacheindex.VolumeKey(namespace, name)})
	if err != nil {
		return nil, fmt.Errorf("list the volumes reserved for claim %s/%s: %w", namespace, name, err)
	}
	return volumes.Items, nil
}

// reservedSize returns a volume as what the size of its claim is taken from.
func reservedSize(pv *corev1.PersistentVolume) *claim.Source {
	mode := corev1.PersistentVolumeFilesystem
	if pv.Spec.VolumeMode != nil {
		mode = *pv.Spec.VolumeMode
	}
	return &claim.Source{Name: "volume " + pv.Name, VolumeMode: mode, Capacity: pv.Spec.Capacity[corev1.ResourceStorage], Class: pv.Spec.StorageClassName}
}

// listReserved records, on a claim that is about to be made, the volumes that are reserved for it. It cannot be found out
// afterwards: binding leaves the same marks on a reserved volume and on a free one. If the user asks for such volumes to be kept,
// they may have made one a moment ago that the cache does not have yet, so the API server is asked.
func (e *Engine) listReserved(ctx context.Context, s *Seen, c *corev1.PersistentVolumeClaim) error {
	volumes, err := e.reservedFor(ctx, c.Namespace, c.Name)
	if _, check := s.order.Annotations[names.CheckStatic]; check && err == nil {
		var all corev1.PersistentVolumeList
		err = e.live.List(ctx, &all)
		volumes = all.Items
	}
	if err != nil {
		return err
	}
	var waiting []string
	for i := range volumes {
		ref := volumes[i].Spec.ClaimRef
		if ref != nil && ref.Namespace == c.Namespace && ref.Name == c.Name && ref.UID == "" { // a claimRef with a UID was for a claim that is gone, and is never bound again
			waiting = append(waiting, volumes[i].Name)
		}
	}
	if len(waiting) == 0 {
		return nil
	}
	list, err := json.Marshal(waiting)
	c.Annotations[names.VolumeList] = string(list)
	return err
}

// madeFor reports whether the volume was provisioned for this very claim, so it was empty. Provisioners name volumes after the
// claim's UID; the volume of one that does not is younger than the claim, and of the provisioner that was asked.
func madeFor(pv *corev1.PersistentVolume, c *corev1.PersistentVolumeClaim) bool {
	if ref := pv.Spec.ClaimRef; ref == nil || ref.UID != c.UID || c.UID == "" {
		return false
	}
	asked := c.Annotations[names.AskedOf]
	return strings.Contains(pv.Name, string(c.UID)) ||
		asked != "" && pv.Annotations[names.ProvisionedBy] == asked && pv.CreationTimestamp.After(c.CreationTimestamp.Time)
}

// free reports whether the volume was there for any claim that asked for one like it, which is how static volumes are handed out.
func (s observedClaim) free() bool {
	var reserved []string
	if list := s.claim.Annotations[names.VolumeList]; list != "" && json.Unmarshal([]byte(list), &reserved) != nil {
		return false // a list that cannot be read may have named it
	}
	return s.reserved.Annotations[names.BoundByKube] == "yes" && !slices.Contains(reserved, s.reserved.Name)
}

// volumeNamed reports whether the claim is made for a volume that the user named.
func (s observedClaim) volumeNamed() bool {
	switch spec := s.order.Spec; {
	case s.order.itself(s.claim):
		return s.claim.Spec.VolumeName != "" && s.claim.Annotations[names.BoundByKube] != "yes"
	case spec.PVC != nil:
		return spec.PVC.VolumeName == s.reserved.Name
	case spec.Storage != nil:
		return spec.Storage.VolumeName == s.reserved.Name
	}
	return false
}

// found reports whether the claim keeps the contents that it has.
func (s observedClaim) found() bool {
	if s.order.keeps(s.claim) || s.filled && s.worker == nil {
		return true
	}
	_, check := s.order.Annotations[names.CheckStatic]
	return check && s.reserved != nil && (!s.free() || s.volumeNamed())
}

// unwritable returns why no worker may write to the claim, and what to do about it; "" if one may.
func (s observedClaim) unwritable() string {
	switch {
	case s.order.itself(s.claim) && s.claim.Annotations[names.MayFill] != names.Filled:
		return "" // the claim's author ordered it, on the claim itself
	case s.order.itself(s.claim), s.claim.Annotations[names.MayFill] != string(s.order.UID):
		return "there is no record that it was created empty for this volume or that it was filled, so nothing is written to it; look at what is on it: " +
			"to discard that, delete the claim, and it is created again; to keep it, use the claim without the DataVolume"
	case s.reserved != nil && !s.free() && !s.volumeNamed():
		return fmt.Sprintf("volume %s was reserved for it and may hold data; to keep that, set the annotation %s on the DataVolume; "+
			"to have it written over, create the DataVolume with this volume in volumeName", s.reserved.Name, names.CheckStatic)
	}
	return ""
}

// noteFilled records on the volume of a user's claim that it was filled. Annotations of the claim belong to the user: replacing
// it by the original manifest drops our record, which would import again.
func (e *Engine) noteFilled(ctx context.Context, s *Seen) error {
	if !s.order.itself(s.claim) || s.claim.Spec.VolumeName == "" {
		return nil
	}
	// A claim can name a volume of another owner, who would lose their own record.
	pv, err := cluster.VolumeOf(ctx, e.live, s.claim)
	if pv == nil || err != nil || pv.Annotations[cluster.AnnFilledFor] == string(s.claim.UID) {
		return err
	}
	return e.cluster.Mark(ctx, pv, cluster.Marks{Annotations: map[string]string{cluster.AnnFilledFor: string(s.claim.UID)}})
}

// noteKept writes on a DataVolume that its claim was filled before, as its clients expect.
func (e *Engine) noteKept(ctx context.Context, s *Seen) error {
	v, is := s.order.For.(*cdiv1.DataVolume)
	if _, noted := s.order.Annotations[names.PrePopulated]; !is || noted {
		return nil
	}
	s.order.Kept.Annotations = map[string]string{names.PrePopulated: s.order.Name}
	return e.cluster.Mark(ctx, v, s.order.Kept)
}
