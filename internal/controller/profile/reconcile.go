package profile

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/utils/clock"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
)

// retrySnapshots is how often a cluster without the snapshot API is asked for it again. It is a discovery request, made
// only where snapshots are not installed.
const retrySnapshots = time.Minute

type reconciler struct {
	client    client.Reader
	writer    *cluster.Writer
	clock     clock.PassiveClock
	snapshots *snapshotWatch
}

// Reconcile brings the profile of one class, named like the class, to what decide says.
func (r *reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	watching, err := r.snapshots.start()
	if err != nil {
		return ctrl.Result{}, err
	}
	s, err := r.observe(ctx, req.Name, watching)
	if err != nil {
		return ctrl.Result{}, err
	}
	p := decide(s)
	if p.remove {
		return ctrl.Result{}, r.writer.Delete(ctx, s.profile)
	}
	if p.want == nil {
		return ctrl.Result{}, nil
	}
	if err := r.write(ctx, s.profile, p.want); err != nil {
		return ctrl.Result{}, err
	}
	if !watching {
		return ctrl.Result{RequeueAfter: retrySnapshots}, nil
	}
	return ctrl.Result{}, nil
}

// write states what is new. Metadata and status are two requests because the status is a subresource.
func (r *reconciler) write(ctx context.Context, have, want *cdiv1.StorageProfile) error {
	if have == nil || !contains(have.Labels, want.Labels) || !contains(have.Annotations, want.Annotations) {
		bare := want.DeepCopy()
		bare.Status = cdiv1.StorageProfileStatus{}
		if err := r.writer.Apply(ctx, bare); err != nil {
			return err
		}
	}
	if have != nil && equality.Semantic.DeepEqual(have.Status, want.Status) {
		return nil
	}
	said := &cdiv1.StorageProfile{Status: want.Status}
	said.Name, said.UID = want.Name, want.UID
	return r.writer.ApplyStatus(ctx, said)
}

func contains(have, want map[string]string) bool {
	for key, value := range want {
		if got, ok := have[key]; !ok || got != value {
			return false
		}
	}
	return true
}
