package snapshot

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
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

// observedSnapshot is one snapshot and everything its next step depends on, read once.
type observedSnapshot struct {
	of       *snapshotv1.VirtualMachineSnapshot
	vm       *kubevirt.VirtualMachine // nil: there is none
	instance *kubevirt.VirtualMachineInstance
	launcher *corev1.Pod                               // nil: no guest runs
	content  *snapshotv1.VirtualMachineSnapshotContent // nil: nothing is written down
	parts    []volumePart
	left     []string // the volumes that are in no snapshot, with the reason
	now      time.Time
}

// volumePart is one volume and its VolumeSnapshot.
type volumePart struct {
	volume string
	name   string // of the VolumeSnapshot
	class  string // to take it with; known only before it is taken
	claim  snapshotv1.PersistentVolumeClaim
	taken  *volumesnapshot.Snapshot // nil: there is none
}

// ContentName returns the object with what belongs to a snapshot.
func ContentName(s *snapshotv1.VirtualMachineSnapshot) string {
	return contentPrefix + string(s.UID)
}

const contentPrefix = "vmsnapshot-content-"

// sound returns an error if we did not write the content: any user with write access to the namespace may have, and a restore
// creates a machine from it. The error is permanent until the content changes.
func sound(c *snapshotv1.VirtualMachineSnapshotContent) error {
	if c != nil && (c.Spec.Source.VirtualMachine == nil || c.Spec.Source.VirtualMachine.Spec.Template == nil) {
		return reconcile.TerminalError(fmt.Errorf("VirtualMachineSnapshotContent %s/%s records no machine: delete it", c.Namespace, c.Name))
	}
	return nil
}

// observe reads what a snapshot depends on.
func (r *Reconciler) observe(ctx context.Context, of *snapshotv1.VirtualMachineSnapshot) (*observedSnapshot, error) {
	s := &observedSnapshot{of: of, now: r.clock.Now()}
	var err error
	if s.content, err = cluster.Get[snapshotv1.VirtualMachineSnapshotContent](ctx, r.live, of.Namespace, ContentName(of)); err != nil {
		return nil, err
	}
	if err := sound(s.content); err != nil {
		return nil, err
	}
	if s.vm, err = cluster.Get[kubevirt.VirtualMachine](ctx, r.reader, of.Namespace, of.Spec.Source.Name); err != nil {
		return nil, err
	}
	if s.instance, err = cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.reader, of.Namespace, of.Spec.Source.Name); err != nil {
		return nil, err
	}
	if s.launcher, err = r.launcherOf(ctx, s.instance); err != nil {
		return nil, err
	}
	if s.content != nil {
		s.recorded()
	} else if err := r.choose(ctx, s); err != nil {
		return nil, err
	}
	for i := range s.parts {
		if s.parts[i].taken, err = volumesnapshot.Read(ctx, cluster.Reads(r.live), of.Namespace, s.parts[i].name); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// launcherOf returns the pod that an instance's guest runs in.
func (r *Reconciler) launcherOf(ctx context.Context, i *kubevirt.VirtualMachineInstance) (*corev1.Pod, error) {
	if i == nil || i.Status.Phase != kubevirt.PhaseRunning {
		return nil, nil
	}
	all, err := launcherpod.Of(ctx, cluster.Reads(r.reader), i)
	return launcherpod.Guest(i, all), err
}

// recorded takes the parts from what was written down.
func (s *observedSnapshot) recorded() {
	for _, b := range s.content.Spec.VolumeBackups {
		p := volumePart{volume: b.VolumeName, claim: b.PersistentVolumeClaim}
		if b.VolumeSnapshotName != nil {
			p.name = *b.VolumeSnapshotName
		}
		p.class = b.PersistentVolumeClaim.ObjectMeta.Annotations[annSnapshotClass]
		s.parts = append(s.parts, p)
	}
	if left := s.content.Annotations[annLeft]; left != "" {
		s.left = strings.Split(left, "\n")
	}
}

// choose finds the machine's volumes that can have a snapshot.
func (r *Reconciler) choose(ctx context.Context, s *observedSnapshot) error {
	if s.vm == nil || s.vm.Spec.Template == nil {
		return nil
	}
	for _, v := range s.vm.Spec.Template.Spec.AllVolumes() {
		home := homeOf(s.vm.Name, &s.vm.Spec, v)
		if home.claim == "" || v.Copied() != nil { // a master is not the machine's, and its copy is not to be kept
			continue
		}
		class, why, err := r.cuttable(ctx, s.vm.Namespace, home)
		if err != nil {
			return err
		}
		if why != "" {
			s.left = append(s.left, v.Name+": "+why)
			continue
		}
		s.parts = append(s.parts, volumePart{
			volume: v.Name, name: fmt.Sprintf("vmsnapshot-%s-volume-%s", s.of.UID, v.Name),
			class: class.snapshots, claim: class.claim,
		})
	}
	return nil
}

// snapshotMethod says how a snapshot of a claim can be taken.
type snapshotMethod struct {
	snapshots string // the snapshot class
	claim     snapshotv1.PersistentVolumeClaim
}

func (r *Reconciler) cuttable(ctx context.Context, namespace string, at volumeClaim) (snapshotMethod, string, error) {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, namespace, at.claim)
	switch {
	case err != nil:
		return snapshotMethod{}, "", err
	case c == nil:
		return snapshotMethod{}, "there is no PersistentVolumeClaim " + at.claim, nil
	case c.Status.Phase != corev1.ClaimBound:
		return snapshotMethod{}, fmt.Sprintf("PersistentVolumeClaim %s is not bound", at.claim), nil
	case c.Spec.StorageClassName == nil:
		return snapshotMethod{}, fmt.Sprintf("PersistentVolumeClaim %s has no storage class", at.claim), nil
	}
	volume, why, err := r.whole(ctx, c)
	if err != nil || why != "" {
		return snapshotMethod{}, why, err
	}
	class, err := cluster.Get[storagev1.StorageClass](ctx, r.reader, "", *c.Spec.StorageClassName)
	if err != nil {
		return snapshotMethod{}, "", err
	}
	if class == nil {
		return snapshotMethod{}, "there is no StorageClass " + *c.Spec.StorageClassName, nil
	}
	snapshots, err := volumesnapshot.ClassOf(ctx, cluster.Reads(r.live), class)
	if err == nil && snapshots == "" {
		return snapshotMethod{}, "there is no VolumeSnapshotClass for driver " + class.Provisioner, nil
	}
	was := asWas(c, snapshots)
	if other, err := r.replacement(ctx, namespace, at.claim); err != nil {
		return snapshotMethod{}, "", err
	} else if other != nil {
		was.ObjectMeta.Annotations[names.SelectedNode] = other.Annotations[names.SelectedNode]
	}
	if volume != "" {
		was.ObjectMeta.Annotations[annPopulatedFor] = volume
	}
	return snapshotMethod{snapshots: snapshots, claim: was}, "", err
}

// replacement returns the claim that has the data of another while its machine runs, after it moved; nil: it has it itself.
func (r *Reconciler) replacement(ctx context.Context, namespace, claim string) (*corev1.PersistentVolumeClaim, error) {
	last, _, err := replacedclaim.Of(ctx, r.live, namespace, claim)
	if err != nil || last == nil {
		return nil, err
	}
	if current, err := replacedclaim.Current(ctx, r.live, namespace, claim); err != nil || current {
		return nil, err
	}
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.live, namespace, last.Record.Replacement)
	if err != nil || c == nil || c.UID != last.Record.UID {
		return nil, err
	}
	return c, nil
}

// whole returns the DataVolume that a claim is the disk of, if it is one's; or why it must not be cut: it is being filled.
func (r *Reconciler) whole(ctx context.Context, c *corev1.PersistentVolumeClaim) (volume, why string, err error) {
	owner := metav1.GetControllerOf(c)
	if owner == nil || owner.Kind != "DataVolume" {
		return "", "", nil
	}
	v, err := cluster.Get[cdiv1.DataVolume](ctx, r.reader, c.Namespace, owner.Name)
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

// facts returns what the decision sees.
func (s *observedSnapshot) facts() snapshot.Facts {
	return snapshot.Facts{
		Machine: situation(s.vm, s.instance, s.launcher), Recorded: s.content != nil, Nothing: len(s.parts) == 0 && len(s.left) > 0,
		Quiet: s.quiet(), Cuts: s.cuts(), Late: s.late(), Over: s.content != nil && s.content.Status.ReadyToUse != nil,
	}
}

func situation(vm *kubevirt.VirtualMachine, i *kubevirt.VirtualMachineInstance, launcher *corev1.Pod) snapshot.Machine {
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

func (s *observedSnapshot) quiet() snapshot.Quiet {
	if s.content == nil {
		return snapshot.Untouched
	}
	switch s.content.Annotations[annQuiet] {
	case quietFrozen:
		return snapshot.Frozen
	case quietAgentless:
		return snapshot.Agentless
	case quietThawed, quietLate:
		return snapshot.Thawed
	}
	return snapshot.Untouched
}

// cuts returns the worst of all; Usable < Cut < Cutting < Missing.
func (s *observedSnapshot) cuts() snapshot.Cuts {
	if len(s.parts) == 0 && s.content == nil {
		return snapshot.Missing
	}
	worst := snapshot.Usable
	for _, p := range s.parts {
		worst = max(worst, p.situation())
	}
	return worst
}

func (p volumePart) situation() snapshot.Cuts {
	if p.taken == nil {
		return snapshot.Missing
	}
	switch {
	case volumesnapshot.Ready(p.taken):
		return snapshot.Usable
	case volumesnapshot.Cut(p.taken) != nil:
		return snapshot.Cut
	}
	return snapshot.Cutting
}

// trouble returns what the storage says about a part; it tries again by itself until the deadline.
func (p volumePart) trouble() string {
	if p.taken == nil {
		return ""
	}
	return volumesnapshot.Trouble(p.taken)
}

// defaultDeadline is how long taking a snapshot may last by default.
const defaultDeadline = 5 * time.Minute

func (s *observedSnapshot) late() bool {
	deadline := defaultDeadline
	if d := s.of.Spec.FailureDeadline; d != nil {
		deadline = d.Duration
	}
	return deadline > 0 && s.now.After(s.of.CreationTimestamp.Add(deadline))
}
