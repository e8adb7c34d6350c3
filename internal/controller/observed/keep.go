package observed

import (
	"context"
	"slices"

	corev1 "k8s.io/api/core/v1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

// Kept is a copy that is to be kept in a claim.
type Kept struct {
	Volume string
	Name   string                        // of the claim
	Claim  *corev1.PersistentVolumeClaim // nil: there is none
	Word   launcherapi.Keep
	Plan   machine.KeepPlan
	Hot    *Added // the claim on its way to the launcher; nil: it is not to have it
}

// observeKeeps finds the claims that copies are to be kept in, and how far they are. Both sides have to agree: a user who may
// change the instance names the claim there, and a user who may write the claim names the instance on it.
func (r *Reader) observeKeeps(ctx context.Context, s *Instance) error {
	for _, v := range s.Object.Spec.Volumes {
		if v.KeepAs == "" || v.Copied() == nil || s.Launcher == nil {
			continue
		}
		k := &Kept{Volume: v.Name, Name: v.KeepAs}
		var err error
		if k.Claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Cached, s.Object.Namespace, v.KeepAs); err != nil {
			return err
		}
		f := machine.KeepFacts{Claim: s.keepClaim(v.Name, k.Claim), Runs: s.Released() && Situation(s.Launcher) == machine.Up}
		if k.Claim != nil {
			word, said := s.Returns.Keeps[string(k.Claim.UID)]
			f.Word, k.Word = keepWord(word, said), word
		}
		k.Plan = machine.Keep(f)
		s.KeptCopies = append(s.KeptCopies, k)
		if k.Plan.Bring {
			if k.Hot, err = r.keepHot(ctx, s, k); err != nil {
				return err
			}
			s.Added = append(s.Added, k.Hot)
		}
	}
	return nil
}

// keepClaim returns the claim's part of the decision. A claim that another controller fills was made for another purpose.
func (s *Instance) keepClaim(volume string, c *corev1.PersistentVolumeClaim) machine.KeepClaim {
	switch {
	case c == nil:
		return machine.ClaimGone
	case c.Annotations[names.KeptFrom] != KeptFrom(s.Object, volume), len(c.OwnerReferences) > 0, c.Spec.DataSource != nil, c.Spec.DataSourceRef != nil:
		return machine.ClaimForeign
	case c.Annotations[clonesource.AnnPodPhase] == string(corev1.PodSucceeded):
		return machine.ClaimFull
	case c.DeletionTimestamp != nil:
		return machine.ClaimDropped
	case c.Annotations[clonesource.AnnPodPhase] == string(corev1.PodRunning):
		return machine.ClaimBegun
	}
	return machine.ClaimEmpty
}

// KeptFrom returns the annotation of a claim that is made for a copy of this instance.
func KeptFrom(i *kubevirt.VirtualMachineInstance, volume string) string {
	return string(i.UID) + "/" + volume
}

func keepWord(w launcherapi.Keep, said bool) machine.KeepWord {
	switch {
	case !said:
		return machine.KeepSilent
	case w.Failed != "":
		return machine.KeepBroken
	case w.Written:
		return machine.KeepWritten
	}
	return machine.KeepWriting
}

// keepHot is the claim as a volume that is added to the machine: it comes the same way. It is always mounted.
func (r *Reader) keepHot(ctx context.Context, s *Instance, k *Kept) (*Added, error) {
	v := kubevirt.Volume{Name: render.KeepName(k.Volume), VolumeSource: kubevirt.VolumeSource{
		PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: k.Name}}}
	d := diskstate.Disk{Name: v.Name, Claim: k.Claim, Mode: accessv1.WriteExclusive}
	if k.Claim.Status.Phase != corev1.ClaimBound {
		waits, err := r.WaitsForConsumer(ctx, k.Claim)
		if err != nil {
			return nil, err
		}
		d.State, d.Why = machine.Filling, diskstate.Pending(k.Claim)
		if waits {
			d.State = machine.Unbound // its holder is the first consumer
		}
	}
	if err := r.Identify(ctx, &d); err != nil {
		return nil, err
	}
	if !d.Block() {
		size, err := r.EmptySize(ctx, k.Claim)
		if err != nil {
			return nil, err
		}
		d.Empty = size
	}
	if err := r.Access(ctx, &s.Run, &d, s.AllDisks()); err != nil {
		return nil, err
	}
	return &Added{Disk: d, Wanted: true, Keep: &launcherapi.KeepOrder{Volume: k.Volume, Claim: string(k.Claim.UID)},
		Pods: render.Hot{Machine: s.Pods, Launcher: s.Launcher, Volume: v, Block: d.Block(), Empty: d.Empty}}, nil
}

// HoldsEnd reports whether an instance that is deleted waits for a copy that is being kept. Answers of a launcher do not count while its node is away.
func (s *Instance) HoldsEnd() bool {
	return !s.Away && slices.ContainsFunc(s.KeptCopies, func(k *Kept) bool { return k.Plan.Hold })
}
