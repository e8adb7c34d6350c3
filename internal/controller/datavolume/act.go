package datavolume

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

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
	"github.com/berth-vm/berth/pkg/claim"
)

// errUnsupported: the volume asks for something nobody here can do. Trying again would not change that.
var errUnsupported = errors.New("unsupported")

// act carries out one action. Each may be repeated.
func (r *Reconciler) act(ctx context.Context, a volume.Action, s *seen) error {
	switch a {
	case volume.CreateClaim:
		return r.createClaim(ctx, s)
	case volume.AdoptClaim:
		return r.mark(ctx, s, func(m marks) { m[annPodPhase] = string(corev1.PodSucceeded) })
	case volume.StartWorker:
		return r.startWorker(ctx, s)
	case volume.StopWorker:
		return r.stopWorker(ctx, s)
	case volume.RecordRestart:
		return r.mark(ctx, s, func(m marks) {
			m[annRestarts] = strconv.Itoa(int(s.attempt()) + 1)
			m[annRunMessage] = s.lastError()
		})
	case volume.RecordData:
		return r.mark(ctx, s, func(m marks) {
			m[annPodPhase] = string(corev1.PodSucceeded)
			delete(m, annRunMessage)
			delete(m, annPodReady)
			if s.report != nil && s.report.Virtual > 0 {
				m[annDiskSize] = strconv.FormatInt(s.report.Virtual, 10)
			}
			if s.preallocate() && s.report != nil {
				m[annPreallocate] = "true"
			}
		})
	case volume.RecordFatal:
		return r.mark(ctx, s, func(m marks) {
			m[annFatal] = "true"
			delete(m, annPodReady)
			m[annPodPhase] = string(corev1.PodFailed)
			m[annRunMessage] = s.lastError()
		})
	case volume.TakeSnapshot:
		return r.takeSnapshot(ctx, s)
	case volume.StartServer:
		return r.startServer(ctx, s)
	case volume.CleanUp:
		return r.cleanUp(ctx, s)
	}
	return fmt.Errorf("nobody knows how to %s", a)
}

func (r *Reconciler) createClaim(ctx context.Context, s *seen) error {
	c := render.Claim(s.volume, s.wanted)
	c.Annotations[annContentType] = string(orKubeVirt(s.volume.Spec.ContentType))
	if s.flow() == volume.External {
		c.Annotations[annExternal] = "true"
	}
	if s.origin.strategy != clone.Impossible {
		c.Annotations[annCloneType], c.Annotations[annCloneWhy] = string(s.origin.strategy), s.origin.why
	}
	return r.cluster.Create(ctx, c)
}

// startWorker makes the worker, once it is sure that the claim still is as it was seen: a cache that has not yet heard
// of "complete" would have a finished disk written over.
func (r *Reconciler) startWorker(ctx context.Context, s *seen) error {
	now, err := get[corev1.PersistentVolumeClaim](ctx, r.live, s.claim.Namespace, s.claim.Name)
	if err != nil {
		return err
	}
	if now == nil || now.ResourceVersion != s.claim.ResourceVersion {
		return errStale
	}
	w, err := r.transfer(s)
	if err != nil {
		return fmt.Errorf("%w: %w", errUnsupported, err)
	}
	pod, err := w.Pod()
	if err != nil {
		return err
	}
	return r.cluster.Create(ctx, pod)
}

func (r *Reconciler) stopWorker(ctx context.Context, s *seen) error {
	if s.worker.DeletionTimestamp != nil {
		return nil
	}
	return r.cluster.Delete(ctx, s.worker)
}

func (s *seen) passedOn() map[string]string {
	kept := map[string]string{}
	for key, value := range s.volume.Annotations {
		if slices.Contains(passedOn, key) {
			kept[key] = value
		}
	}
	return kept
}

func (s *seen) preallocate() bool {
	if s.volume.Spec.Preallocation != nil {
		return *s.volume.Spec.Preallocation
	}
	return s.settings.Preallocation
}

// asked is the size the volume asks for, zero if it leaves it open.
func (s *seen) asked() resource.Quantity {
	switch {
	case s.volume.Spec.Storage != nil:
		return s.volume.Spec.Storage.Resources.Requests[corev1.ResourceStorage]
	case s.volume.Spec.PVC != nil:
		return s.volume.Spec.PVC.Resources.Requests[corev1.ResourceStorage]
	}
	return resource.Quantity{}
}

// diskSize is how large the guest's disk shall be. A device is what it is, an archive is no disk; spec.storage asks for
// a disk of a size, spec.pvc for a claim of a size, of which the filesystem keeps its share.
func (s *seen) diskSize() int64 {
	if s.block() || s.content() == task.Archive {
		return 0
	}
	asked := s.asked()
	if s.volume.Spec.Storage != nil && !asked.IsZero() {
		return asked.Value()
	}
	size := s.claim.Spec.Resources.Requests[corev1.ResourceStorage]
	usable, err := claim.Usable(size.Value(), claim.OverheadOf(&s.settings.Overhead, deref(s.claim.Spec.StorageClassName)))
	if err != nil {
		return 0 // a configuration that makes no sense is no reason to refuse the image: it keeps its own size
	}
	return usable
}

// marks are the annotations on a claim that are ours to change.
type marks map[string]string

// podNameMark is where clients look for a worker's name.
var podNameMark = map[string]string{render.RoleImport: annImportPod, render.RoleUpload: annUploadPod}

// marksOn are the marks a claim bears.
func marksOn(c *corev1.PersistentVolumeClaim) marks {
	m := marks{}
	for _, key := range []string{
		annPodPhase, annPodReady, annRestarts, annFatal, annRunMessage, annImportPod, annUploadPod, annPreallocate,
		annDiskSize,
	} {
		if value, ok := c.Annotations[key]; ok {
			m[key] = value
		}
	}
	return m
}

// mark changes the claim's marks, and what was seen of it along with them.
func (r *Reconciler) mark(ctx context.Context, s *seen, change func(marks)) error {
	next := marksOn(s.claim)
	if s.worker != nil {
		next[podNameMark[s.role()]] = s.worker.Name
	}
	change(next)
	owned := metav1.IsControlledBy(s.claim, s.volume)
	if owned && maps.Equal(next, marksOn(s.claim)) {
		return nil
	}
	err := r.cluster.Mark(ctx, s.claim, cluster.Marks{
		Annotations: next, Labels: s.imageLabels(), Owners: []metav1.OwnerReference{render.VolumeOwner(s.volume)},
	})
	if err != nil {
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

// imageLabels are the labels an image brought along. What an image says is not trusted further than that it must be a
// label, and one of kubevirt.io: it cannot make the claim look like something else.
func (s *seen) imageLabels() map[string]string {
	if s.report == nil {
		return nil
	}
	labels := map[string]string{}
	for key, value := range s.report.Labels {
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
func (r *Reconciler) show(ctx context.Context, s *seen) error {
	if s.claim == nil || s.worker == nil || s.dataFact() != volume.None || !metav1.IsControlledBy(s.claim, s.volume) {
		return nil
	}
	phase := corev1.PodPending
	switch s.workerFact() {
	case volume.NoWorker, volume.Going, volume.CutOff, volume.Done, volume.Fatal:
		return nil
	case volume.Running:
		phase = corev1.PodRunning
	case volume.Failed:
		phase = corev1.PodFailed
	case volume.Pending, volume.Unplaceable, volume.Unfetchable:
	}
	return r.mark(ctx, s, func(m marks) {
		m[annPodPhase] = string(phase)
		if s.role() == render.RoleUpload {
			m[annPodReady] = strconv.FormatBool(phase == corev1.PodRunning)
		}
	})
}
