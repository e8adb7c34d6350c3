package export

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	exportv1 "github.com/berth-vm/berth/api/export/v1beta1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/controller/snapshotcontent"
	"github.com/berth-vm/berth/internal/decide/export"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// seen is one export and everything its next step depends on, read once.
type seen struct {
	of      *exportv1.VirtualMachineExport
	source  export.Source
	why     string // what the source lacks, for a person
	machine *string
	vm      *kubevirt.VirtualMachine // the machine with its exported manifest; nil if a claim is exported
	disks   []disk
	server  *corev1.Pod // nil: there is none
	// recorded: the server is recorded as a holder of the disks that it reads.
	recorded bool
	// reachable: the Service that leads to the server is there.
	reachable bool
	now       time.Time
}

// disk is an exported disk.
type disk struct {
	name   string // what clients know it by, as upstream names it: its claim's name, and of a snapshot the export's before it
	volume string // of the machine
	claim  *corev1.PersistentVolumeClaim
	backup *snapshotv1.VolumeBackup // of a snapshot: what the claim is made from
	files  bool                     // the export's author says that it has files, and no disk
}

// defaultTTL is how long an export lasts by default. Clients expect this value.
const defaultTTL = 2 * time.Hour

func expiry(of *exportv1.VirtualMachineExport) time.Time {
	ttl := defaultTTL
	if d := of.Spec.TTLDuration; d != nil {
		ttl = d.Duration
	}
	return of.CreationTimestamp.Add(ttl)
}

// observe reads what an export depends on.
func (r *Reconciler) observe(ctx context.Context, of *exportv1.VirtualMachineExport) (*seen, error) {
	s := &seen{of: of, now: r.clock.Now()}
	var err error
	if s.server, err = cluster.Owned[corev1.Pod](ctx, r.reader, of.UID, of.Namespace, render.ExportName(of.Name)); err != nil {
		return nil, err
	}
	if s.server != nil {
		if s.recorded, err = r.records.Admitted(ctx, s.server); err != nil {
			return nil, err
		}
		service, err := cluster.Owned[corev1.Service](ctx, r.live, of.UID, of.Namespace, render.ExportName(of.Name))
		if err != nil {
			return nil, err
		}
		s.reachable = service != nil
	}
	switch of.Spec.Source.Kind {
	case exportv1.Machine:
		err = r.observeMachine(ctx, s)
	case exportv1.Snapshot:
		err = r.observeSnapshot(ctx, s)
	default:
		var claim *corev1.PersistentVolumeClaim
		claim, err = r.observeClaim(ctx, s, of.Spec.Source.Name)
		s.disks = []disk{{name: of.Spec.Source.Name, claim: claim, files: of.Annotations[names.ExportFiles] == "true"}}
	}
	return s, err
}

// lacks notes what is wrong with the source; the first counts.
func (s *seen) lacks(what export.Source, format string, args ...any) {
	if s.source == export.Usable {
		s.source, s.why = what, fmt.Sprintf(format, args...)
	}
}

func (r *Reconciler) observeMachine(ctx context.Context, s *seen) error {
	name := s.of.Spec.Source.Name
	vm, err := cluster.Get[kubevirt.VirtualMachine](ctx, r.reader, s.of.Namespace, name)
	if err != nil {
		return err
	}
	if vm == nil || vm.DeletionTimestamp != nil || vm.Spec.Template == nil {
		s.lacks(export.Missing, "VirtualMachine %s", name)
		return nil
	}
	s.machine, s.vm = &name, vm
	i, err := cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.reader, s.of.Namespace, name)
	if err != nil {
		return err
	}
	if i != nil && i.Status.Phase != kubevirt.PhaseSucceeded && i.Status.Phase != kubevirt.PhaseFailed {
		s.lacks(export.InUse, "VirtualMachine %s runs", name)
	}
	for _, v := range vm.Spec.Template.Spec.AllVolumes() {
		at := snapshotcontent.ClaimOf(vm.Name, &vm.Spec, v)
		listed := func(d disk) bool { return d.name == at }
		if at == "" || v.Copied() != nil || slices.ContainsFunc(s.disks, listed) { // a master is not the machine's
			continue
		}
		claim, err := r.observeClaim(ctx, s, at)
		if err != nil {
			return err
		}
		s.disks = append(s.disks, disk{name: at, volume: v.Name, claim: claim})
	}
	if len(s.disks) == 0 {
		s.lacks(export.Empty, "VirtualMachine %s", name)
	}
	return nil
}

// observeClaim reads a claim, and notes why it cannot be read from.
func (r *Reconciler) observeClaim(ctx context.Context, s *seen, name string) (*corev1.PersistentVolumeClaim, error) {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, s.of.Namespace, name)
	if err != nil {
		return nil, err
	}
	if c == nil || c.DeletionTimestamp != nil {
		s.lacks(export.Missing, "PersistentVolumeClaim %s", name)
		return nil, nil
	}
	user, err := r.userOf(ctx, s, c)
	if err != nil {
		return nil, err
	}
	data, err := replacedclaim.Data(ctx, r.live, c)
	if err != nil {
		return nil, err
	}
	proof, lacks := clonesource.Complete(c)
	switch {
	case proof == clonesource.Unproven:
		s.lacks(export.Unready, "PersistentVolumeClaim %s: %s", name, lacks)
	case user != "":
		s.lacks(export.InUse, "%s", user)
	case data.Place != replacedclaim.Here:
		s.lacks(export.Unready, "%s", data.Why)
	}
	return c, nil
}

// userOf returns the pod that may write to the disk of a claim, or is about to, or "". A machine that waits for the disk is not
// made to wait for as long as an export lasts.
func (r *Reconciler) userOf(ctx context.Context, s *seen, c *corev1.PersistentVolumeClaim) (string, error) {
	writer, err := r.records.Writer(ctx, c, accessv1.Holder{Mode: accessv1.ReadShared, Use: accessv1.UseExport}, s.server)
	if err != nil || writer != "" {
		return writer, err
	}
	var instances kubevirt.VirtualMachineInstanceList
	if err := r.reader.List(ctx, &instances, client.InNamespace(c.Namespace)); err != nil {
		return "", fmt.Errorf("list the instances that may want a claim: %w", err)
	}
	for i := range instances.Items {
		if wants(&instances.Items[i], c.Name) {
			return fmt.Sprintf("VirtualMachineInstance %s wants PersistentVolumeClaim %s", instances.Items[i].Name, c.Name), nil
		}
	}
	return "", nil
}

// wants reports whether the instance has not ended and has the claim to write to.
func wants(i *kubevirt.VirtualMachineInstance, claim string) bool {
	if i.Status.Phase == kubevirt.PhaseSucceeded || i.Status.Phase == kubevirt.PhaseFailed {
		return false
	}
	return slices.ContainsFunc(i.Spec.Volumes, func(v kubevirt.Volume) bool {
		name, readOnly := render.ClaimOf(v)
		return name == claim && !readOnly && v.Copied() == nil && !v.Reads()
	})
}

func (r *Reconciler) observeSnapshot(ctx context.Context, s *seen) error {
	name := s.of.Spec.Source.Name
	from, err := cluster.Get[snapshotv1.VirtualMachineSnapshot](ctx, r.reader, s.of.Namespace, name)
	if err != nil {
		return err
	}
	if from == nil || from.DeletionTimestamp != nil {
		s.lacks(export.Missing, "VirtualMachineSnapshot %s", name)
		return nil
	}
	s.machine = &from.Spec.Source.Name
	if !ptr.Deref(from.Status.ReadyToUse, false) {
		s.lacks(export.Unready, "VirtualMachineSnapshot %s is %s", name, from.Status.Phase)
		return nil
	}
	content, err := cluster.Get[snapshotv1.VirtualMachineSnapshotContent](ctx, r.live, s.of.Namespace, snapshotcontent.ContentName(from))
	if err != nil {
		return err
	}
	if content == nil {
		s.lacks(export.Missing, "content of VirtualMachineSnapshot %s", name)
		return nil
	}
	if was := content.Spec.Source.VirtualMachine; was != nil {
		s.vm = &kubevirt.VirtualMachine{ObjectMeta: was.ObjectMeta, Spec: was.Spec}
	}
	for i := range content.Spec.VolumeBackups {
		b := &content.Spec.VolumeBackups[i]
		if b.VolumeSnapshotName == nil {
			continue
		}
		at := render.ExportClaim(s.of.UID, b.VolumeName)
		claim, err := cluster.Owned[corev1.PersistentVolumeClaim](ctx, r.reader, s.of.UID, s.of.Namespace, at)
		if err != nil {
			return err
		}
		if claim == nil {
			s.lacks(export.Unmade, "%s", at)
		}
		s.disks = append(s.disks, disk{name: s.of.Name + "-" + cmp.Or(b.PersistentVolumeClaim.ObjectMeta.Name, b.VolumeName), volume: b.VolumeName, claim: claim, backup: b})
	}
	if len(s.disks) == 0 {
		s.lacks(export.Empty, "VirtualMachineSnapshot %s", name)
	}
	return nil
}

// facts returns the facts for the decision.
func (s *seen) facts() export.Facts {
	return export.Facts{Source: s.source, Server: s.serving(), Expired: !s.now.Before(expiry(s.of)), Recorded: s.recorded, Reachable: s.reachable}
}

func (s *seen) serving() export.Server {
	p := s.server
	switch {
	case p == nil:
		return export.None
	case p.DeletionTimestamp != nil:
		return export.Leaving
	case pods.Over(p), s.source == export.Usable && !s.serves(p):
		return export.Over
	case pods.Ready(p):
		return export.Serving
	case len(p.Status.ContainerStatuses) > 0 && p.Status.ContainerStatuses[0].LastTerminationState.Terminated != nil:
		return export.Failing
	}
	return export.Starting
}

// serves reports whether the pod has the disks that the source has now.
func (s *seen) serves(p *corev1.Pod) bool {
	var has, wants []string
	for _, v := range p.Spec.Volumes {
		if v.PersistentVolumeClaim != nil {
			has = append(has, v.PersistentVolumeClaim.ClaimName)
		}
	}
	for _, d := range s.disks {
		wants = append(wants, d.claim.Name)
	}
	return fmt.Sprint(has) == fmt.Sprint(wants)
}

// exported returns the disk as the server gets it.
func (d disk) exported() render.Exported {
	out := render.Exported{Name: d.name, As: d.claim.Name, Size: render.Size(d.claim), Content: task.Disk, Disk: render.Disk{
		Claim: d.claim.Name, Block: ptr.Deref(d.claim.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock,
	}}
	if d.backup != nil {
		out.As = cmp.Or(d.backup.PersistentVolumeClaim.ObjectMeta.Name, out.As)
	}
	if (d.claim.Annotations[names.ContentType] == string(task.Archive) || d.files) && !out.Block {
		out.Content = task.Archive
	}
	return out
}
