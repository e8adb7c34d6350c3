package fill

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/controller/config"
	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/task"
)

// bootsEarly: somebody asked that a machine may start before the disk is full.
func (s *Seen) bootsEarly() bool {
	asked := s.order.Annotations[names.BootEarly] == "true" || s.claim != nil && s.claim.Annotations[names.BootEarly] == "true"
	return asked && s.settings.Enabled(config.BootEarly)
}

// cannotBootEarly is why none can, as far as it can be known before the source is read; empty if it can.
func (s *Seen) cannotBootEarly() string {
	switch {
	case s.flow() != volume.Import || s.source.HTTP == nil:
		return "it is not imported from a web server"
	case s.content() == task.Archive:
		return "it is an archive and no disk"
	case s.block():
		return "its volumeMode is Block, which has no room for notes of what the guest writes; use Filesystem"
	case slices.Contains(s.claim.Spec.AccessModes, corev1.ReadWriteOncePod):
		return "its access mode ReadWriteOncePod keeps the machine from it while it is filled; use ReadWriteOnce"
	case s.order.Name != s.order.For.GetName():
		return "its claim gets its volume only when that is full; use a DataVolume"
	}
	return ""
}

// markServed notes where the disk is served. A worker that does not answer serves it still, as far as anybody knows.
func (s *Seen) markServed(m marks) {
	switch {
	case s.workerFact() != volume.Running:
		delete(m, names.ServedOn)
	case s.progress == nil:
	case s.progress.Early != nil && s.progress.Early.Serves:
		m[names.ServedOn] = s.worker.Spec.NodeName
	default:
		delete(m, names.ServedOn)
	}
}

// earlyText is what there is to say of a disk that a machine may start with before it is full; empty if none may.
func (s *Seen) earlyText() string {
	if !s.bootsEarly() {
		return ""
	}
	why := s.cannotBootEarly()
	p := s.progress
	if why == "" && p != nil && p.Early != nil {
		why = p.Early.Cannot
	}
	switch {
	case why != "":
		return "no machine can start with it before it is full: " + why
	case p == nil || p.Early == nil || !p.Early.Serves:
		return ""
	}
	text := "a machine can start with it"
	if p.Early.Clients > 0 {
		text = "booted"
	}
	text += fmt.Sprintf(", %.0f %% local, %d MB/s", p.Percent, p.Rate/1e6)
	if p.Rate > 0 && p.Total > p.Done {
		text += fmt.Sprintf(", %s left", time.Duration((p.Total-p.Done)/p.Rate)*time.Second)
	}
	return text
}

// joined is sentences in one.
func joined(texts ...string) string {
	return strings.Join(slices.DeleteFunc(texts, func(t string) bool { return t == "" }), "; ")
}
