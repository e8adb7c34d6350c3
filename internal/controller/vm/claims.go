package vm

import (
	"context"
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/compose"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/pkg/claim"
)

// createClaims makes the claims that are not there and takes back those that came back without their machine.
func (r *Reconciler) createClaims(ctx context.Context, w *compose.Machine) error {
	if w.Means != machine.Provided {
		return nil
	}
	if err := r.createRevisions(ctx, w); err != nil {
		return err
	}
	for _, t := range w.Claims {
		if t.Claim == nil {
			if restoring, err := r.Machines.Restoring(ctx, w); err != nil || restoring {
				return err
			}
			if last, _, err := replacedclaim.Of(ctx, r.Read.Live, w.Object.Namespace, t.Name); err != nil || last != nil {
				return err // it is made again with the volume that has its data
			}
		}
		switch {
		case t.Adopted(w.Object):
			if err := r.Cluster.Mark(ctx, t.Claim, cluster.Marks{Owners: []metav1.OwnerReference{observed.Owner(w.Object)}}); err != nil {
				return err
			}
			r.Cluster.Event(w.Object, corev1.EventTypeNormal, "SuccessfulClaimAdoption",
				fmt.Sprintf("PersistentVolumeClaim %s was made for a machine of this name and is its disk again", t.Name))
		case t.Claim == nil:
			if err := r.createClaim(ctx, w, t); errors.Is(err, cluster.ErrNamespaceLeaving) {
				return err
			} else if err != nil {
				r.Cluster.Event(w.Object, corev1.EventTypeWarning, "FailedClaimCreate",
					fmt.Sprintf("Error creating PersistentVolumeClaim %s: %v", t.Name, err))
				return err
			}
			r.Cluster.Event(w.Object, corev1.EventTypeNormal, "SuccessfulClaimCreate", created(t))
		}
	}
	return nil
}

// createClaim creates the claim of a template. If the claim will be filled and its class has no provisioner, the claim records which
// PersistentVolumes are reserved for it: those may hold data.
func (r *Reconciler) createClaim(ctx context.Context, w *compose.Machine, t compose.ClaimTemplate) error {
	c := compose.NewClaim(w.Object, t)
	if clonesource.PopulatedByUs(c) && claim.Static(t.Complete.Class) {
		list, err := cluster.ReservedFor(ctx, r.Read.Live, c)
		if err != nil {
			return err
		}
		c.Annotations = observed.With(c.Annotations, names.VolumeList, list)
	}
	return r.Cluster.Create(ctx, c)
}

func created(t compose.ClaimTemplate) string {
	text := "Created PersistentVolumeClaim " + t.Name
	if why := t.Complete.Reasons(); why != "" {
		text += ": " + why
	}
	return text
}
