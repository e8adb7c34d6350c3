package fill

import (
	"errors"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/berth-vm/berth/internal/decide/volume"
	"github.com/berth-vm/berth/internal/state"
)

// TestQuotaIsTold: a quota that refuses the claim or the worker is told with the event that clients wait for; other refusals are not.
func TestQuotaIsTold(t *testing.T) {
	refused := func(resource, why string) error {
		return fmt.Errorf("create: %w", apierrors.NewForbidden(schema.GroupResource{Group: corev1.GroupName, Resource: resource}, "disk", errors.New(why)))
	}
	const quota = "exceeded quota: team, requested: pods=1, used: pods=4, limited: pods=4"
	for name, row := range map[string]struct {
		action volume.Action
		err    error
		reason state.Reason
		told   state.Reason
	}{
		"a claim":             {volume.CreateClaim, refused("persistentvolumeclaims", quota), state.QuotaExceeded, ""},
		"a worker":            {volume.StartWorker, refused("pods", quota), state.WorkerRefused, state.QuotaExceeded},
		"a worker, otherwise": {volume.StartWorker, refused("pods", "violates PodSecurity"), state.WorkerRefused, ""},
	} {
		said, ok := (&Seen{}).refusal(row.action, row.err)
		if !ok || said.Reason != row.reason || said.Told != row.told {
			t.Errorf("%s: %s and %q, want %s and %q", name, said.Reason, said.Told, row.reason, row.told)
		}
	}
}
