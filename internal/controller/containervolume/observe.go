package containervolume

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/containervolume"
	"github.com/berth-vm/berth/internal/render"
)

// volume is one volume of a machine that a container makes, or has made, and everything its next step depends on.
type volume struct {
	name     string
	vm       *kubevirt.VirtualMachine         // nil: it is gone
	want     *kubevirt.ContainerSource        // nil: the machine does not list it, or is being deleted
	record   *accessv1.ContainerVolume        // nil: there is none
	pod      *corev1.Pod                      // nil: there is none
	instance *kubevirt.VirtualMachineInstance // that has the volume; nil: none has
	wish     containervolume.Wish
	keysDue  bool

	forgotten bool
}

// observe finds the volumes that the machine lists and those that records are left of.
func (r *Reconciler) observe(ctx context.Context, vm *kubevirt.VirtualMachine, req ctrl.Request) ([]*volume, error) {
	var volumes []*volume
	if vm != nil && vm.DeletionTimestamp == nil && vm.Spec.Template != nil {
		for _, v := range vm.Spec.Template.Spec.AllVolumes() {
			if v.Container == nil {
				continue
			}
			volumes = append(volumes, &volume{name: v.Name, vm: vm, want: v.Container})
		}
	}
	var records accessv1.ContainerVolumeList
	if err := r.reader.List(ctx, &records, client.InNamespace(req.Namespace), client.MatchingLabels{render.LabelMaker: req.Name}); err != nil {
		return nil, fmt.Errorf("list the volumes of machine %s: %w", req.Name, err)
	}
	for i := range records.Items {
		record := &records.Items[i]
		own := vm != nil && record.Spec.MachineUID == vm.UID
		at := slices.IndexFunc(volumes, func(v *volume) bool { return own && v.name == record.Spec.Volume })
		switch {
		case at >= 0:
			volumes[at].record = record
		case own:
			volumes = append(volumes, &volume{name: record.Spec.Volume, vm: vm, record: record})
		default:
			volumes = append(volumes, &volume{name: record.Spec.Volume, record: record})
		}
	}
	var out []*volume
	for _, v := range volumes {
		fine, err := r.look(ctx, v)
		if err != nil {
			return nil, err
		}
		if fine {
			out = append(out, v)
		}
	}
	return out, nil
}

// look reads the rest of what one volume depends on. It is false for a volume whose container may not be run and never was: the machine
// says why.
func (r *Reconciler) look(ctx context.Context, v *volume) (bool, error) {
	if v.want != nil {
		why, err := render.Restricted(v.want)
		if err != nil {
			return false, err
		}
		switch {
		case why != "" && v.record == nil:
			return false, nil
		case why != "":
			v.want = v.record.Spec.Container.DeepCopy() // the one that was allowed goes on
		}
	}
	v.wish = v.wishes()
	if v.wish != containervolume.Wanted {
		v.want = nil
	}
	if v.record == nil {
		return true, nil
	}
	var err error
	if v.pod, err = cluster.Owned[corev1.Pod](ctx, r.reader, v.record.UID, v.record.Namespace, v.record.Name); err != nil {
		return false, err
	}
	if err := r.lookAtNamespace(ctx, v); err != nil {
		return false, err
	}
	if v.instance, err = r.holder(ctx, v); err != nil {
		return false, err
	}
	return true, r.lookAtKeys(ctx, v)
}

// lookAtNamespace finds out why a pod is missing or being deleted. A namespace that is deleted loses all of its pods first, which
// would be too late for the machine to hear of it: the volume has to be deleted while the container can still run.
func (r *Reconciler) lookAtNamespace(ctx context.Context, v *volume) error {
	if v.wish != containervolume.Wanted || v.pod != nil && v.pod.DeletionTimestamp == nil {
		return nil
	}
	n, err := cluster.Get[corev1.Namespace](ctx, r.live, "", v.record.Namespace)
	if err == nil && n != nil && n.DeletionTimestamp != nil {
		v.wish, v.want = containervolume.Leaving, nil
	}
	return err
}

func (v *volume) wishes() containervolume.Wish {
	switch {
	case v.vm == nil || v.vm.DeletionTimestamp != nil:
		return containervolume.Leaving
	case v.want == nil || v.record != nil && v.record.DeletionTimestamp != nil:
		return containervolume.Removed // also if the record was deleted: a new one is made afterwards
	}
	return containervolume.Wanted
}

// holder returns the machine's instance if it has the volume. It reads from the API server, not the cache, before a volume is
// deleted or replaced.
func (r *Reconciler) holder(ctx context.Context, v *volume) (*kubevirt.VirtualMachineInstance, error) {
	from := r.reader
	if v.wish != containervolume.Wanted || v.changed() {
		from = r.live
	}
	i, err := cluster.Owned[kubevirt.VirtualMachineInstance](ctx, from, v.record.Spec.MachineUID, v.record.Namespace, v.record.Spec.Machine)
	if err != nil || i == nil {
		return nil, err
	}
	lists := slices.ContainsFunc(i.Spec.Volumes, func(o kubevirt.Volume) bool { return o.Name == v.name })
	if !lists && v.wish != containervolume.Leaving {
		return nil, nil
	}
	return i, nil
}

func (r *Reconciler) lookAtKeys(ctx context.Context, v *volume) error {
	k := v.record.Spec.Keys
	if k == nil {
		v.keysDue = true
		return nil
	}
	trusted, err := r.keys.Trusted(ctx)
	v.keysDue = trusted != k.Trusted || r.keys.Due(k.Until.Time)
	return err
}

func (v *volume) changed() bool {
	return v.want != nil && v.record != nil && !equality.Semantic.DeepEqual(*v.want, v.record.Spec.Container)
}

// facts returns the facts for the decision.
func (v *volume) facts() containervolume.Facts {
	return containervolume.Facts{Wish: v.wish, Record: v.recorded(), Pod: situation(v.pod), Held: v.instance != nil, Changed: v.changed(),
		KeysDue: v.keysDue, Abandoned: v.abandoned()}
}

func (v *volume) recorded() containervolume.Record {
	switch r := v.record; {
	case r == nil:
		return containervolume.NoRecord
	case r.Spec.Deleted:
		return containervolume.Gone
	case r.Spec.Source != nil && (v.pod == nil || v.pod.UID == r.Spec.AnsweredBy):
		return containervolume.Made
	case r.Spec.Asked:
		return containervolume.Asked
	}
	return containervolume.Blank
}

// abandoned reports whether the machine's owner said that what the container made may stay; of a machine that is gone, the
// administrator.
func (v *volume) abandoned() bool {
	said := ""
	if v.vm != nil {
		said = v.vm.Annotations[AnnAbandon]
	}
	if v.record != nil {
		said += "," + v.record.Annotations[AnnAbandon]
	}
	return slices.ContainsFunc(strings.Split(said, ","), func(name string) bool { return strings.TrimSpace(name) == v.name })
}

// grace returns how long the machine's guest may take to end.
func (v *volume) grace() int64 {
	if v.vm == nil || v.vm.Spec.Template == nil {
		return 0
	}
	return render.GracePeriod(v.vm.Spec.Template.Spec)
}

func situation(p *corev1.Pod) containervolume.Pod {
	switch {
	case p == nil:
		return containervolume.NoPod
	case p.DeletionTimestamp != nil && runs(p):
		return containervolume.Closing
	case p.DeletionTimestamp != nil:
		return containervolume.Ending
	case p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded:
		return containervolume.Ended
	case runs(p) && ready(p):
		return containervolume.Up
	}
	return containervolume.Starting
}

func runs(p *corev1.Pod) bool {
	return p.Status.PodIP != "" && slices.ContainsFunc(p.Status.ContainerStatuses, func(c corev1.ContainerStatus) bool { return c.State.Running != nil })
}

func ready(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}
