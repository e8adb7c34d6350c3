package compose

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
)

// Made is the state of a volume that a container makes, as its record says; internal/controller/containervolume writes the record.
type Made struct {
	Reason  state.MachineReason // empty: nothing is to be said
	message string
}

// Row returns the state that the machine reports for the volume.
func (m Made) Row() state.MachineRow {
	row := state.OfMachine(m.Reason)
	row.Message = m.message
	return row
}

// awaits notes a volume that is not made yet; the first stays.
func (w *Machine) awaits(reason state.MachineReason, message string) {
	w.lacks(machine.VolumeAwaited, "%s", message)
	if w.Made.Reason == "" {
		w.Made = Made{reason, message}
	}
}

// observeMade gives the next instance the volumes that containers made, in place of the containers. The record of a container that
// is being replaced is ignored.
func (r *Reader) observeMade(ctx context.Context, w *Machine) error {
	for _, v := range w.Object.Spec.Template.Spec.AllVolumes() {
		if v.Container == nil {
			continue
		}
		if why, err := render.Restricted(v.Container); err != nil {
			return err
		} else if why != "" {
			w.awaits(state.VolumeForbidden, w.volumeText(state.VolumeForbidden, v.Name, why))
			continue
		}
		record, err := cluster.Owned[accessv1.ContainerVolume](ctx, r.Read.Cached, w.Object.UID, w.Object.Namespace, render.MakerName(w.Object.Name, w.Object.UID, v.Name))
		switch {
		case err != nil:
			return err
		case record == nil || !equality.Semantic.DeepEqual(record.Spec.Container, *v.Container):
			w.awaits(state.VolumeStarting, w.volumeText(state.VolumeStarting, v.Name, "its pod is to be started"))
		case record.Spec.Source == nil || record.Spec.Deleted || record.DeletionTimestamp != nil:
			reason, message := state.MachineReason(record.Status.Reason), record.Status.Message
			if reason == "" || reason == state.VolumeMade {
				reason, message = state.VolumeMaking, w.volumeText(state.VolumeMaking, v.Name, "it has not been asked yet")
			}
			w.awaits(reason, message)
		default:
			w.Next.Spec.Made(v.Name, record.Spec.Source)
		}
	}
	return nil
}

func (w *Machine) volumeText(reason state.MachineReason, volume, detail string) string {
	return state.OfMachine(reason).Text(w.Object.Name, fmt.Sprintf("volume %s: %s", volume, detail))
}

// observeLeft finds what a leaving machine waits for: volumes that their containers have not deleted yet, those with trouble first.
func (r *Reader) observeLeft(ctx context.Context, w *Machine) error {
	var records accessv1.ContainerVolumeList
	err := r.Read.Cached.List(ctx, &records, client.InNamespace(w.Object.Namespace), client.MatchingLabels{render.LabelMaker: w.Object.Name})
	if err != nil {
		return fmt.Errorf("list the volumes of machine %s: %w", w.Object.Name, err)
	}
	for _, record := range records.Items {
		reason := state.MachineReason(record.Status.Reason)
		if record.Spec.MachineUID != w.Object.UID || state.OfMachine(reason).Status != kubevirt.StatusTerminating {
			continue
		}
		if w.Made.Reason == "" || reason == state.VolumeNotDeleted {
			w.Made = Made{reason, record.Status.Message}
		}
	}
	return nil
}
