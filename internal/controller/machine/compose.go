package machine

import (
	"context"
	"errors"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/instancetype"
	"github.com/berth-vm/berth/internal/machinefields"
	"github.com/berth-vm/berth/internal/render"
)

// lacks notes why the machine cannot be started; the first reason stays.
func (w *whole) lacks(what machine.Means, format string, args ...any) {
	if w.means == machine.Provided {
		w.means, w.why = what, fmt.Sprintf(format, args...)
	}
}

// observeMeans finds out whether the machine has what it takes, and what its instance would be.
func (r *Reconciler) observeMeans(ctx context.Context, w *whole) error {
	if err := r.recordedKind(ctx, w); err != nil {
		return err
	}
	if w.vm.DeletionTimestamp != nil {
		return r.observeLeft(ctx, w)
	}
	if err := r.observeBusy(ctx, w); err != nil {
		return err
	}
	if w.run != nil && w.run.worst() != machine.Missing && w.followed() {
		return nil // a living instance has all it needs
	}
	before := w.kind
	defer w.keepRefs(before)
	w.kind = kind{}
	if err := r.observeKind(ctx, w, before); err != nil {
		return err
	}
	if err := r.observeClaims(ctx, w); err != nil {
		return err
	}
	w.next = newInstance(w.vm)
	if w.request() == machine.StartPausedAsked {
		w.next.Spec.StartStrategy = ptr.To(kubevirt.StartPaused)
	}
	err := instancetype.Apply(w.next, w.kind.typ, w.kind.preference)
	var problem *instancetype.Problem
	switch {
	case errors.As(err, &problem):
		w.lacks(machine.KindUnfit, "%s", problem.Text)
	case err != nil:
		return err
	}
	withMemory(&w.next.Spec.Domain)
	if w.instances() == machine.Living {
		return r.observeChange(ctx, w)
	}
	unsupported, err := machinefields.Unsupported(w.next.Spec, "spec.template.spec")
	if err != nil {
		return err
	}
	if unsupported != "" {
		w.lacks(machine.Unsupported, "%s", unsupported)
	}
	return r.observeMade(ctx, w)
}

// recordedKind is what the machine's status says of its instance type and preference. A record that does not fit the
// machine may only be one that the cache has not heard of, and must not be taken back: the server is asked.
func (r *Reconciler) recordedKind(ctx context.Context, w *whole) error {
	vm := w.vm
	if !recorded(vm) {
		now, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.live, vm.Namespace, vm.Name)
		if err != nil {
			return err
		}
		if now != nil && now.UID == vm.UID {
			vm = now
		}
	}
	w.kind.typeRef, w.kind.preferenceRef = vm.Status.InstancetypeRef, vm.Status.PreferenceRef
	return nil
}

// recorded: the record names what the machine names.
func recorded(vm *kubevirt.VirtualMachine) bool {
	fits := func(name string, ref *kubevirt.InstancetypeStatusRef) bool {
		return ref != nil && (name == "" || name == ref.Name)
	}
	t, p := vm.Spec.Instancetype, vm.Spec.Preference
	return (t == nil || fits(t.Name, vm.Status.InstancetypeRef)) && (p == nil || fits(p.Name, vm.Status.PreferenceRef))
}

// keepRefs leaves the record of what the machine was started with as it is while that is not to be changed, and while the guest runs.
func (w *whole) keepRefs(before kind) {
	living := w.instances() == machine.Living
	if w.means != machine.Provided || living {
		w.kind.typeRef, w.kind.preferenceRef = before.typeRef, before.preferenceRef
	}
	if living {
		w.kind.copies = nil
	}
}

// createCopies makes what the machine's record of its instance type and preference will name.
func (r *Reconciler) createCopies(ctx context.Context, w *whole) error {
	for _, c := range w.kind.copies {
		if err := r.cluster.Create(ctx, c); err != nil {
			return err
		}
	}
	return nil
}

// nameClaims gives every volume that names a claim template the name of its claim, and every other the spelling that
// instances have.
func nameClaims(vm *kubevirt.VirtualMachine, volumes []kubevirt.Volume) {
	full := func(name string) string {
		for i := range vm.Spec.VolumeClaimTemplates {
			if vm.Spec.VolumeClaimTemplates[i].ObjectMeta.Name == name {
				return kubevirt.ClaimName(vm.Name, name)
			}
		}
		return name
	}
	for i := range volumes {
		if c := volumes[i].PersistentVolumeClaim; c != nil {
			c.ClaimName, c.Name = full(c.Claim()), ""
		}
		if e := volumes[i].Ephemeral; e != nil && e.PersistentVolumeClaim != nil {
			e.PersistentVolumeClaim.ClaimName = full(e.PersistentVolumeClaim.ClaimName)
		}
	}
}

// unsaidMemory is what a guest gets whose machine says nothing at all: enough for any cloud image to boot.
var unsaidMemory = resource.MustParse("512Mi")

func withMemory(d *kubevirt.DomainSpec) {
	_, requested := d.Resources.Requests[corev1.ResourceMemory]
	if requested || d.Memory != nil && d.Memory.Guest != nil {
		return
	}
	guest := unsaidMemory.DeepCopy()
	d.Memory = &kubevirt.Memory{Guest: &guest}
}

// volumeLabels are the labels of a volume of the machine: of its template, its claim or DataVolume, and its source. The
// nearer wins.
func (r *Reconciler) volumeLabels(ctx context.Context, vm *kubevirt.VirtualMachine, name string) (map[string]string, error) {
	out := map[string]string{}
	add := func(labels map[string]string) {
		for k, v := range labels {
			if _, ok := out[k]; !ok {
				out[k] = v
			}
		}
	}
	volumes := vm.Spec.Template.Spec.AllVolumes()
	i := slices.IndexFunc(volumes, func(v kubevirt.Volume) bool { return v.Name == name })
	if i < 0 {
		return out, nil
	}
	v := volumes[i]
	t := slices.IndexFunc(vm.Spec.VolumeClaimTemplates, func(t kubevirt.VolumeClaimTemplate) bool {
		return v.PersistentVolumeClaim != nil && t.ObjectMeta.Name == v.PersistentVolumeClaim.Claim()
	})
	if t >= 0 {
		template := &vm.Spec.VolumeClaimTemplates[t]
		add(template.ObjectMeta.Labels)
		source, err := clonesource.Labels(ctx, cluster.Reads(r.live), vm.Namespace, &template.Spec)
		add(source)
		return out, err
	}
	if v.DataVolume != nil {
		err := r.dataVolumeLabels(ctx, vm, v.DataVolume.Name, add)
		return out, err
	}
	if claim, _ := render.ClaimOf(v); claim != "" {
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, vm.Namespace, claim)
		if c != nil {
			add(c.Labels)
		}
		return out, err
	}
	return out, nil
}

func (r *Reconciler) dataVolumeLabels(ctx context.Context, vm *kubevirt.VirtualMachine, name string, add func(map[string]string)) error {
	spec := cdiv1.DataVolumeSpec{}
	for _, t := range vm.Spec.DataVolumeTemplates {
		if t.ObjectMeta.Name == name {
			add(t.ObjectMeta.Labels)
			spec = t.Spec
		}
	}
	volume, err := cluster.Get[cdiv1.DataVolume](ctx, r.reader, vm.Namespace, name)
	if err != nil {
		return err
	}
	if volume != nil {
		add(volume.Labels)
		spec = volume.Spec
	}
	labels, err := clonesource.VolumeLabels(ctx, cluster.Reads(r.live), vm.Namespace, &spec)
	add(labels)
	return err
}

// preferClass gives a volume that names no class the one its machine's preference names.
func (k *kind) preferClass(spec *cdiv1.DataVolumeSpec) {
	class := k.class()
	switch {
	case class == "":
	case spec.Storage != nil && spec.Storage.StorageClassName == nil:
		spec.Storage.StorageClassName = &class
	case spec.PVC != nil && spec.PVC.StorageClassName == nil:
		spec.PVC.StorageClassName = &class
	}
}
