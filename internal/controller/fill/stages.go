package fill

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/internal/task"
)

// stages handles an import in stages, each of which brings the changes since the one before.
type stages struct{ *Seen }

// staged reports whether the volume is imported in stages. Complete stages are recorded on the claim, so that none is imported twice.
func (s stages) staged() bool {
	kind, _ := importsource.Of(s.source)
	return kind != nil && len(s.order.Spec.Checkpoints) > 0
}

// nextStage returns the first stage that is not complete; nil: all are.
func (s stages) nextStage() *cdiv1.DataVolumeCheckpoint {
	for i, c := range s.order.Spec.Checkpoints {
		if _, copied := s.claim.Annotations[names.CheckpointCopied+c.Current]; !copied {
			return &s.order.Spec.Checkpoints[i]
		}
	}
	return nil
}

// stageFact returns the state of the stages, from their record.
func (s stages) stageFact() volume.Data {
	switch {
	case !s.staged() || s.nextStage() != nil:
		return volume.None
	case s.order.Spec.FinalCheckpoint:
		return volume.Applied
	}
	return volume.Paused
}

// aim makes the worker of an import in stages, and its task, that of the next one.
func (s stages) aim(w *render.Worker, t *task.Task) error {
	c := s.nextStage()
	if !s.staged() || c == nil {
		return nil
	}
	if at := s.claim.Annotations[names.CheckpointCurrent]; at != c.Previous {
		return fmt.Errorf("the stage of checkpoint %q is what changed since %q, and the disk is at %q: name the stages in their order", c.Current, c.Previous, at)
	}
	var err error
	if t.Source, err = t.Source.Below(c.Current); err != nil {
		return err
	}
	t.Checkpoint = &task.Checkpoint{Previous: c.Previous, Current: c.Current}
	t.Early = false
	// passedOn made these for this worker alone.
	w.Annotations[names.CheckpointCurrent], w.Annotations[names.CheckpointPrevious] = c.Current, c.Previous
	return nil
}

// stageDone records the stage that the worker brought.
func (s stages) stageDone(m marks) {
	current := s.worker.Annotations[names.CheckpointCurrent]
	m[names.CheckpointCopied+current] = string(s.worker.UID)
	m[names.CheckpointCurrent], m[names.CheckpointPrevious] = current, s.worker.Annotations[names.CheckpointPrevious]
	delete(m, names.RunMessage)
}

// stagesDone records that there are no more.
func (s stages) stagesDone(m marks) {
	if !s.staged() {
		return
	}
	maps.DeleteFunc(m, func(key, _ string) bool { return strings.HasPrefix(key, checkpointMarks) })
	m[names.CheckpointDone] = "true"
}

// checkpointMarks is the prefix of the annotations that record stages.
const checkpointMarks = "cdi.kubevirt.io/storage.checkpoint."

// isMark: an annotation of a claim is ours to change.
func isMark(key string) bool {
	return slices.Contains(claimMarks, key) || strings.HasPrefix(key, checkpointMarks)
}
