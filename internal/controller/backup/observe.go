package backup

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	backupv1 "github.com/berth-vm/berth/api/backup/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/worker"
	"github.com/berth-vm/berth/internal/decide/backup"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// finalizer keeps a backup until the launcher has given the disks back.
const finalizer = "berth.dev/backup"

// seen is one backup and everything its next step depends on, read once.
type seen struct {
	of       *backupv1.VirtualMachineBackup
	tracker  *backupv1.VirtualMachineBackupTracker // nil: it names none, or there is none
	vm       *kubevirt.VirtualMachine
	instance *kubevirt.VirtualMachineInstance
	launcher *corev1.Pod // that has the guest; nil: none
	volumes  []string    // whose disks are backed up
	shared   string      // one of them that others may write to
	stopped  []disk      // the same, of a machine that does not run
	claim    *corev1.PersistentVolumeClaim
	user     string // who has the claim
	worker   *corev1.Pod
	held     *held        // what the launcher holds for the worker; nil: there is no worker
	report   *task.Report // of a worker that ended; nil: it left none
	unread   string       // why the claims of a machine that does not run cannot be read
	machine  backup.Machine
	fetched  backup.Fetched // of what the worker serves
	detail   string         // for what is said
	now      time.Time
}

// held is the annotation of a worker: what a launcher holds for it. Without a launcher, the worker reads the claims of a machine that does not run.
type held struct {
	Launcher types.UID `json:"launcher"`
	// Since is the checkpoint that an increment which clients fetch is made on.
	Since string `json:"since,omitempty"`
	launcherapi.BackupMoment
}

// observe reads what a backup depends on.
func (r *Reconciler) observe(ctx context.Context, of *backupv1.VirtualMachineBackup) (*seen, error) {
	s := &seen{of: of, now: r.clock.Now()}
	if err := r.observeMachine(ctx, s); err != nil {
		return nil, err
	}
	var err error
	if s.worker, err = cluster.Owned[corev1.Pod](ctx, r.reader, of.UID, of.Namespace, render.BackupWorker(of.Name)); err != nil {
		return nil, err
	}
	if s.worker != nil {
		s.report, s.held = worker.Report(s.worker), &held{}
		_ = json.Unmarshal([]byte(s.worker.Annotations[render.AnnMoment]), s.held) // only Berth can write it
	}
	if err := r.observeClaims(ctx, s); err != nil {
		return nil, err
	}
	if of.Spec.Pulled() {
		s.fetched = r.fetched(ctx, s)
		return s, nil
	}
	if s.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, of.Namespace, of.Spec.Claim()); err != nil || s.claim == nil {
		return s, err
	}
	wanted := accessv1.Holder{Mode: accessv1.WriteExclusive, Use: accessv1.UseBackup}
	other, err := r.records.Blocker(ctx, s.claim, wanted, s.worker)
	if err == nil && other != nil {
		s.user = diskaccess.Who(other, of.Namespace)
	}
	return s, err
}

// observeMachine reads the machine, its instance, and the launcher that has its guest.
func (r *Reconciler) observeMachine(ctx context.Context, s *seen) error {
	name, of := s.of.Spec.Source.Name, s.of
	var err error
	if of.Spec.Source.Kind == backupv1.Tracker {
		if s.tracker, err = cluster.Get[backupv1.VirtualMachineBackupTracker](ctx, r.reader, of.Namespace, name); err != nil {
			return err
		}
		if s.tracker == nil || s.tracker.DeletionTimestamp != nil {
			s.machine, s.detail, s.tracker = backup.NoTracker, "VirtualMachineBackupTracker "+name, nil
			return nil
		}
		name = s.tracker.Spec.Source.Name
	}
	s.detail = "VirtualMachine " + name
	if s.vm, err = cluster.Get[kubevirt.VirtualMachine](ctx, r.reader, of.Namespace, name); err != nil {
		return err
	}
	if s.vm == nil || s.vm.DeletionTimestamp != nil || s.vm.Spec.Template == nil {
		s.machine = backup.NoMachine
		return nil
	}
	if s.instance, err = cluster.Get[kubevirt.VirtualMachineInstance](ctx, r.reader, of.Namespace, name); err != nil {
		return err
	}
	i := s.instance
	if i == nil || i.Status.Phase == kubevirt.PhaseSucceeded || i.Status.Phase == kubevirt.PhaseFailed {
		s.machine = backup.Stopped
		s.volumes, _ = backedUp(&observed.NewInstance(s.vm).Spec) // a shareable disk is not written to while it is read
		if len(s.volumes) == 0 {
			s.machine = backup.Bare
		}
		return nil
	}
	s.volumes, s.shared = backedUp(&i.Spec)
	all, err := launcherpod.Of(ctx, cluster.Reads(r.reader), i)
	if err != nil {
		return err
	}
	s.launcher = launcherpod.Guest(i, all)
	switch {
	case i.DeletionTimestamp != nil, s.launcher == nil, s.launcher.DeletionTimestamp != nil, !launcherpod.Up(s.launcher):
		s.machine, s.detail = backup.Unsteady, fmt.Sprintf("VirtualMachineInstance %s is %s", i.Name, i.Status.Phase)
	case len(s.volumes) == 0:
		s.machine = backup.Bare
	}
	return nil
}

// backedUp returns the volumes of a machine whose disks are in a backup: those in claims of its own that its guest may write to, and of which QEMU
// sees every write. shared is one of them that others may write to.
func backedUp(spec *kubevirt.VirtualMachineInstanceSpec) (volumes []string, shared string) {
	for _, v := range spec.Volumes {
		claim, readOnly := render.ClaimOf(v)
		if claim == "" || readOnly || v.Copied() != nil {
			continue
		}
		at := slices.IndexFunc(spec.Domain.Devices.Disks, func(d kubevirt.Disk) bool { return d.Name == v.Name })
		if at < 0 { // it gets a disk by itself
			volumes = append(volumes, v.Name)
			continue
		}
		if spec.Domain.Devices.Disks[at].LUN != nil || spec.Domain.Devices.Disks[at].CDRom != nil {
			continue
		}
		volumes = append(volumes, v.Name)
		if ptr.Deref(spec.Domain.Devices.Disks[at].Shareable, false) {
			shared = v.Name
		}
	}
	return volumes, shared
}

// patience is how long a worker may take to start.
const patience = 10 * time.Minute

// facts returns the facts for the decision.
func (s *seen) facts() backup.Facts {
	f := backup.Facts{
		Over: s.of.Over(), Deleted: s.of.DeletionTimestamp != nil, Protected: slices.Contains(s.of.Finalizers, finalizer), Pull: s.of.Spec.Pulled(),
		Expired: s.of.Spec.Pulled() && !s.now.Before(s.expiry()), Fetched: s.fetched, Machine: s.machine, Target: s.target(), Worker: s.working(),
	}
	if s.worker != nil {
		f.Gone = !s.reads() && (s.launcher == nil || s.launcher.UID != s.held.Launcher || pods.Over(s.launcher))
		f.Late = s.now.Sub(s.worker.CreationTimestamp.Time) > patience
	}
	return f
}

func (s *seen) target() backup.Target {
	if s.of.Spec.Pulled() {
		return backup.Usable // it needs none
	}
	c := s.claim
	writes := func(m corev1.PersistentVolumeAccessMode) bool { return m != corev1.ReadOnlyMany }
	switch {
	case c == nil, c.DeletionTimestamp != nil:
		return backup.NoClaim
	case ptr.Deref(c.Spec.VolumeMode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock, !slices.ContainsFunc(c.Spec.AccessModes, writes), s.isDisk(c.Name):
		return backup.Unfit
	case s.user != "":
		return backup.InUse
	}
	return backup.Usable
}

// isDisk reports whether a claim has a disk of the machine, whether it runs or not.
func (s *seen) isDisk(claim string) bool {
	var spec kubevirt.VirtualMachineInstanceSpec
	switch {
	case s.instance != nil:
		spec = s.instance.Spec
	case s.vm != nil && s.vm.Spec.Template != nil:
		spec = s.vm.Spec.Template.Spec
	}
	return slices.ContainsFunc(spec.Volumes, func(v kubevirt.Volume) bool { name, _ := render.ClaimOf(v); return name == claim })
}

func (s *seen) working() backup.Worker {
	p := s.worker
	switch {
	case p == nil && s.of.Spec.Pulled() && s.of.Status != nil && s.of.Status.CheckpointName != nil:
		return backup.Vanished // clients were told of it
	case p == nil:
		return backup.NoWorker
	case s.held.Moment == "" && p.DeletionTimestamp == nil: // not made by us: it is deleted
		return backup.Lost
	case s.report != nil && s.report.Outcome == task.Done && s.report.Backup != nil:
		return backup.Written
	case s.report != nil && s.report.Reason != task.Interrupted:
		return backup.Broken
	case p.DeletionTimestamp != nil:
		return backup.Leaving
	case pods.Over(p):
		return backup.Lost
	case s.reads() && s.starts():
		return backup.Overtaken
	case diskaccess.Gated(p):
		return backup.Gated
	case p.Status.Phase == corev1.PodRunning && !s.of.Spec.Pulled():
		return backup.Writing
	case pods.Ready(p):
		return backup.Serving
	}
	return backup.Starting
}
