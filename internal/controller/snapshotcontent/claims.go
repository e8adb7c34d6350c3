package snapshotcontent

import (
	"maps"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/names"
)

// AnnRestore is on a claim or a machine that a restore made: the restore's UID.
const AnnRestore = "berth.dev/restore"

// Annotations by which a claim and its DataVolume say that the data is there, so that nothing is imported again.
const (
	AnnPopulatedFor = names.PopulatedFor // on a claim: the DataVolume it is for
	AnnPrePopulated = names.PrePopulated // on a DataVolume: it waits for its claim and makes none
)

// VolumeClaim is the claim of a machine's volume.
type VolumeClaim struct {
	Claim      string // "": it is in no claim
	Template   string // the claim template it is made from, if any
	DataVolume string // the DataVolume, if the machine names one
	Own        bool   // ... which is made from one of the machine's templates
}

// ClaimFor returns the claim that a volume of the machine called name is in.
func ClaimFor(name string, spec *kubevirt.VirtualMachineSpec, v kubevirt.Volume) VolumeClaim {
	var h VolumeClaim
	switch {
	case v.DataVolume != nil:
		h = VolumeClaim{Claim: v.DataVolume.Name, DataVolume: v.DataVolume.Name}
	case v.PersistentVolumeClaim != nil:
		h = VolumeClaim{Claim: v.PersistentVolumeClaim.Claim()}
	default:
		return VolumeClaim{}
	}
	for i := range spec.DataVolumeTemplates {
		if spec.DataVolumeTemplates[i].ObjectMeta.Name == h.Claim {
			h.DataVolume, h.Own = h.Claim, true
			return h
		}
	}
	for i := range spec.VolumeClaimTemplates {
		if t := spec.VolumeClaimTemplates[i].ObjectMeta.Name; h.DataVolume == "" && t == h.Claim {
			return VolumeClaim{Claim: kubevirt.ClaimName(name, t), Template: t}
		}
	}
	return h
}

// ClaimOf returns the claim that a volume of the machine called name is in; empty: it is in none.
func ClaimOf(name string, spec *kubevirt.VirtualMachineSpec, v kubevirt.Volume) string {
	return ClaimFor(name, spec, v).Claim
}

// LeftOut lists the volumes of the machine in a snapshot that are in claims and that the snapshot has no copy of. A machine that is
// made from the snapshot under another name would use the claims of the first.
func LeftOut(c *snapshotv1.VirtualMachineSnapshotContent) []string {
	var out []string
	was := c.Spec.Source.VirtualMachine
	for _, v := range was.Spec.Template.Spec.AllVolumes() {
		if ClaimFor(was.ObjectMeta.Name, &was.Spec, v).Claim == "" || v.Copied() != nil {
			continue
		}
		has := false
		for _, b := range c.Spec.VolumeBackups {
			has = has || b.VolumeName == v.Name
		}
		if !has {
			out = append(out, v.Name)
		}
	}
	return out
}

// asWas returns a claim as it can be made again, and the volume that it has now, which others read.
func asWas(c *corev1.PersistentVolumeClaim, snapshots string) snapshotv1.PersistentVolumeClaim {
	out := snapshotv1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: c.Name, Namespace: c.Namespace, Labels: maps.Clone(c.Labels), Annotations: maps.Clone(c.Annotations)},
		Spec:       *c.Spec.DeepCopy(),
	}
	if out.ObjectMeta.Annotations == nil {
		out.ObjectMeta.Annotations = map[string]string{}
	}
	for k := range out.ObjectMeta.Annotations {
		// What binding leaves behind; but for the node: the copy is on the same one.
		if strings.HasPrefix(k, "pv.kubernetes.io/") || strings.Contains(k, "storage-provisioner") {
			delete(out.ObjectMeta.Annotations, k)
		}
	}
	delete(out.ObjectMeta.Annotations, AnnRestore)
	out.ObjectMeta.Annotations[AnnSnapshotClass] = snapshots
	if size, ok := c.Status.Capacity[corev1.ResourceStorage]; ok {
		out.Spec.Resources.Requests[corev1.ResourceStorage] = size // a claim may have been given more than it asked for
	}
	return out
}
