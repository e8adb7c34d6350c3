package snapshot

import (
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/token"
)

// Annotations by which a claim and its DataVolume say that the data is there, so that nothing is imported again.
const (
	annPopulatedFor = names.PopulatedFor // on a claim: the DataVolume it is for
	annPrePopulated = names.PrePopulated // on a DataVolume: it waits for its claim and makes none
)

// labelMachine is on every claim made from a template: the machine's name.
const labelMachine = "vm.kubevirt.io/name"

// volumeClaim is the claim of a machine's volume.
type volumeClaim struct {
	claim    string // "": it is in no claim
	template string // the claim template it is made from, if any
	volume   string // the DataVolume, if the machine names one
	own      bool   // ... which is made from one of the machine's templates
}

// homeOf returns the home of a volume of the machine called name.
func homeOf(name string, spec *kubevirt.VirtualMachineSpec, v kubevirt.Volume) volumeClaim {
	var h volumeClaim
	switch {
	case v.DataVolume != nil:
		h = volumeClaim{claim: v.DataVolume.Name, volume: v.DataVolume.Name}
	case v.PersistentVolumeClaim != nil:
		h = volumeClaim{claim: v.PersistentVolumeClaim.Claim()}
	default:
		return volumeClaim{}
	}
	for i := range spec.DataVolumeTemplates {
		if spec.DataVolumeTemplates[i].ObjectMeta.Name == h.claim {
			h.volume, h.own = h.claim, true
			return h
		}
	}
	for i := range spec.VolumeClaimTemplates {
		if t := spec.VolumeClaimTemplates[i].ObjectMeta.Name; h.volume == "" && t == h.claim {
			return volumeClaim{claim: kubevirt.ClaimName(name, t), template: t}
		}
	}
	return h
}

// ClaimOf returns the claim that a volume of the machine called name is in; empty: it is in none.
func ClaimOf(name string, spec *kubevirt.VirtualMachineSpec, v kubevirt.Volume) string {
	return homeOf(name, spec, v).claim
}

// returning is one claim that is put back.
type returning struct {
	volumePart
	home volumeClaim
	to   string                        // what it is called now
	now  *corev1.PersistentVolumeClaim // nil: there is none

	staged stagedClaim // of a restore in place
}

// elsewhere reports whether the target is another machine than the one the snapshot is of.
func (b *observedRestore) elsewhere() bool {
	return b.of.Spec.Target.Name != b.was().ObjectMeta.Name
}

// was returns the machine in the snapshot.
func (b *observedRestore) was() *snapshotv1.VirtualMachine {
	return b.shot.content.Spec.Source.VirtualMachine
}

// returns returns the claims to put back, under the names they get. In its own machine each keeps its name, so that applying the
// machine's manifest again changes nothing; in another, each is named after that machine.
func (b *observedRestore) returns() []returning {
	was := b.was()
	homes := map[string]volumeClaim{}
	for _, v := range was.Spec.Template.Spec.AllVolumes() {
		homes[v.Name] = homeOf(was.ObjectMeta.Name, &was.Spec, v)
	}
	var out []returning
	for _, p := range b.shot.parts {
		c := returning{volumePart: p, home: homes[p.volume], to: p.claim.ObjectMeta.Name}
		if b.elsewhere() {
			c.to = b.moved(c.home, p.volume)
		}
		out = append(out, c)
	}
	return out
}

// moved returns the name in the target of what was in another machine.
func (b *observedRestore) moved(h volumeClaim, volume string) string {
	if h.template != "" {
		volume = h.template
	}
	return kubevirt.ClaimName(b.of.Spec.Target.Name, volume)
}

// volume returns the name of the DataVolume that adopts the claim; "" if none does.
func (b *observedRestore) volume(c returning) string {
	switch {
	case c.home.template != "", b.elsewhere() && !c.home.own:
		return ""
	case b.elsewhere():
		return c.to
	}
	return c.claim.ObjectMeta.Annotations[annPopulatedFor]
}

// made reports whether the target was made by this restore, or will be.
func (b *observedRestore) made() bool {
	return b.vm == nil || b.vm.Annotations[annRestore] == string(b.of.UID)
}

// spec returns the target's spec after the restore. Its run strategy is left as it is.
func (b *observedRestore) spec() (kubevirt.VirtualMachineSpec, error) {
	next := b.moving()
	if b.made() {
		vm, err := b.machineAgain()
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

// moving returns the machine's spec in the snapshot, with its volumes where they are now.
func (b *observedRestore) moving() kubevirt.VirtualMachineSpec {
	was := b.was()
	next := *was.Spec.DeepCopy()
	if !b.elsewhere() {
		return next
	}
	next.Template.Spec.Canonical() // every claim has one place to be renamed in
	for i := range next.Template.Spec.Volumes {
		v := &next.Template.Spec.Volumes[i]
		h := homeOf(was.ObjectMeta.Name, &was.Spec, *v)
		to := b.moved(h, v.Name)
		switch {
		case h.claim == "", h.template != "":
		case h.own:
			b.rename(&next, h.volume, to, v.Name)
			if v.DataVolume != nil {
				v.DataVolume.Name = to
			} else {
				v.PersistentVolumeClaim.ClaimName, v.PersistentVolumeClaim.Name = to, ""
			}
		case b.shot.has(v.Name):
			// The claim is this machine's alone: it has no DataVolume any more.
			v.VolumeSource = kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: to}}
		}
	}
	return next
}

// rename gives a volume template the name it has in another machine, and as its source what its data really comes from:
// the first source may be one that only the first machine's author could read.
func (b *observedRestore) rename(spec *kubevirt.VirtualMachineSpec, from, to, volume string) {
	for i := range spec.DataVolumeTemplates {
		t := &spec.DataVolumeTemplates[i]
		if t.ObjectMeta.Name != from {
			continue
		}
		t.ObjectMeta.Name = to
		for _, p := range b.shot.parts {
			if p.volume == volume {
				t.Spec.SourceRef = nil
				t.Spec.Source = &cdiv1.DataVolumeSource{Snapshot: &cdiv1.DataVolumeSourceSnapshot{Namespace: b.of.Namespace, Name: p.name}}
			}
		}
	}
}

// machineAgain returns the machine as it was, stopped, under the target's name, with what the patches change.
func (b *observedRestore) machineAgain() (*kubevirt.VirtualMachine, error) {
	was := b.was()
	vm := &kubevirt.VirtualMachine{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.of.Namespace, Name: b.of.Spec.Target.Name,
			Labels: maps.Clone(was.ObjectMeta.Labels), Annotations: maps.Clone(was.ObjectMeta.Annotations),
		},
		Spec: b.moving(),
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
	vm.Annotations[annRestore] = string(b.of.UID)
	return vm, nil
}

// again returns a claim as it was, with the content it had.
func (b *observedRestore) again(c returning) *corev1.PersistentVolumeClaim {
	out := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: b.of.Namespace, Name: c.to,
			Labels: maps.Clone(c.claim.ObjectMeta.Labels), Annotations: maps.Clone(c.claim.ObjectMeta.Annotations),
		},
		Spec: *c.claim.Spec.DeepCopy(),
	}
	if out.Annotations == nil {
		out.Annotations = map[string]string{}
	}
	delete(out.Annotations, annSnapshotClass)
	out.Annotations[annRestore] = string(b.of.UID)
	if out.Annotations[annPopulatedFor] != "" {
		out.Annotations[annPopulatedFor] = c.to
	}
	switch volume := b.volume(c); {
	case volume != "":
		out.Annotations[annPopulatedFor] = volume // which takes it as its own when it sees it
	case c.home.template != "", b.elsewhere():
		out.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(b.vm, kubevirt.GroupVersion.WithKind("VirtualMachine"))}
	}
	for key, value := range map[string]string{render.LabelCreatedBy: string(b.vm.UID), labelMachine: b.vm.Name} {
		if out.Labels[key] != "" {
			out.Labels[key] = value
		}
	}
	out.Spec.VolumeName, out.Spec.Selector = "", nil
	out.Spec.DataSource, out.Spec.DataSourceRef = nil, snapshotRef(c.volumePart)
	return out
}

// belongs reports whether the claim is the one that the restore is to replace.
func (b *observedRestore) belongs(c *corev1.PersistentVolumeClaim, volume string) bool {
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
