package fill

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	reach "k8s.io/component-helpers/storage/volume"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/volume"
	from "github.com/berth-vm/berth/internal/origin"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/pkg/claim"
)

// errUnsupported: the volume asks for something nobody here can do. Trying again would not change that.
var errUnsupported = errors.New("unsupported")

// act carries out one action. Each may be repeated.
func (e *Engine) act(ctx context.Context, a volume.Action, s *Seen) error {
	switch a {
	case volume.CreateClaim:
		return e.createClaim(ctx, s)
	case volume.AdoptClaim, volume.RecordKept:
		return e.mark(ctx, s, func(m marks) {
			m[AnnPodPhase], m[AnnPopulatedFor], m[from.AnnMayFill] = string(corev1.PodSucceeded), s.order.For.GetName(), from.Filled
		})
	case volume.NoteKept:
		return e.noteKept(ctx, s)
	case volume.StartWorker:
		return e.startWorker(ctx, s)
	case volume.StopWorker:
		return e.stopWorker(ctx, s)
	case volume.DisarmWorker:
		if s.role() != render.RoleUpload {
			return nil
		}
		return e.revoke(ctx, s, s.worker.Name)
	case volume.RecordRestart:
		return e.mark(ctx, s, func(m marks) {
			m[annRestarts] = strconv.Itoa(int(s.attempt()) + 1)
			m[annRunMessage] = s.lastError()
		})
	case volume.RecordData:
		if err := e.noteFilled(ctx, s); err != nil {
			return err
		}
		return e.mark(ctx, s, s.done)
	case volume.RecordFatal:
		return e.mark(ctx, s, func(m marks) {
			m[annFatal] = "true"
			delete(m, AnnPodReady)
			m[AnnPodPhase] = string(corev1.PodFailed)
			m[annRunMessage], m[annRunReason] = s.lastError(), string(s.runReason())
		})
	case volume.RemoveClaim:
		if err := e.dropSnapshot(ctx, s); err != nil { // first: without the claim nobody would remember it
			return err
		}
		return e.cluster.Delete(ctx, s.claim)
	case volume.PlaceClaim:
		return e.placeClaim(ctx, s)
	case volume.TakeSnapshot:
		return e.takeSnapshot(ctx, s)
	case volume.RestoreOrigin:
		return e.restoreOrigin(ctx, s)
	case volume.StartServer:
		return e.startServer(ctx, s)
	case volume.CleanUp:
		return e.cleanUp(ctx, s)
	}
	return fmt.Errorf("nobody knows how to %s", a)
}

// done records on the claim that its data is complete, and that no worker may write to it any more.
func (s *Seen) done(m marks) {
	m[AnnPodPhase], m[from.AnnMayFill] = string(corev1.PodSucceeded), from.Filled
	delete(m, annRunMessage)
	delete(m, annRunReason)
	delete(m, AnnPodReady)
	if s.report != nil && s.report.Virtual > 0 {
		m[annDiskSize] = strconv.FormatInt(s.report.Virtual, 10)
	}
	if s.preallocate() && s.report != nil {
		m[annPreallocate] = "true"
	}
}

func (e *Engine) createClaim(ctx context.Context, s *Seen) error {
	if s.origin.outdated {
		if err := e.deleteSnapshot(ctx, s); err != nil {
			return err
		}
	}
	c := s.order.claim(s.wanted)
	for key, value := range s.origin.labels {
		if _, own := c.Labels[key]; !own {
			c.Labels[key] = value
		}
	}
	c.Annotations[annContentType] = string(orKubeVirt(s.order.Spec.ContentType))
	c.Annotations[from.AnnMayFill] = string(s.order.UID)
	if s.flow() == volume.External {
		c.Annotations[annExternal] = "true"
	}
	if s.origin.strategy != clone.Impossible {
		c.Annotations[AnnCloneType], c.Annotations[annCloneWay] = string(s.origin.strategy.Known()), string(s.origin.strategy)
		c.Annotations[annCloneWhy] = s.origin.why
		if s.origin.fellBack {
			c.Annotations[annCloneBack] = s.origin.why
		}
	}
	if source := s.origin.claim; source != nil && c.Spec.DataSource != nil && source.Annotations[annDiskSize] != "" {
		c.Annotations[annDiskSize] = source.Annotations[annDiskSize] // what its driver will copy
	}
	if c.Spec.DataSource != nil && s.origin.beside != "" && !s.waits() {
		c.Annotations[reach.AnnSelectedNode] = s.origin.beside
	}
	if err := e.listReserved(ctx, c); err != nil {
		return err
	}
	return e.cluster.Create(ctx, c)
}

// startWorker makes the worker, once it is sure that the claim still is as it was seen: a cache that has not yet heard
// of "complete" would have a finished disk written over.
func (e *Engine) startWorker(ctx context.Context, s *Seen) error {
	now, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, e.live, s.claim.Namespace, s.claim.Name)
	if err != nil {
		return err
	}
	if now == nil || now.ResourceVersion != s.claim.ResourceVersion {
		return errStale
	}
	w, err := e.transfer(s)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsupported, err)
	}
	pod, err := w.Pod()
	if err != nil {
		return err
	}
	home, err := from.Home(ctx, e.objects, s.claim)
	if err != nil {
		return err
	}
	if err := e.follow(ctx, pod, home); err != nil {
		return err
	}
	if s.role() == render.RoleUpload {
		if err := e.issue(ctx, s, w.Name); err != nil {
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
		if err := e.revoke(ctx, s, s.worker.Name); err != nil {
			return err
		}
	}
	return e.cluster.Delete(ctx, s.worker)
}

func (s *Seen) passedOn() map[string]string {
	kept := map[string]string{}
	for key, value := range s.order.Annotations {
		if slices.Contains(PassedOn, key) {
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

// asked is the size the volume asks for, zero if it leaves it open.
func (s *Seen) asked() resource.Quantity {
	switch {
	case s.order.Spec.Storage != nil:
		return s.order.Spec.Storage.Resources.Requests[corev1.ResourceStorage]
	case s.order.Spec.PVC != nil:
		return s.order.Spec.PVC.Resources.Requests[corev1.ResourceStorage]
	}
	return resource.Quantity{}
}

// diskSize is how large the guest's disk shall be. A device is what it is, an archive is no disk; spec.storage asks for
// a disk of a size, spec.pvc for a claim of a size, of which the filesystem keeps its share.
func (s *Seen) diskSize() int64 {
	if s.block() || s.content() == task.Archive {
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
	return min(usable, max(sure, s.origin.found.Disk())) // the size may be that of the source, whose disk is all that could fit
}

// sizeIsOurs says that the claim's size was made from a disk's size, with what its filesystem needs added.
func (s *Seen) sizeIsOurs() bool {
	return s.order.Spec.Storage != nil || s.order.For.GetLabels()[labelApplyProfile] == "true"
}

// outgrown: the driver fills the claim with a disk that is smaller than the claim is for, or that nobody knows the size of.
func (s *Seen) outgrown() bool {
	if s.block() || s.content() == task.Archive {
		return false
	}
	has, err := strconv.ParseInt(s.claim.Annotations[annDiskSize], 10, 64)
	return err != nil || has < s.diskSize()
}

// marks are the annotations on a claim that are ours to change.
type marks map[string]string

// podNameMark is where clients look for a worker's name.
var podNameMark = map[string]string{render.RoleImport: annImportPod, render.RoleUpload: annUploadPod}

// marksOn are the marks a claim bears.
func marksOn(c *corev1.PersistentVolumeClaim) marks {
	m := marks{}
	for _, key := range []string{
		AnnPodPhase, AnnPodReady, annRestarts, annFatal, annRunMessage, annRunReason, annImportPod, annUploadPod,
		annPreallocate, annDiskSize, from.AnnMayFill, AnnPopulatedFor,
	} {
		if value, ok := c.Annotations[key]; ok {
			m[key] = value
		}
	}
	return m
}

// shownKeys are the annotations of a claim that clients read: how far its filling is, and what its contents are.
var shownKeys = []string{
	AnnPodPhase, AnnPodReady, annRestarts, annFatal, annRunMessage, annRunReason, annImportPod, annUploadPod, annPreallocate, annDiskSize,
	annContentType, AnnCloneType, annCloneBack, annCloneWay,
}

// Shown are those annotations as a claim bears them, and the ones it does not bear.
func Shown(c *corev1.PersistentVolumeClaim) (has map[string]string, lacks []string) {
	has = map[string]string{}
	for _, key := range shownKeys {
		if value, ok := c.Annotations[key]; ok {
			has[key] = value
		} else {
			lacks = append(lacks, key)
		}
	}
	return has, lacks
}

// mark changes the claim's marks, and what was seen of it along with them.
func (e *Engine) mark(ctx context.Context, s *Seen, change func(marks)) error {
	next := marksOn(s.claim)
	if s.worker != nil {
		next[podNameMark[s.role()]] = s.worker.Name
		if next[annRestarts] == "" {
			next[annRestarts] = "0" // clients read a number, from the first try on
		}
	}
	change(next)
	if s.order.owns(s.claim) && maps.Equal(next, marksOn(s.claim)) {
		return nil
	}
	if err := e.cluster.Mark(ctx, s.claim, s.allMarks(next)); err != nil {
		return err
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

// allMarks is everything we have on the claim, which is what has to be said when any of it changes.
func (s *Seen) allMarks(m marks) cluster.Marks {
	all := cluster.Marks{Annotations: maps.Clone(m), Labels: s.imageLabels()}
	if s.order.itself(s.claim) {
		maps.Copy(all.Annotations, s.order.Kept.Annotations)
	} else {
		all.Owners = []metav1.OwnerReference{s.order.Owner}
	}
	return all
}

// Marks is everything we have on the claim, after what was done.
func (s *Seen) Marks() cluster.Marks { return s.allMarks(marksOn(s.claim)) }

// imageLabels are the labels an image brought along, also after its worker is gone. What an image says is not trusted further than
// that it must be a label, and one of kubevirt.io: it cannot make the claim look like something else.
func (s *Seen) imageLabels() map[string]string {
	all := map[string]string{}
	if s.claim != nil {
		maps.Copy(all, s.claim.Labels)
	}
	if s.report != nil {
		maps.Copy(all, s.report.Labels)
	}
	return ImageLabels(all)
}

// ImageLabels are those of labels that an image may bring along.
func ImageLabels(all map[string]string) map[string]string {
	labels := map[string]string{}
	for key, value := range all {
		domain, _, found := strings.Cut(key, "/")
		known := found && (domain == "kubevirt.io" || strings.HasSuffix(domain, ".kubevirt.io"))
		if known && domain != "cdi.kubevirt.io" && len(validation.IsQualifiedName(key)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
			labels[key] = value
		}
	}
	return labels
}

// show keeps what clients read from the claim's annotations true while a worker is at work. The end of it is not shown
// but recorded, by the actions above.
func (e *Engine) show(ctx context.Context, s *Seen) error {
	if s.claim == nil || s.worker == nil || s.dataFact() != volume.None || !s.order.owns(s.claim) {
		return nil
	}
	phase := corev1.PodPending
	switch s.workerFact() {
	case volume.NoWorker, volume.Going, volume.CutOff, volume.Done, volume.Retained, volume.Fatal:
		return nil
	case volume.Running:
		if err := e.renew(ctx, s); err != nil {
			return err
		}
		phase = corev1.PodRunning
	case volume.Failed:
		phase = corev1.PodFailed
	case volume.Pending, volume.Unplaceable, volume.Unfetchable:
	}
	return e.mark(ctx, s, func(m marks) {
		m[AnnPodPhase] = string(phase)
		if s.role() == render.RoleUpload {
			m[AnnPodReady] = strconv.FormatBool(phase == corev1.PodRunning)
		}
	})
}
