package restore

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/token"
)

// labelMachine is on every claim made from a template: the machine's name.
const labelMachine = "vm.kubevirt.io/name"

// target computes the machine and the claims that a restore makes. It does not depend on which of them exist already.
type target struct {
	of   *snapshotv1.VirtualMachineRestore
	vm   *kubevirt.VirtualMachine  // nil: there is none
	data *snapshotcontent.Snapshot // what the snapshot holds; nil: it does not exist
}

// restoredClaim is one claim that is put back.
type restoredClaim struct {
	snapshotcontent.Part
	origin snapshotcontent.VolumeClaim
	to     string                        // what it is called now
	now    *corev1.PersistentVolumeClaim // nil: there is none

	staged stagedClaim // of a restore in place
}

// elsewhere reports whether the target is another machine than the one the snapshot is of.
func (b *target) elsewhere() bool {
	return b.of.Spec.Target.Name != b.was().ObjectMeta.Name
}

// was returns the machine in the snapshot.
func (b *target) was() *snapshotv1.VirtualMachine {
	return b.data.Content.Spec.Source.VirtualMachine
}

// restoredClaims returns the claims to put back, under the names they get. In its own machine each keeps its name, so that applying the
// machine's manifest again changes nothing; in another, each is named after that machine.
func (b *target) restoredClaims() []restoredClaim {
	was := b.was()
	homes := map[string]snapshotcontent.VolumeClaim{}
	for _, v := range was.Spec.Template.Spec.AllVolumes() {
		homes[v.Name] = snapshotcontent.ClaimFor(was.ObjectMeta.Name, &was.Spec, v)
	}
	var out []restoredClaim
	for _, p := range b.data.Parts {
		c := restoredClaim{Part: p, origin: homes[p.Volume], to: p.Claim.ObjectMeta.Name}
		if b.elsewhere() {
			c.to = b.moved(c.origin, p.Volume)
		}
		out = append(out, c)
	}
	return out
}

// moved returns the name in the target of what was in another machine.
func (b *target) moved(h snapshotcontent.VolumeClaim, volume string) string {
	if h.Template != "" {
		volume = h.Template
	}
	return kubevirt.ClaimName(b.of.Spec.Target.Name, volume)
}

// volume returns the name of the DataVolume that adopts the claim; "" if none does.
func (b *target) volume(c restoredClaim) string {
	switch {
	case c.origin.Template != "", b.elsewhere() && !c.origin.Own:
		return ""
	case b.elsewhere():
		return c.to
	}
	return c.Claim.ObjectMeta.Annotations[snapshotcontent.AnnPopulatedFor]
}

// made reports whether the target was made by this restore, or will be.
func (b *target) made() bool {
	return b.vm == nil || b.vm.Annotations[snapshotcontent.AnnRestore] == string(b.of.UID)
}

// spec returns the target's spec after the restore. Its run strategy is left as it is.
func (b *target) spec() (kubevirt.VirtualMachineSpec, error) {
	next := b.movedSpec()
	if b.made() {
		vm, err := b.newMachine()
		if err != nil {
			return next, err
		}
		next = vm.Spec
	}
	if b.vm != nil {
		next.Running, next.RunStrategy = b.vm.Spec.Running, b.vm.Spec.RunStrategy
	}
	return next, nil
}

// movedSpec returns the machine's spec in the snapshot, with its volumes where they are now.
func (b *target) movedSpec() kubevirt.VirtualMachineSpec {
	was := b.was()
	next := *was.Spec.DeepCopy()
	if !b.elsewhere() {
		return next
	}
	next.Template.Spec.Canonical() // every claim has one place to be renamed in
	for i := range next.Template.Spec.Volumes {
		v := &next.Template.Spec.Volumes[i]
		h := snapshotcontent.ClaimFor(was.ObjectMeta.Name, &was.Spec, *v)
		to := b.moved(h, v.Name)
		switch {
		case h.Claim == "", h.Template != "":
		case h.Own:
			b.rename(&next, h.DataVolume, to, v.Name)
			if v.DataVolume != nil {
				v.DataVolume.Name = to
			} else {
				v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.Name = to, ""
			}
		case b.data.Has(v.Name):
			// The claim is this machine's alone: it has no DataVolume any more.
			v.VolumeSource = kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: to}}
		}
	}
	return next
}

// rename gives a volume template the name it has in another machine, and as its source what its data really comes from:
// the first source may be one that only the first machine's author could read.
func (b *target) rename(spec *kubevirt.VirtualMachineSpec, from, to, volume string) {
	for i := range spec.DataVolumeTemplates {
		t := &spec.DataVolumeTemplates[i]
		if t.ObjectMeta.Name != from {
			continue
		}
		t.ObjectMeta.Name = to
		for _, p := range b.data.Parts {
			if p.Volume == volume {
				t.Spec.SourceRef = nil
				t.Spec.Source = &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: b.of.Namespace, Name: p.Name}}
			}
		}
	}
}

// newMachine returns the machine as it was, stopped, under the target's name, with what the patches change.
func (b *target) newMachine() (*kubevirt.VirtualMachine, error) {
	was := b.was()
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.of.Namespace, Name: b.of.Spec.Target.Name,
			Labels: maps.Clone(was.ObjectMeta.Labels), Annotations: maps.Clone(was.ObjectMeta.Annotations),
		},
		Spec: b.movedSpec(),
	}
	vm.Spec.Running, vm.Spec.RunStrategy = nil, ptr.To(kubevirt.RunHalted)
	if vm.Annotations == nil {
		vm.Annotations = map[string]string{}
	}
	// The last-applied annotation describes another object, and a proof of a right to clone is not passed on.
	delete(vm.Annotations, corev1.LastAppliedConfigAnnotation)
	delete(vm.Annotations, token.MachineAnnotation)
	vm, err := patched(vm, b.of.Spec.Patches)
	if err != nil {
		return nil, err
	}
	if vm.Annotations == nil {
		vm.Annotations = map[string]string{}
	}
	delete(vm.Annotations, token.MachineAnnotation) // nor by a patch
	vm.Annotations[snapshotcontent.AnnRestore] = string(b.of.UID)
	return vm, nil
}

// newClaim returns a claim as it was, with the content it had.
func (b *target) newClaim(c restoredClaim) *corev1.PersistentVolumeClaim {
	out := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.of.Namespace, Name: c.to,
			Labels: maps.Clone(c.Claim.ObjectMeta.Labels), Annotations: maps.Clone(c.Claim.ObjectMeta.Annotations),
		},
		Spec: *c.Claim.Spec.DeepCopy(),
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	delete(out.Annotations, snapshotcontent.AnnSnapshotClass)
	out.Annotations[snapshotcontent.AnnRestore] = string(b.of.UID)
	if out.Annotations[snapshotcontent.AnnPopulatedFor] != "" {
		out.Annotations[snapshotcontent.AnnPopulatedFor] = c.to
	}
	switch volume := b.volume(c); {
	case volume != "":
		out.Annotations[snapshotcontent.AnnPopulatedFor] = volume // which takes it as its own when it sees it
	case c.origin.Template != "", b.elsewhere():
		out.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b.vm, kubevirt.GroupVersion.WithKind("VirtualMachine"))}
	}
	for key, value := range map[string]string{render.LabelCreatedBy: string(b.vm.UID), labelMachine: b.vm.Name} {
		if out.Labels[key] != "" {
			out.Labels[key] = value
		}
	}
	out.Spec.VolumeName, out.Spec.Selector = "", nil
	out.Spec.DataSource, out.Spec.DataSourceRef = nil, snapshotRef(c.Part)
	return out
}

// belongs reports whether the claim is the one that the restore is to replace.
func (b *target) belongs(c *corev1.PersistentVolumeClaim, volume string) bool {
	owner := metav1.GetControllerOf(c)
	switch {
	case b.elsewhere():
		return false // nothing there can be what the snapshot was taken of
	case owner == nil:
		return true // the machine names it
	case owner.Kind == "DataVolume":
		return owner.Name == volume
	}
	// A machine that was made again may find the claims of the one before it.
	return owner.UID == b.was().ObjectMeta.UID || b.vm != nil && owner.UID == b.vm.UID
}

// strange says whose a claim in the way is.
func strange(c *corev1.PersistentVolumeClaim) string {
	if o := metav1.GetControllerOf(c); o != nil {
		return fmt.Sprintf("PersistentVolumeClaim %s is owned by %s %s, not by the machine", c.Name, o.Kind, o.Name)
	}
	return fmt.Sprintf("PersistentVolumeClaim %s exists already; delete it, or restore to a machine of another name", c.Name)
}
