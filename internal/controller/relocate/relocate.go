// Package relocate gives claims the volumes that their data moved to. A live move leaves a guest's disk in a replacement, a claim that
// the launcher at the new node mounts; this controller deletes the old claim with its volume, makes the claim again under its own name
// and binds it to a second PersistentVolume of the same volume, at once, while the guest runs. When the launcher has ended it removes
// what the move left over. internal/decide/relocate decides, docs/decisions/0027 has the reasons.
//
// It does not know machines or migrations: a record on a PersistentVolume (internal/controller/replacedclaim) tells it everything.
package relocate

import (
	"context"
	"fmt"
	"time"

	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/diskaccess"
	"github.com/berth-vm/berth/internal/decide/relocate"
)

// Reconciler reconciles claims whose data moved.
type Reconciler struct {
	Reader  client.Reader // cached, with the indexes of internal/controller/cacheindex
	Live    client.Reader // the server itself: a claim is deleted because of what it says
	Cluster *cluster.Writer
	Records *diskaccess.Records
}

// again is how often a claim is checked that does not have its volume yet.
const again = time.Second

// idle is how often a claim is checked whose volume a launcher uses, in case an event is missed.
const idle = time.Minute

// Reconcile brings the claim of that name a step nearer to the volume that has its data.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	d, err := r.observe(ctx, req.NamespacedName)
	if err != nil {
		return ctrl.Result{}, err
	}
	facts := d.facts()
	plan := relocate.Decide(facts)
	log.FromContext(ctx).V(1).Info("decided", "rule", plan.Rule, "facts", fmt.Sprintf("%+v", facts), "do", plan.Do)
	for _, a := range plan.Do {
		if err := r.act(ctx, a, d); err != nil {
			return ctrl.Result{}, fmt.Errorf("%s of claim %s: %w", a, req.NamespacedName, err)
		}
	}
	switch {
	case plan.Done:
		return ctrl.Result{}, nil
	case len(plan.Do) == 0 && plan.Current:
		return ctrl.Result{RequeueAfter: idle}, nil
	}
	return ctrl.Result{RequeueAfter: again}, nil
}
