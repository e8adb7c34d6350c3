package keep

import (
	"context"
	"fmt"
	"strconv"

	corev1 "k8s.io/api/core/v1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/names"
)

// Keep records on the claims what the decision says.
func (r *Reconciler) Keep(ctx context.Context, s *observed.Instance) error {
	for _, k := range s.KeptCopies {
		for _, a := range k.Plan.Do {
			if err := r.record(ctx, a, k); err != nil {
				return fmt.Errorf("%s of volume %s: %w", a, k.Volume, err)
			}
		}
	}
	return nil
}

func (r *Reconciler) record(ctx context.Context, a machine.Action, k *observed.Kept) error {
	phase := corev1.PodRunning
	if a == machine.RecordKept {
		phase = corev1.PodSucceeded
	}
	marks := map[string]string{clonesource.AnnPodPhase: string(phase)}
	if a == machine.RecordKept && k.Word.Total > 0 {
		marks[names.DiskSize] = strconv.FormatInt(k.Word.Total, 10)
	}
	return r.Cluster.Mark(ctx, k.Claim, cluster.Marks{Annotations: marks})
}
