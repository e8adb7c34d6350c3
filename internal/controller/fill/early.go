package fill

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/importsource"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
	"github.com/berth-vm/berth/internal/task"
)

// earlyUse handles a disk that a machine may use while it is filled.
type earlyUse struct{ *Seen }

// bootsEarly reports whether a machine may start before the disk is full, as the claim or the volume asks.
func (s earlyUse) bootsEarly() bool {
	return s.order.Annotations[names.BootEarly] == "true" || s.claim != nil && s.claim.Annotations[names.BootEarly] == "true"
}

// late returns why the volume cannot be used before it is full, as far as that is known before the source is read; empty if it can.
func (s earlyUse) late() state.EarlyReason {
	kind, _ := importsource.Of(s.source)
	switch {
	case s.clone.IsClone() && !s.clone.Worked():
		return state.LateClone
	case kind == nil && !s.clone.IsClone() && s.clone.Backup() == nil:
		return state.LateSource
	case s.content() == task.Archive:
		return state.LateArchive
	case s.block():
		return state.LateBlock
	case slices.Contains(s.claim.Spec.AccessModes, corev1.ReadWriteOncePod):
		return state.LateOnePod
	case s.order.Name != s.order.For.GetName():
		return state.LatePrime
	}
	return ""
}

// markServed records the node where the disk is served. A worker that does not answer is assumed to serve it still.
func (s earlyUse) markServed(m marks) {
	switch {
	case s.workerFact() != volume.Running:
		delete(m, names.ServedOn)
	case s.progress == nil:
	case s.serves():
		m[names.ServedOn] = s.worker.Spec.NodeName
	default:
		delete(m, names.ServedOn)
	}
}

// serves reports whether the worker says that a machine can have the disk.
func (s earlyUse) serves() bool {
	return s.progress != nil && s.progress.Early != nil && s.progress.Early.Serves
}

// earlyText returns what there is to say of a disk that a machine may start with before it is full; empty if none may.
func (s earlyUse) earlyText() string {
	if !s.bootsEarly() {
		return ""
	}
	p := s.progress
	switch why := s.late(); {
	case why != "":
		return why.Text("")
	case p == nil || p.Early == nil:
		return ""
	case p.Early.Cannot != "":
		return state.LateImage.Text(p.Early.Cannot)
	case !p.Early.Serves:
		return ""
	}
	return state.Early{Booted: p.Early.Clients > 0, Percent: p.Percent, Rate: p.Rate, Left: max(0, p.Total-p.Done), Away: p.Early.Away}.Text()
}

// joined joins sentences to one text.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(t string) bool { return t == "" }), "; ")
}
