package diskstate

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/state"
)

// Run is an instance and its pods.
type Run struct {
	Object   *kubevirt.VirtualMachineInstance
	Consumer *corev1.Pod // nil: there is none
	Launcher *corev1.Pod // nil: there is none
	// logins has the addresses where the launcher says that it has logged in, by volume; nil: it has not said so, or they are recorded.
	Logins map[string][]string
}

// Disk is the observed state of one volume that is a disk.
type Disk struct {
	Name      string
	Claim     *corev1.PersistentVolumeClaim // nil: there is none
	Volume    *cdiv1.DataVolume             // nil: the claim is not filled by a DataVolume
	State     machine.Disks
	Unoffered bool                // it is a copy, and nobody has the medium that it is to be kept on
	Why       string              // for a person
	Reason    state.MachineReason // of a disk that Failed and has one of its own
	Undecided bool                // whether it is mounted is known when its claim is bound
	Direct    *netdisk.Behind     // opened without a mount; nil: it is mounted
	Login     *corev1.Secret      // what the disk is opened with, to be made before the launcher; nil: nothing
	PV        *corev1.PersistentVolume
	Beside    *corev1.NodeSelector // where its driver can make it out of what its claim names; nil: everywhere, or it is made
	BesideWhy string               // that it is so, for a person
	Unready   bool                 // it cannot be made yet, because its snapshot is not ready
	ID        identity.Disk        // of a disk that is Ready
	Servers   []string             // the addresses of its servers; empty: they are not known, or it has none
	logsIn    bool                 // it is at a server where the launcher has not logged in yet, as far as is recorded
	Mode      accessv1.Mode
	Access    machine.Access
	Copied    *kubevirt.DiskCopy // the guest has a copy of it; nil: it has the disk itself
	Holds     bool               // the launcher is among its holders
	Early     bool               // it is being filled, and the guest can have it meanwhile
	Grows     int64              // the size that the disk in its claim is to have at least; 0: it has the size that it has
	Empty     int64              // the size of the disk to make in the claim if there is none yet; 0: none is to be made
}

// Disk reads the disk of a volume that is in the claim of that name.
func (r *Reader) Disk(ctx context.Context, s *Run, v kubevirt.Volume, name string) (Disk, error) {
	namespace := s.Object.Namespace
	d := Disk{Name: v.Name, Mode: Mode(v, s.Drive(v.Name)), Copied: v.Copied()}
	var err error
	if d.Claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Cached, namespace, name); err != nil {
		return d, err
	}
	// A claim that a DataVolume fills is not to be booted from before it is full, however the machine names it.
	if r.Data {
		if d.Volume, err = cluster.Get[cdiv1.DataVolume](ctx, r.Cached, namespace, name); err != nil {
			return d, err
		}
	}
	if s.owns(d.Claim) {
		d.Volume = nil // it has only the name of the claim
	}
	d.State, d.Why = d.situation(name)
	if d.Volume == nil && d.Claim != nil && d.State == machine.Ready {
		if err = r.observePlain(ctx, &d); err != nil {
			return d, err
		}
	}
	if d.State == machine.Ready && d.Claim != nil && r.Data {
		if proof, lacks := clonesource.Complete(d.Claim); proof == clonesource.Unproven && (d.Volume == nil || clonesource.Refilled(d.Claim)) {
			d.State, d.Why = machine.Filling, fmt.Sprintf("PersistentVolumeClaim %s is not filled: %s", name, lacks)
			if clonesource.PopulatedByUs(d.Claim) {
				d.Why = Pending(d.Claim)
			}
		}
	}
	d.ObserveEarly(s.Launcher)
	if err := r.observeSource(ctx, &d); err != nil {
		return d, err
	}
	if err := r.Identify(ctx, &d); err != nil {
		return d, err
	}
	if err := r.observeDirect(ctx, s, v, &d); err != nil {
		return d, err
	}
	return d, r.Growth(ctx, &d)
}

// Block reports whether the disk is a device and not a file.
func (d Disk) Block() bool {
	return d.Claim != nil && d.Claim.Spec.VolumeMode != nil && *d.Claim.Spec.VolumeMode == corev1.PersistentVolumeBlock
}

// situation is the disk's part of machine.Disks.
func (d Disk) situation(name string) (machine.Disks, string) {
	switch {
	case d.Volume == nil && d.Claim == nil:
		return machine.Missing, fmt.Sprintf("neither a DataVolume nor a PersistentVolumeClaim %s exists", name)
	case d.Claim != nil && d.Claim.Status.Phase == corev1.ClaimLost:
		return machine.Failed, fmt.Sprintf("PersistentVolumeClaim %s has lost its volume", name)
	case d.Volume == nil:
		return machine.Ready, "" // an unbound one is bound by the launcher itself
	case d.In(cdiv1.Succeeded) && d.Claim == nil:
		return machine.Filling, fmt.Sprintf("PersistentVolumeClaim %s of DataVolume %s is gone", name, name)
	case d.In(cdiv1.Succeeded):
		return machine.Ready, ""
	case d.In(cdiv1.WaitForFirstConsumer, cdiv1.PendingPopulation):
		return machine.Held, fmt.Sprintf("DataVolume %s waits for its first consumer", name)
	}
	return VolumeSituation(d.Volume)
}

// VolumeSituation returns the state of a disk whose DataVolume has not Succeeded and does not wait for a consumer.
func VolumeSituation(v *cdiv1.DataVolume) (machine.Disks, string) {
	switch {
	case v.Status.Phase == cdiv1.Failed:
		return machine.Failed, fmt.Sprintf("DataVolume %s failed: %s", v.Name, message(v))
	case tryFailed(v):
		return machine.Failing, Filling(v)
	}
	return machine.Filling, Filling(v)
}

// tryFailed reports whether the last try to fill a volume failed, by the reasons that every data side has in its Running condition.
func tryFailed(v *cdiv1.DataVolume) bool {
	return slices.ContainsFunc(v.Status.Conditions, func(c cdiv1.DataVolumeCondition) bool {
		return c.Type == cdiv1.DataVolumeRunning && c.Status == corev1.ConditionFalse && (c.Reason == "Error" || c.Reason == "ImagePullFailed")
	})
}

// In reports whether the DataVolume of the disk is in one of the phases.
func (d Disk) In(phases ...cdiv1.DataVolumePhase) bool {
	return slices.Contains(phases, d.Volume.Status.Phase)
}

// Filling describes the progress of a volume.
func Filling(v *cdiv1.DataVolume) string {
	phase := v.Status.Phase
	if phase == cdiv1.PhaseUnset {
		phase = cdiv1.Pending
	}
	text := fmt.Sprintf("DataVolume %s is %s", v.Name, phase)
	if v.Status.Progress != "" && v.Status.Progress != "N/A" {
		text += fmt.Sprintf(" (%s)", v.Status.Progress)
	}
	if m := message(v); m != "" {
		text += ": " + m
	}
	return text
}

func message(v *cdiv1.DataVolume) string {
	for _, c := range v.Status.Conditions {
		if c.Type == cdiv1.DataVolumeReady {
			return c.Message
		}
	}
	return ""
}
