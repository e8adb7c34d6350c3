package snapshotcontent

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	snapshotv1 "github.com/berth-vm/berth/api/snapshot/v1beta1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/snapshot"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/volumesnapshot"
)

// What is recorded on a content besides what its spec says.
const (
	AnnQuiet         = "berth.dev/quiet"          // what became of the guest while its volumes were cut
	AnnLeft          = "berth.dev/left-out"       // volumes that are in no snapshot, a line each
	AnnSnapshotClass = "berth.dev/snapshot-class" // on a claim in it: what to take its snapshot with

	// Upstream's labels of a VolumeSnapshot: the machine that it has a disk of.
	LabelSourceName      = "snapshot.kubevirt.io/source-vm-name"
	LabelSourceNamespace = "snapshot.kubevirt.io/source-vm-namespace"

	QuietFrozen    = "frozen"
	QuietAgentless = "agentless"
	QuietThawed    = "thawed"
	QuietLate      = "late" // it had gone on by itself when it was to be thawed
)

// Snapshot is one snapshot and all facts that its next step depends on, read once.
type Snapshot struct {
	Of       *snapshotv1.VirtualMachineSnapshot
	Machine  *kubevirt.VirtualMachine // nil: there is none
	Instance *kubevirt.VirtualMachineInstance
	Launcher *corev1.Pod                               // nil: no guest runs
	Content  *snapshotv1.VirtualMachineSnapshotContent // nil: nothing is recorded
	Parts    []Part
	Left     []string // the volumes that are in no snapshot, with the reason
	Now      time.Time
}

// Part is one volume and its VolumeSnapshot.
type Part struct {
	Volume string
	Name   string // of the VolumeSnapshot
	Class  string // to take it with; known only before it is taken
	Claim  snapshotv1.PersistentVolumeClaim
	Taken  *volumesnapshot.Snapshot // nil: there is none
}

// Reader reads snapshots and their machines.
type Reader struct {
	Cached client.Reader
	Live   client.Reader
	Clock  clock.PassiveClock
}

// ContentName returns the object with what belongs to a snapshot.
func ContentName(s *snapshotv1.VirtualMachineSnapshot) string {
	return ContentPrefix + string(s.UID)
}

// ContentPrefix begins the names of contents.
const ContentPrefix = "vmsnapshot-content-"

// sound returns an error if we did not write the content: any user with write access to the namespace may have, and a restore
// creates a machine from it. The error is permanent until the content changes.
func sound(c *snapshotv1.VirtualMachineSnapshotContent) error {
	if c != nil && (c.Spec.Source.VirtualMachine == nil || c.Spec.Source.VirtualMachine.Spec.Template == nil) {
		return reconcile.TerminalError(fmt.Errorf("VirtualMachineSnapshotContent %s/%s records no machine: delete it", c.Namespace, c.Name))
	}
	return nil
}

// Observe reads what a snapshot depends on.
func (r Reader) Observe(ctx context.Context, of *snapshotv1.VirtualMachineSnapshot) (*Snapshot, error) {
	s := &Snapshot{Of: of, Now: r.Clock.Now()}
	var err error
	if s.Content, err = cluster.Get[snapshotv1.VirtualMachineSnapshotContent](ctx, r.Live, of.Namespace, ContentName(of)); err != nil {
		return nil, err
	}
	if err := sound(s.Content); err != nil {
		return nil, err
	}
	if s.Machine, err = cluster.Get[kubevirt.VirtualMachine](ctx, r.Cached, of.Namespace, of.Spec.Source.Name); err != nil {
		return nil, err
	}
	if s.Instance, err = cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.Cached, of.Namespace, of.Spec.Source.Name); err != nil {
		return nil, err
	}
	if s.Launcher, err = r.LauncherOf(ctx, s.Instance); err != nil {
		return nil, err
	}
	if s.Content != nil {
		s.recorded()
	} else if err := r.choose(ctx, s); err != nil {
		return nil, err
	}
	for i := range s.Parts {
		if s.Parts[i].Taken, err = volumesnapshot.Read(ctx, cluster.Reads(r.Live), of.Namespace, s.Parts[i].Name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// LauncherOf returns the pod that an instance's guest runs in.
func (r Reader) LauncherOf(ctx context.Context, i *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	if i == nil || i.Status.Phase != kubevirt.PhaseRunning {
		return nil, nil
	}
	all, err := launcherpod.Of(ctx, cluster.Reads(r.Cached), i)
	return launcherpod.Guest(i, all), err
}

// recorded takes the parts from what was written down.
func (s *Snapshot) recorded() {
	for _, b := range s.Content.Spec.VolumeBackups {
		p := Part{Volume: b.VolumeName, Claim: b.PersistentVolumeClaim}
		if b.VolumeSnapshotName != nil {
			p.Name = *b.VolumeSnapshotName
		}
		p.Class = b.PersistentVolumeClaim.ObjectMeta.Annotations[AnnSnapshotClass]
		s.Parts = append(s.Parts, p)
	}
	if left := s.Content.Annotations[AnnLeft]; left != "" {
		s.Left = strings.Split(left, "\n")
	}
}

// choose finds the machine's volumes that can have a snapshot.
func (r Reader) choose(ctx context.Context, s *Snapshot) error {
	if s.Machine == nil || s.Machine.Spec.Template == nil {
		return nil
	}
	for _, v := range s.Machine.Spec.Template.Spec.AllVolumes() {
		at := ClaimFor(s.Machine.Name, &s.Machine.Spec, v)
		if at.Claim == "" || v.Copied() != nil { // a master is not the machine's, and its copy is not to be kept
			continue
		}
		class, why, err := r.methodOf(ctx, s.Machine.Namespace, at)
		if err != nil {
			return err
		}
		if why != "" {
			s.Left = append(s.Left, v.Name+": "+why)
			continue
		}
		s.Parts = append(s.Parts, Part{
			Volume: v.Name, Name: fmt.Sprintf("vmsnapshot-%s-volume-%s", s.Of.UID, v.Name),
			Class: class.snapshots, Claim: class.claim,
		})
	}
	return nil
}

// snapshotMethod says how a snapshot of a claim can be taken.
type snapshotMethod struct {
	snapshots string // the snapshot class
	claim     snapshotv1.PersistentVolumeClaim
}

// methodOf returns how a snapshot of a claim can be taken, or why it cannot.
func (r Reader) methodOf(ctx context.Context, namespace string, at VolumeClaim) (snapshotMethod, string, error) {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Cached, namespace, at.Claim)
	switch {
	case err != nil:
		return snapshotMethod{}, "", err
	case c == nil:
		return snapshotMethod{}, "there is no PersistentVolumeClaim " + at.Claim, nil
	case c.Status.Phase != corev1.ClaimBound:
		return snapshotMethod{}, fmt.Sprintf("PersistentVolumeClaim %s is not bound", at.Claim), nil
	case c.Spec.StorageClassName == nil:
		return snapshotMethod{}, fmt.Sprintf("PersistentVolumeClaim %s has no storage class", at.Claim), nil
	}
	volume, why, err := r.filled(ctx, c)
	if err != nil || why != "" {
		return snapshotMethod{}, why, err
	}
	class, err := cluster.Get[storagev1.StorageClass](ctx, r.Cached, "", *c.Spec.StorageClassName)
	if err != nil {
		return snapshotMethod{}, "", err
	}
	if class == nil {
		return snapshotMethod{}, "there is no StorageClass " + *c.Spec.StorageClassName, nil
	}
	snapshots, err := volumesnapshot.ClassOf(ctx, cluster.Reads(r.Live), class)
	if err == nil && snapshots == "" {
		return snapshotMethod{}, "there is no VolumeSnapshotClass for driver " + class.Provisioner, nil
	}
	was := asWas(c, snapshots)
	if other, err := r.Replacement(ctx, namespace, at.Claim); err != nil {
		return snapshotMethod{}, "", err
	} else if other != nil {
		was.ObjectMeta.Annotations[names.SelectedNode] = other.Annotations[names.SelectedNode]
	}
	if volume != "" {
		was.ObjectMeta.Annotations[AnnPopulatedFor] = volume
	}
	return snapshotMethod{snapshots: snapshots, claim: was}, "", err
}

// Replacement returns the claim that has the data of another while its machine runs, after it moved; nil: it has it itself.
func (r Reader) Replacement(ctx context.Context, namespace, claim string) (*corev1.PersistentVolumeClaim, error) {
	last, _, err := replacedclaim.Of(ctx, r.Live, namespace, claim)
	if err != nil || last == nil {
		return nil, err
	}
	if current, err := replacedclaim.Current(ctx, r.Live, namespace, claim); err != nil || current {
		return nil, err
	}
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Live, namespace, last.Record.Replacement)
	if err != nil || c == nil || c.UID != last.Record.UID {
		return nil, err
	}
	return c, nil
}

// filled returns the DataVolume that made a claim, if there is one, or why no snapshot can be taken: the claim is being filled.
func (r Reader) filled(ctx context.Context, c *corev1.PersistentVolumeClaim) (volume, why string, err error) {
	owner := metav1.GetControllerOf(c)
	if owner == nil || owner.Kind != "DataVolume" {
		return "", "", nil
	}
	v, err := cluster.Get[cdiv1.DataVolume](ctx, r.Cached, c.Namespace, owner.Name)
	switch {
	case err != nil:
		return "", "", err
	case v == nil:
		return "", fmt.Sprintf("PersistentVolumeClaim %s is being deleted: its DataVolume is gone", c.Name), nil
	case v.Status.Phase != cdiv1.Succeeded:
		return "", fmt.Sprintf("DataVolume %s is %s: take the snapshot when it is Succeeded", v.Name, v.Status.Phase), nil
	}
	return v.Name, "", nil
}

// Facts returns the facts that the decision depends on.
func (s *Snapshot) Facts() snapshot.Facts {
	return snapshot.Facts{
		Machine: MachineSituation(s.Machine, s.Instance, s.Launcher), Recorded: s.Content != nil, Nothing: len(s.Parts) == 0 && len(s.Left) > 0,
		Quiet: s.Quiet(), Cuts: s.Cuts(), Late: s.Late(), Over: s.Content != nil && s.Content.Status.ReadyToUse != nil,
	}
}

// MachineSituation returns the state of a machine.
func MachineSituation(vm *kubevirt.VirtualMachine, i *kubevirt.VirtualMachineInstance, launcher *corev1.Pod) snapshot.Machine {
	switch {
	case vm == nil:
		return snapshot.NoMachine
	case i == nil, i.Status.Phase == kubevirt.PhaseSucceeded, i.Status.Phase == kubevirt.PhaseFailed:
		return snapshot.Stopped
	case launcher != nil && i.DeletionTimestamp == nil:
		return snapshot.Running
	}
	return snapshot.Between
}

// Quiet returns whether the guest was frozen.
func (s *Snapshot) Quiet() snapshot.Quiet {
	if s.Content == nil {
		return snapshot.Untouched
	}
	switch s.Content.Annotations[AnnQuiet] {
	case QuietFrozen:
		return snapshot.Frozen
	case QuietAgentless:
		return snapshot.Agentless
	case QuietThawed, QuietLate:
		return snapshot.Thawed
	}
	return snapshot.Untouched
}

// Cuts returns the worst of all; Usable < Cut < Cutting < Missing.
func (s *Snapshot) Cuts() snapshot.Cuts {
	if len(s.Parts) == 0 && s.Content == nil {
		return snapshot.Missing
	}
	worst := snapshot.Usable
	for _, p := range s.Parts {
		worst = max(worst, p.Situation())
	}
	return worst
}

// Situation returns the state of a part.
func (p Part) Situation() snapshot.Cuts {
	if p.Taken == nil {
		return snapshot.Missing
	}
	switch {
	case volumesnapshot.Ready(p.Taken):
		return snapshot.Usable
	case volumesnapshot.Cut(p.Taken) != nil:
		return snapshot.Cut
	}
	return snapshot.Cutting
}

// Trouble returns what the storage says about a part; it tries again by itself until the deadline.
func (p Part) Trouble() string {
	if p.Taken == nil {
		return ""
	}
	return volumesnapshot.Trouble(p.Taken)
}

// defaultDeadline is how long taking a snapshot may last by default.
const defaultDeadline = 5 * time.Minute

// Late reports whether the deadline has passed.
func (s *Snapshot) Late() bool {
	deadline := defaultDeadline
	if d := s.Of.Spec.FailureDeadline; d != nil {
		deadline = d.Duration
	}
	return deadline > 0 && s.Now.After(s.Of.CreationTimestamp.Add(deadline))
}
