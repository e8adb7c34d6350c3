package fill

import (
	"context"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
)

// saidElsewhere reports whether the claim need not be marked with this phase of its first worker. That the worker is being placed
// is shown by the object that the claim is filled for, unless that is the claim itself. That it runs is shown by the status of a
// DataVolume; but uploads, and machines that may start early, look at the claim.
func (s *Seen) saidElsewhere(phase corev1.PodPhase) bool {
	if _, shown := s.claim.Annotations[names.PodPhase]; shown {
		return false
	}
	switch phase { //nolint:exhaustive // how it ended is always said
	case corev1.PodPending:
		return !s.order.itself(s.claim)
	case corev1.PodRunning:
		_, told := s.order.For.(*cdiv1.DataVolume)
		return told && s.role() != render.RoleUpload && !earlyUse{s}.serves()
	}
	return false
}

// phaseBetween returns the phase that clients are shown while no worker runs. Upstream has one pod for all tries of an import or
// a clone, which its kubelet starts again: from the first failed try on it is Running. An upload is not: clients would send to a
// worker that is not there.
func (s *Seen) phaseBetween(fact volume.Worker) corev1.PodPhase {
	switch {
	case s.role() != render.RoleUpload && (fact == volume.Failed || s.restarts() > 0):
		return corev1.PodRunning
	case fact == volume.Failed:
		return corev1.PodFailed
	}
	return corev1.PodPending
}

// show keeps what clients read from the claim's annotations true while a worker is at work. The end of it is not shown
// but recorded, by the actions above.
func (e *Engine) show(ctx context.Context, s *Seen) error {
	if s.claim == nil || s.worker == nil || s.dataFact() != volume.None || !s.order.owns(s.claim) {
		return nil
	}
	phase, fact := corev1.PodPending, s.workerFact()
	switch fact {
	case volume.NoWorker, volume.Going, volume.Stranded, volume.CutOff, volume.Done, volume.Retained, volume.Fatal:
		return nil
	case volume.Running:
		if s.role() == render.RoleUpload {
			if err := e.uploads.Renew(ctx, s.uploading(s.worker.Name), s.worker.CreationTimestamp); err != nil {
				return err
			}
		}
		phase = corev1.PodRunning
	case volume.Failed, volume.Pending, volume.Unplaceable, volume.Unfetchable:
		phase = s.phaseBetween(fact)
	}
	if fact != volume.Failed && s.saidElsewhere(phase) {
		return nil
	}
	return e.mark(ctx, s, func(m marks) {
		m[names.PodPhase] = string(phase)
		earlyUse{s}.markServed(m)
		if s.role() == render.RoleUpload {
			m[names.PodReady] = strconv.FormatBool(phase == corev1.PodRunning)
		}
	})
}
