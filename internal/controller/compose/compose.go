package compose

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
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/instancetype"
	"github.com/berth-vm/berth/internal/machinefields"
	"github.com/berth-vm/berth/internal/render"
)

// lacks notes why the machine cannot be started; the first reason stays.
func (w *Machine) lacks(what machine.Means, format string, args ...any) {
	if w.Means == machine.Provided {
		w.Means, w.Why = what, fmt.Sprintf(format, args...)
	}
}

// observeMeans finds out whether the machine has what it takes, and what its instance would be.
func (r *Reader) observeMeans(ctx context.Context, w *Machine) error {
	if err := r.recordedKind(ctx, w); err != nil {
		return err
	}
	if w.Object.DeletionTimestamp != nil {
		return r.observeLeft(ctx, w)
	}
	if err := r.observeBusy(ctx, w); err != nil {
		return err
	}
	if w.Instance != nil && w.Instance.Worst() != machine.Missing && w.followed() {
		return nil // a living instance has all it needs
	}
	before := w.Kind
	defer w.keepRefs(before)
	w.Kind = Kind{}
	if err := r.observeKind(ctx, w, before); err != nil {
		return err
	}
	if err := r.observeClaims(ctx, w); err != nil {
		return err
	}
	w.Next = observed.NewInstance(w.Object)
	if w.Request() == machine.StartPausedAsked {
		w.Next.Spec.StartStrategy = ptr.To(kubevirt.StartPaused)
	}
	err := instancetype.Apply(w.Next, w.Kind.typ, w.Kind.preference)
	var problem *instancetype.Problem
	switch {
	case errors.As(err, &problem):
		w.lacks(machine.KindUnfit, "%s", problem.Text)
	case err != nil:
		return err
	}
	withMemory(&w.Next.Spec.Domain)
	if w.Instances() == machine.Living {
		return r.observeChange(ctx, w)
	}
	unsupported, err := machinefields.Unsupported(w.Next.Spec, "spec.template.spec")
	if err != nil {
		return err
	}
	if unsupported != "" {
		w.lacks(machine.Unsupported, "%s", unsupported)
	}
	return r.observeMade(ctx, w)
}

// recordedKind returns the instance type and preference recorded in the machine's status. A record that does not match the machine
// may be newer than the cache and must not be overwritten, so it is read from the API server.
func (r *Reader) recordedKind(ctx context.Context, w *Machine) error {
	vm := w.Object
	if !recorded(vm) {
		now, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.Read.Live, vm.Namespace, vm.Name)
		if err != nil {
			return err
		}
		if now != nil && now.UID == vm.UID {
			vm = now
		}
	}
	w.Kind.TypeRef, w.Kind.PreferenceRef = vm.Status.InstancetypeRef, vm.Status.PreferenceRef
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
func (w *Machine) keepRefs(before Kind) {
	living := w.Instances() == machine.Living
	if w.Means != machine.Provided || living {
		w.Kind.TypeRef, w.Kind.PreferenceRef = before.TypeRef, before.PreferenceRef
	}
	if living {
		w.Kind.Copies = nil
	}
}

// unsaidMemory is the memory of a guest whose machine does not set any: enough for any cloud image to boot.
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
func (r *Reader) volumeLabels(ctx context.Context, vm *kubevirt.VirtualMachine, name string) (map[string]string, error) {
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
		source, err := clonesource.Labels(ctx, cluster.Reads(r.Read.Live), vm.Namespace, &template.Spec)
		add(source)
		return out, err
	}
	if v.DataVolume != nil {
		err := r.dataVolumeLabels(ctx, vm, v.DataVolume.Name, add)
		return out, err
	}
	if claim, _ := render.ClaimOf(v); claim != "" {
		c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Read.Cached, vm.Namespace, claim)
		if c != nil {
			add(c.Labels)
		}
		return out, err
	}
	return out, nil
}

func (r *Reader) dataVolumeLabels(ctx context.Context, vm *kubevirt.VirtualMachine, name string, add func(map[string]string)) error {
	spec := cdiv1.DataVolumeSpec{}
	for _, t := range vm.Spec.DataVolumeTemplates {
		if t.ObjectMeta.Name == name {
			add(t.ObjectMeta.Labels)
			spec = t.Spec
		}
	}
	volume, err := cluster.Get[cdiv1.DataVolume](ctx, r.Read.Cached, vm.Namespace, name)
	if err != nil {
		return err
	}
	if volume != nil {
		add(volume.Labels)
		spec = volume.Spec
	}
	labels, err := clonesource.VolumeLabels(ctx, cluster.Reads(r.Read.Live), vm.Namespace, &spec)
	add(labels)
	return err
}

// PreferClass gives a volume that names no class the one its machine's preference names.
func (k *Kind) PreferClass(spec *cdiv1.DataVolumeSpec) {
	class := k.class()
	switch {
	case class == "":
	case spec.Storage != nil && spec.Storage.StorageClassName == nil:
		spec.Storage.StorageClassName = &class
	case spec.PVC != nil && spec.PVC.StorageClassName == nil:
		spec.PVC.StorageClassName = &class
	}
}
