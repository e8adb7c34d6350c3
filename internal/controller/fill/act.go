package fill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/nodeselect"
	"github.com/berth-vm/berth/internal/controller/uploadkeys"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/pkg/claim"
)

// errUnsupported: the volume asks for a feature that is not supported, so a retry would not help.
var errUnsupported = errors.New("unsupported")

// act carries out one action. Each may be repeated.
func (e *Engine) act(ctx context.Context, a volume.Action, s *Seen) error {
	switch a {
	case volume.CreateClaim:
		return e.createClaim(ctx, s)
	case volume.AdoptClaim, volume.RecordKept:
		return e.mark(ctx, s, func(m marks) {
			m[names.PodPhase], m[names.PopulatedFor], m[names.MayFill] = string(corev1.PodSucceeded), s.order.For.GetName(), names.Filled
		})
	case volume.NoteKept:
		return e.noteKept(ctx, s)
	case volume.StartWorker:
		return e.startWorker(ctx, s)
	case volume.TakeDisks:
		return e.records.Admit(ctx, s.worker)
	case volume.StopWorker:
		return e.stopWorker(ctx, s)
	case volume.DisarmWorker:
		if s.role() != render.RoleUpload {
			return nil
		}
		return e.uploads.Revoke(ctx, s.uploading(s.worker.Name))
	case volume.RecordRestart:
		return e.mark(ctx, s, func(m marks) {
			m[names.Restarts] = strconv.Itoa(int(s.attempt()) + 1)
			m[names.RunMessage] = s.lastError()
		})
	case volume.RecordStage:
		return e.mark(ctx, s, stages{s}.stageDone)
	case volume.RecordData:
		if err := e.freeDisks(ctx, s); err != nil {
			return err
		}
		if err := e.noteFilled(ctx, s); err != nil {
			return err
		}
		return e.mark(ctx, s, s.done)
	case volume.RecordFatal:
		return e.mark(ctx, s, func(m marks) {
			m[names.Fatal] = "true"
			delete(m, names.PodReady)
			delete(m, names.ServedOn)
			m[names.PodPhase] = string(corev1.PodFailed)
			m[names.RunMessage], m[names.RunReason] = s.lastError(), string(s.runReason())
		})
	case volume.RemoveClaim:
		if err := e.clones.DropSnapshot(ctx, &s.clone); err != nil { // first: without the claim nothing refers to the snapshot any more
			return err
		}
		return e.cluster.Delete(ctx, s.claim)
	case volume.PlaceClaim, volume.TakeSnapshot, volume.RestoreOrigin, volume.StartServer, volume.CleanUp:
		return e.clones.Act(ctx, a, &s.clone)
	}
	return fmt.Errorf("nobody knows how to %s", a)
}

// done records on the claim that its data is complete, and that no worker may write to it any more.
func (s *Seen) done(m marks) {
	m[names.PodPhase], m[names.MayFill] = string(corev1.PodSucceeded), names.Filled
	delete(m, names.RunMessage)
	delete(m, names.RunReason)
	delete(m, names.PodReady)
	delete(m, names.ServedOn)
	stages{s}.stagesDone(m)
	if s.report != nil && s.report.Virtual > 0 {
		m[names.DiskSize] = strconv.FormatInt(s.report.Virtual, 10)
	}
	if v, is := s.order.For.(*cdiv1.DataVolume); is {
		m[names.FilledBy] = clonesource.SpecDigest(&v.Spec)
	}
	if s.report != nil && s.report.Upload != "" {
		m[names.Uploaded] = s.report.Upload
	}
	if s.preallocate() && s.report != nil && s.content() != task.Archive { // files take what they need
		m[names.Preallocate] = "true"
	}
}

func (e *Engine) createClaim(ctx context.Context, s *Seen) error {
	if err := e.clones.DropOutdated(ctx, &s.clone); err != nil {
		return err
	}
	wanted := s.wanted.DeepCopy()
	keeps := s.dataFact() == volume.Found // nothing is cloned into a volume that waits for the claim and keeps its data
	if from := s.clone.DataSource(); from != nil && !keeps && s.small == "" {
		wanted.DataSource = from
	}
	c := s.order.claim(*wanted)
	c.Annotations[names.ContentType] = string(orKubeVirt(s.order.Spec.ContentType))
	c.Annotations[names.MayFill] = string(s.order.UID)
	if s.flow() == volume.External {
		c.Annotations[names.External] = "true"
	}
	if flow := s.flow(); (flow == volume.Import || flow == volume.Staged) && !keeps {
		c.Annotations[names.ImportPod] = render.WorkerName(render.RoleImport, s.order.Name) // clients look for it while the first worker runs, too
	}
	switch {
	case s.small != "":
		c.Annotations[names.CloneSize] = names.CloneSizeSmall
	case !keeps:
		s.clone.Mark(c)
	}
	if err := e.listReserved(ctx, s, c); err != nil {
		return err
	}
	clonesource.MoveNamespace(c)
	return e.cluster.Create(ctx, c)
}

// startWorker makes the worker after it has read the claim from the API server: with a stale cache, a complete disk would be overwritten.
func (e *Engine) startWorker(ctx context.Context, s *Seen) error {
	now, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, e.live, s.claim.Namespace, s.claim.Name)
	if err != nil {
		return err
	}
	if now == nil || now.ResourceVersion != s.claim.ResourceVersion {
		return cluster.ErrStale
	}
	w, err := e.transfer(s)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsupported, err)
	}
	pod, err := w.Pod()
	if err != nil {
		return err
	}
	home, err := clonesource.Home(ctx, e.objects, s.claim)
	if err != nil {
		return err
	}
	if err := nodeselect.Follow(ctx, e.reader, pod, home); err != nil {
		return err
	}
	if s.role() == render.RoleUpload {
		if err := e.uploads.Issue(ctx, s.uploading(w.Name)); err != nil {
			return err
		}
	}
	return e.cluster.Create(ctx, pod)
}

func (e *Engine) stopWorker(ctx context.Context, s *Seen) error {
	if s.worker.DeletionTimestamp != nil {
		return nil
	}
	if s.role() == render.RoleUpload {
		if err := e.uploads.Revoke(ctx, s.uploading(s.worker.Name)); err != nil {
			return err
		}
	}
	return e.cluster.Delete(ctx, s.worker)
}

// uploading returns the worker that takes an upload into the claim.
func (s *Seen) uploading(name string) uploadkeys.Worker {
	return uploadkeys.Worker{Namespace: s.order.Namespace, Name: name, Claim: s.claim.UID, Owner: s.order.Owner, Now: s.now}
}

func (s *Seen) passedOn() map[string]string {
	kept := map[string]string{}
	for key, value := range s.order.Annotations {
		if slices.Contains(names.PassedOn, key) {
			kept[key] = value
		}
	}
	return kept
}

func (s *Seen) preallocate() bool {
	if s.order.Spec.Preallocation != nil {
		return *s.order.Spec.Preallocation
	}
	return s.settings.Preallocation
}

// asked returns the size the volume asks for, zero if it leaves it open.
func (s *Seen) asked() resource.Quantity {
	switch {
	case s.order.Spec.Storage != nil:
		return s.order.Spec.Storage.Resources.Requests[corev1.ResourceStorage]
	case s.order.Spec.PVC != nil:
		return s.order.Spec.PVC.Resources.Requests[corev1.ResourceStorage]
	}
	return resource.Quantity{}
}

// diskSize returns how large the guest's disk has to be; 0: as large as its source. A device has its own size, an archive is not a
// disk; spec.storage asks for a disk of a size, spec.pvc for a claim of a size, part of which the filesystem needs.
func (s *Seen) diskSize() int64 {
	if s.block() || s.content() == task.Archive || s.claim.Annotations[names.CloneSize] == names.CloneSizeKept {
		return 0
	}
	asked := s.asked()
	if s.order.Spec.Storage != nil && !asked.IsZero() {
		return asked.Value()
	}
	size := s.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	overhead := claim.OverheadOf(&s.settings.Overhead, deref(s.claim.Spec.StorageClassName))
	usable, err := claim.Usable(size.Value(), overhead)
	if err != nil {
		return 0 // a configuration that makes no sense is no reason to refuse the image: it keeps its own size
	}
	if !s.sizeIsOurs() {
		return usable
	}
	sure, err := claim.FilesystemOf(s.class).Disk(size.Value(), overhead)
	if err != nil {
		return 0
	}
	return min(usable, max(sure, s.clone.Disk())) // the size may be that of the source, whose disk is all that could fit
}

// sizeIsOurs reports whether the claim's size was made from a disk's size, with what its filesystem needs added.
func (s *Seen) sizeIsOurs() bool {
	return s.order.Spec.Storage != nil || s.order.For.GetLabels()[names.ApplyProfile] == "true"
}

// outgrown reports whether the driver fills the claim with a disk that is smaller than the claim was made for, or with one of
// unknown size.
func (s *Seen) outgrown() bool {
	if s.block() || s.content() == task.Archive {
		return false
	}
	has, err := strconv.ParseInt(s.claim.Annotations[names.DiskSize], 10, 64)
	return err != nil || has < s.diskSize()
}

// marks are the annotations on a claim that this controller may change.
type marks map[string]string

// podNameMark is the annotation in which clients look for a worker's name.
var podNameMark = map[string]string{render.RoleImport: names.ImportPod, render.RoleUpload: names.UploadPod}

// claimMarks are the keys of marks.
var claimMarks = []string{
	names.PodPhase, names.PodReady, names.Restarts, names.Fatal, names.RunMessage, names.RunReason, names.ImportPod, names.UploadPod,
	names.Preallocate, names.DiskSize, names.MayFill, names.PopulatedFor, names.ServedOn, names.Uploaded, names.FilledBy,
}

// marksOn returns the marks a claim has.
func marksOn(c *corev1.PersistentVolumeClaim) marks {
	m := marks{}
	for key, value := range c.Annotations {
		if isMark(key) {
			m[key] = value
		}
	}
	return m
}

// mark changes the claim's marks, and what was seen of it along with them.
func (e *Engine) mark(ctx context.Context, s *Seen, change func(marks)) error {
	next := marksOn(s.claim)
	if s.worker != nil {
		next[podNameMark[s.role()]] = s.worker.Name
		if next[names.Restarts] == "" {
			next[names.Restarts] = "0" // clients read a number, from the first try on
		}
	}
	change(next)
	if s.order.owns(s.claim) && maps.Equal(next, marksOn(s.claim)) {
		return nil
	}
	all := s.allMarks(next)
	if err := e.cluster.Mark(ctx, s.claim, all); err != nil {
		return err
	}
	if s.order.itself(s.claim) {
		s.order.Kept.Annotations = all.Annotations // a later Mark in this step replaces all annotations that we own, so it must have these
	}
	s.claim = s.claim.DeepCopy()
	for key := range marksOn(s.claim) {
		delete(s.claim.Annotations, key)
	}
	if s.claim.Annotations == nil {
		s.claim.Annotations = map[string]string{}
	}
	maps.Copy(s.claim.Annotations, next)
	return nil
}

// allMarks returns all annotations that this controller has on the claim: server-side apply removes those that are left out.
func (s *Seen) allMarks(m marks) cluster.Marks {
	all := cluster.Marks{Annotations: maps.Clone(m), Labels: s.imageLabels()}
	if s.order.itself(s.claim) {
		all.Finalizers = s.order.Kept.Finalizers
		for key, value := range s.order.Kept.Annotations {
			if !isMark(key) {
				all.Annotations[key] = value
			}
		}
	} else {
		all.Owners = []metav1.OwnerReference{s.order.Owner}
	}
	return all
}

// Marks returns all annotations that this controller has on the claim, after the actions.
func (s *Seen) Marks() cluster.Marks { return s.allMarks(marksOn(s.claim)) }

// imageLabels returns the labels of the imported image, also after its worker is gone. An image is not trusted, so only valid
// labels of kubevirt.io are accepted.
func (s *Seen) imageLabels() map[string]string {
	all := map[string]string{}
	if s.claim != nil {
		maps.Copy(all, s.claim.Labels)
	}
	if s.report != nil {
		maps.Copy(all, s.report.Labels)
	}
	return clonesource.ImageLabels(all)
}
