package machine

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

// kept is a copy that is to be kept in a claim.
type kept struct {
	volume string
	name   string                        // of the claim
	claim  *corev1.PersistentVolumeClaim // nil: there is none
	word   launcherapi.Keep
	plan   machine.KeepPlan
	hot    *hot // the claim on its way to the launcher; nil: it is not to have it
}

// observeKeeps finds the claims that copies are to be kept in, and how far they are. Two have to agree: who may change the instance
// names the claim there, and who may write the claim names the instance on it.
func (r *Reconciler) observeKeeps(ctx context.Context, s *run) error {
	for _, v := range s.instance.Spec.Volumes {
		if v.KeepAs == "" || v.Copied() == nil || s.launcher == nil {
			continue
		}
		k := &kept{volume: v.Name, name: v.KeepAs}
		var err error
		if k.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, s.instance.Namespace, v.KeepAs); err != nil {
			return err
		}
		f := machine.KeepFacts{Claim: s.keepClaim(v.Name, k.claim), Runs: s.released() && situation(s.launcher) == machine.Up}
		if k.claim != nil {
			word, said := s.returns.Keeps[string(k.claim.UID)]
			f.Word, k.word = keepWord(word, said), word
		}
		k.plan = machine.Keep(f)
		s.kept = append(s.kept, k)
		if k.plan.Bring {
			if k.hot, err = r.keepHot(ctx, s, k); err != nil {
				return err
			}
			s.hot = append(s.hot, k.hot)
		}
	}
	return nil
}

// keepClaim is the claim's part of the decision. What somebody else fills was made for something else.
func (s *run) keepClaim(volume string, c *corev1.PersistentVolumeClaim) machine.KeepClaim {
	switch {
	case c == nil:
		return machine.ClaimGone
	case c.Annotations[names.KeptFrom] != keptFrom(s.instance, volume), len(c.OwnerReferences) > 0, c.Spec.DataSource != nil, c.Spec.DataSourceRef != nil:
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

// keptFrom is what a claim says that is made for a copy of this instance's.
func keptFrom(i *kubevirt.VirtualMachineInstance, volume string) string {
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
func (r *Reconciler) keepHot(ctx context.Context, s *run, k *kept) (*hot, error) {
	v := kubevirt.Volume{Name: render.KeepName(k.volume), VolumeSource: kubevirt.VolumeSource{
		PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: k.name}}}
	d := disk{name: v.Name, claim: k.claim, mode: accessv1.WriteExclusive}
	if k.claim.Status.Phase != corev1.ClaimBound {
		waits, err := r.waits(ctx, k.claim)
		if err != nil {
			return nil, err
		}
		d.is, d.why = machine.Filling, pending(k.claim)
		if waits {
			d.is = machine.Unbound // its holder is the first consumer
		}
	}
	if err := r.identify(ctx, &d); err != nil {
		return nil, err
	}
	if !d.block() {
		size, err := r.emptySize(ctx, k.claim)
		if err != nil {
			return nil, err
		}
		d.empty = size
	}
	if err := r.observeAccess(ctx, &s.base, &d, s.allDisks()); err != nil {
		return nil, err
	}
	return &hot{disk: d, wanted: true, keep: &launcherapi.KeepOrder{Volume: k.volume, Claim: string(k.claim.UID)},
		pods: render.Hot{Machine: s.pods, Launcher: s.launcher, Volume: v, Block: d.block(), Empty: d.empty}}, nil
}

// keepCopies records on the claims what the decision says.
func (r *Reconciler) keepCopies(ctx context.Context, s *run) error {
	for _, k := range s.kept {
		for _, a := range k.plan.Do {
			if err := r.recordKeep(ctx, a, k); err != nil {
				return fmt.Errorf("%s of volume %s: %w", a, k.volume, err)
			}
		}
	}
	return nil
}

func (r *Reconciler) recordKeep(ctx context.Context, a machine.Action, k *kept) error {
	phase := corev1.PodRunning
	if a == machine.RecordKept {
		phase = corev1.PodSucceeded
	}
	marks := map[string]string{clonesource.AnnPodPhase: string(phase)}
	if a == machine.RecordKept && k.word.Total > 0 {
		marks[names.DiskSize] = strconv.FormatInt(k.word.Total, 10)
	}
	return r.cluster.Mark(ctx, k.claim, cluster.Marks{Annotations: marks})
}

// holdsEnd: an instance that is being deleted waits for a copy that is being kept. What a launcher said whose node is away says nothing.
func (s *run) holdsEnd() bool {
	return !s.away && slices.ContainsFunc(s.kept, func(k *kept) bool { return k.plan.Hold })
}

// keepStatus is what is said of the claim that the copy of a volume is kept in; nil if there is none.
func (s *run) keepStatus(volume string) *kubevirt.KeepStatus {
	at := slices.IndexFunc(s.kept, func(k *kept) bool { return k.volume == volume })
	if at < 0 {
		return nil
	}
	k := s.kept[at]
	out := &kubevirt.KeepStatus{ClaimName: k.name, Reason: k.plan.Reason, Message: s.keepText(k)}
	switch {
	case k.plan.Reason == kubevirt.KeepDone:
		out.Progress = "100%"
	case k.plan.Reason == kubevirt.KeepUnderWay && k.word.Total > 0:
		out.Progress = fmt.Sprintf("%d%%", min(k.word.Done*100/k.word.Total, 99))
	}
	return out
}

func (s *run) keepText(k *kept) string {
	claim := "PersistentVolumeClaim " + k.name
	mark := fmt.Sprintf("annotation %s: %s", names.KeptFrom, keptFrom(s.instance, k.volume))
	switch k.plan.Reason {
	case kubevirt.KeepClaimMissing:
		return fmt.Sprintf("%s does not exist: make it with the %s, as virtctl vm keep does", claim, mark)
	case kubevirt.KeepNotForIt:
		return fmt.Sprintf("%s was not made for this disk, and nothing is written to it: it would have no source, no owner, and the %s", claim, mark)
	case kubevirt.KeepClaimLeaving:
		return claim + " is being deleted: the disk is not kept"
	case kubevirt.KeepFailed:
		return fmt.Sprintf("%s; delete %s, which does not have the disk, and keep it again in another", k.word.Failed, claim)
	case kubevirt.KeepUnderWay:
		return claim + " is being written"
	case kubevirt.KeepDone:
		return claim + " has the disk"
	}
	if k.hot == nil {
		return claim + " is made ready"
	}
	text := fmt.Sprintf("%s is brought to the guest (%s)", claim, k.hot.plan.Reason)
	if why := s.hotStatus(k.hot).Message; why != "" {
		text += ": " + why
	}
	return text
}

// holdText says what a deleted instance waits for.
func (s *run) holdText() string {
	var texts []string
	for _, k := range s.kept {
		if k.plan.Hold {
			texts = append(texts, fmt.Sprintf("volume %s is being kept in PersistentVolumeClaim %s (%s); delete that to end at once",
				k.volume, k.name, s.keepStatus(k.volume).Progress))
		}
	}
	return strings.Join(texts, "; ")
}

// tellKept makes an event of every copy that was kept, or was not, since the last status.
func (r *Reconciler) tellKept(s *run) {
	for _, k := range s.kept {
		known := slices.ContainsFunc(s.instance.Status.VolumeStatus, func(x kubevirt.VolumeStatus) bool {
			return x.Name == k.volume && x.Copy != nil && x.Copy.Keep != nil && x.Copy.Keep.ClaimName == k.name && x.Copy.Keep.Reason == k.plan.Reason
		})
		text := fmt.Sprintf("volume %s: %s", k.volume, s.keepText(k))
		switch {
		case known:
		case k.plan.Reason == kubevirt.KeepDone:
			r.cluster.Event(s.instance, corev1.EventTypeNormal, "Kept", text)
		case k.plan.Reason == kubevirt.KeepFailed || k.plan.Reason == kubevirt.KeepNotForIt:
			r.cluster.Event(s.instance, corev1.EventTypeWarning, "NotKept", text)
		}
	}
}

// keepAgain is how often to look at a copy that is being kept.
const keepAgain = 2 * time.Second

// keepsOn: some copy is to be kept and may still be.
func (s *run) keepsOn() bool {
	return slices.ContainsFunc(s.kept, func(k *kept) bool { return k.plan.Reason != kubevirt.KeepDone && k.plan.Reason != kubevirt.KeepFailed })
}
