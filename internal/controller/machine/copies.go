package machine

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/pkg/claim"
)

// observeCopies finds where the copies of the machine's volumes are to be, and how much room each has. A launcher has that
// already.
func (r *Reconciler) observeCopies(ctx context.Context, s *run) error {
	if s.launcher != nil {
		return nil
	}
	return r.placeCopies(ctx, s)
}

// placeCopies finds where the copies of a launcher that is to be made are.
func (r *Reconciler) placeCopies(ctx context.Context, s *run) error {
	copied := func(v kubevirt.Volume) bool { return v.Copied() != nil }
	if !slices.ContainsFunc(s.instance.Spec.Volumes, copied) {
		return nil
	}
	storage, err := r.storage(ctx)
	if err != nil {
		return err
	}
	for _, v := range s.instance.Spec.Volumes {
		c := v.Copied()
		if c == nil {
			continue
		}
		m, err := s.medium(v.Name, c, storage)
		if err != nil {
			return err
		}
		s.pods.Copies = append(s.pods.Copies, m)
	}
	return nil
}

// medium is where a copy is to be.
func (s *run) medium(volume string, c *kubevirt.DiskCopy, storage claim.Cluster) (render.Copy, error) {
	m := render.Copy{Volume: volume}
	at := slices.IndexFunc(s.disks, func(d disk) bool { return d.name == volume })
	switch {
	case c.Capacity != nil:
		m.Room, m.Claimed = c.Capacity.Value(), true
	case c.Size != nil:
		m.Room = c.Size.Value()
	case at >= 0:
		m.Room = s.disks[at].room()
	}
	class := claim.DefaultCopyClass(storage.Classes)
	if c.UsageType != "" {
		if class = claim.ForUsage(storage.Classes, c.UsageType); class == nil {
			s.unoffered(volume, at, unofferedText(volume, c.UsageType, storage.Classes))
			return m, nil
		}
		if m.Room == 0 {
			m.Room, m.Assumed = launcherapi.ClaimRoom, true
		}
	}
	if class == nil || m.Room == 0 { // how large a claim would have to be is known when the machine starts
		return m, nil
	}
	var err error
	m.Class = class.Name
	m.Size, err = claim.FilesystemOf(class).Inflate(launcherapi.CopyFile(m.Room), claim.OverheadOf(storage.Overhead, class.Name))
	if err != nil {
		return m, fmt.Errorf("find the size of a claim for the copy of volume %s: %w", volume, err)
	}
	return m, nil
}

// unoffered notes that the machine cannot start for want of a medium. A container disk is no disk of its own until then.
func (s *run) unoffered(volume string, at int, why string) {
	if at < 0 {
		at = len(s.disks)
		s.disks = append(s.disks, disk{name: volume})
	}
	d := &s.disks[at]
	if d.why != "" {
		why = d.why + "; " + why
	}
	d.is, d.why, d.unoffered = max(d.is, machine.Missing), why, true
}

// unofferedText says what there is instead of a usage type.
func unofferedText(volume, usage string, classes []storagev1.StorageClass) string {
	text := fmt.Sprintf("the copy of volume %s is to be kept on usage type %s, which no StorageClass offers", volume, usage)
	if there := claim.UsageTypes(classes); len(there) > 0 {
		return text + "; there are: " + strings.Join(there, ", ")
	}
	return text + fmt.Sprintf("; none is offered at all: annotate a StorageClass with %s%s, or leave usageType out", claim.UsageTypePrefix, usage)
}

// room is what the disk in a claim has at most; 0 if that is not known.
func (d disk) room() int64 {
	if d.claim == nil {
		return 0
	}
	if has, ok := d.claim.Status.Capacity[corev1.ResourceStorage]; ok {
		return has.Value()
	}
	asked := d.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	return asked.Value()
}

// released: the launcher was told to go, and was among the holders of all its disks then.
func (s *base) released() bool {
	return s.launcher != nil && s.launcher.Annotations[render.AnnGo] == "yes"
}

// gaveBack: the launcher needed the disk as a master and has it no longer. It was among its holders before it was told to go,
// and only the word that its copy has everything takes it out (giveMasters).
func (s *base) gaveBack(d *disk) bool {
	return d.copied != nil && d.copied.Mode != kubevirt.CopyOnWrite && s.released() && !d.holds
}

// makesCopies: there is a launcher that was told to go and has copies.
func (s *run) makesCopies() bool {
	at := situation(s.launcher)
	return s.released() && (at == machine.Placed || at == machine.Up) &&
		slices.ContainsFunc(s.instance.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Copied() != nil })
}

// copyPlan is what is decided about the copy of a volume.
func (s *run) copyPlan(volume string, c *kubevirt.DiskCopy) machine.CopyPlan {
	said, word := s.returns.Copies[volume]
	f := machine.CopyFacts{Holds: true} // a container disk has no record: nobody else has it
	if at := slices.IndexFunc(s.disks, func(d disk) bool { return d.name == volume }); at >= 0 {
		f.Holds = s.disks[at].holds
	}
	switch c.Mode {
	case kubevirt.CopyOnRead:
		f.Mode = machine.OnRead
	case kubevirt.CopyClone:
		f.Mode = machine.Whole
	case kubevirt.CopyOnWrite, kubevirt.CopyNone:
	}
	switch {
	case word && said.LetGo:
		f.Word = machine.All
	case word:
		f.Word = machine.Part
	}
	return machine.Copy(f)
}

// giveMasters takes the launcher out of the holders of masters that its copies have all of. One that is also another volume of the
// machine's stays.
func (r *Reconciler) giveMasters(ctx context.Context, s *run) error {
	if !s.makesCopies() {
		return nil
	}
	for _, d := range s.disks {
		if d.copied == nil || d.is != machine.Ready || !slices.Contains(s.copyPlan(d.name, d.copied).Do, machine.GiveMaster) {
			continue
		}
		needed := func(o disk) bool {
			return o.name != d.name && o.id == d.id && (o.copied == nil || s.copyPlan(o.name, o.copied).Reason != machine.CopyIndependent)
		}
		if slices.ContainsFunc(s.allDisks(), needed) {
			continue
		}
		if err := r.giveMaster(ctx, s, d); err != nil {
			return fmt.Errorf("%s of volume %s: %w", machine.GiveMaster, d.name, err)
		}
	}
	return nil
}

func (r *Reconciler) giveMaster(ctx context.Context, s *run, d disk) error {
	return r.records.GiveBackOne(ctx, s.launcher.UID, d.id)
}

// copyStatus is what is said of the copy of a volume; nil if it has none, or none yet.
func (s *run) copyStatus(v kubevirt.Volume) *kubevirt.CopyStatus {
	c := v.Copied()
	if c == nil || !s.makesCopies() {
		return nil
	}
	out := &kubevirt.CopyStatus{Mode: c.Mode, Medium: mediumOf(s.launcher, v.Name), Reason: s.copyPlan(v.Name, c).Reason}
	said, word := s.returns.Copies[v.Name]
	if word {
		const unit = 1 << 20 // finer would be a new status every time
		out.Stored = resource.NewQuantity((said.Stored+unit-1)/unit*unit, resource.BinarySI)
	}
	out.Keep = s.keepStatus(v.Name)
	switch {
	case c.Mode == kubevirt.CopyOnWrite:
	case out.Reason == machine.CopyIndependent:
		out.Progress = "100%"
	case said.Total > 0:
		out.Progress = fmt.Sprintf("%d%%", min(said.Done*100/said.Total, 99))
	}
	return out
}

// mediumOf is where the copy of a volume is.
func mediumOf(launcher *corev1.Pod, volume string) string {
	for _, v := range launcher.Spec.Volumes {
		if v.Name == (render.Copy{Volume: volume}).VolumeName() && v.Ephemeral != nil {
			return *v.Ephemeral.VolumeClaimTemplate.Spec.StorageClassName
		}
	}
	return "node"
}

// withCopies adds what is said of copies to the volumes' status, and volumes that have a copy and nothing else to say.
func (s *run) withCopies(all []kubevirt.VolumeStatus) []kubevirt.VolumeStatus {
	for _, v := range s.instance.Spec.Volumes {
		c := s.copyStatus(v)
		if c == nil {
			continue
		}
		at := slices.IndexFunc(all, func(x kubevirt.VolumeStatus) bool { return x.Name == v.Name })
		if at < 0 {
			at = len(all)
			all = append(all, kubevirt.VolumeStatus{Name: v.Name})
		}
		said := s.returns.Copies[v.Name]
		all[at].Copy, all[at].Size = c, said.Size
		if said.Alone != "" && all[at].Message == "" {
			all[at].Message = aloneText(said.Alone)
		}
	}
	return all
}

// copyText is a copy in words.
func copyText(volume string, c *kubevirt.CopyStatus) string {
	text := fmt.Sprintf("volume %s: %s on %s", volume, c.Mode, c.Medium)
	if c.Stored != nil {
		text += fmt.Sprintf(", %s stored", c.Stored)
	}
	if c.Progress != "" {
		text += ", " + c.Progress + " of its master"
	}
	return text
}

// independent is the condition of a machine with copies: whether it needs their masters.
func (s *run) independent() []kubevirt.Condition {
	c := kubevirt.Condition{Type: "CopiesIndependent", Status: corev1.ConditionTrue, Reason: machine.CopyIndependent}
	order := []string{machine.CopyIndependent, machine.CopyOnMaster, machine.CopyFilling, machine.CopyCloning}
	var texts []string
	for _, v := range s.instance.Spec.Volumes {
		if status := s.copyStatus(v); status != nil {
			texts = append(texts, copyText(v.Name, status))
			if slices.Index(order, status.Reason) > slices.Index(order, c.Reason) {
				c.Status, c.Reason = corev1.ConditionFalse, status.Reason
			}
		}
	}
	if len(texts) == 0 {
		return nil
	}
	c.Message = strings.Join(texts, "; ")
	return []kubevirt.Condition{c}
}

// cloning says how far the clones are that the guest waits for; empty if it waits for none.
func (s *run) cloning() string {
	var texts []string
	for _, v := range s.instance.Spec.Volumes {
		if c := s.copyStatus(v); c != nil && c.Reason == machine.CopyCloning {
			texts = append(texts, copyText(v.Name, c))
		}
	}
	return strings.Join(texts, "; ")
}

// How often a launcher is asked about copies: while something is brought in, and else.
const (
	fillingAgain = 3 * time.Second
	storedAgain  = 15 * time.Second
)

// copiesAgain is when to ask about copies next; 0 if there are none.
func (s *run) copiesAgain() time.Duration {
	again := time.Duration(0)
	for _, v := range s.instance.Spec.Volumes {
		switch c := s.copyStatus(v); {
		case c == nil:
		case c.Reason == machine.CopyFilling || c.Reason == machine.CopyCloning:
			return fillingAgain
		default:
			again = storedAgain
		}
	}
	return again
}

// awaiting brings back the instances that wait for a usage type when a class changes.
func (r *Reconciler) awaiting() handler.EventHandler {
	return r.instancesThat(func(i *kubevirt.VirtualMachineInstance) bool {
		return i.Status.Reason == string(state.UsageTypeMissing)
	})
}

// instancesThat brings back those whose status is such.
func (r *Reconciler) instancesThat(wait func(*kubevirt.VirtualMachineInstance) bool) handler.EventHandler {
	return handler.EnqueueRequestsFromMapFunc(func(ctx context.Context, _ client.Object) []reconcile.Request {
		var list kubevirt.VirtualMachineInstanceList
		if err := r.reader.List(ctx, &list); err != nil {
			log.FromContext(ctx).Error(err, "list the instances that wait")
			return nil
		}
		var due []reconcile.Request
		for i := range list.Items {
			if o := &list.Items[i]; wait(o) {
				due = append(due, reconcile.Request{NamespacedName: client.ObjectKeyFromObject(o)})
			}
		}
		return due
	})
}
