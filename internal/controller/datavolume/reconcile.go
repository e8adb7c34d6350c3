// Package datavolume reconciles DataVolumes: each is an order for the engine of internal/controller/fill, and the result is the
// volume's status.
//
// It does not know how a claim is made or filled.
package datavolume

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/fill"
	"github.com/berth-vm/berth/internal/names"
)

// Reconciler reconciles DataVolumes.
type Reconciler struct {
	reader  client.Reader // cached
	engine  *fill.Engine
	cluster *cluster.Writer
}

// Reconcile brings one volume a step further.
func (r *Reconciler) Reconcile(ctx context.Context, req ctrl.Request) (ctrl.Result, error) {
	v := &cdiv1.DataVolume{}
	if err := r.reader.Get(ctx, req.NamespacedName, v); apierrors.IsNotFound(err) {
		r.cluster.Forget(req.NamespacedName)
		return ctrl.Result{}, r.engine.Sweep(ctx, req.NamespacedName)
	} else if err != nil {
		return ctrl.Result{}, fmt.Errorf("read DataVolume %s: %w", req, err)
	}
	order := fill.OfVolume(v)
	if v.DeletionTimestamp != nil {
		return ctrl.Result{}, r.engine.Release(ctx, order)
	}
	seen, err := r.engine.Observe(ctx, order)
	if err != nil {
		return ctrl.Result{}, err
	}
	outcome, err := r.engine.Act(ctx, seen)
	if err != nil {
		return ctrl.Result{}, err
	}
	if !outcome.Stale {
		err = errors.Join(r.label(ctx, v, seen.Inherited()), r.noteCloneType(ctx, v, seen.CloneType()), r.cluster.Report(ctx, v, outcome.Status))
	}
	return ctrl.Result{RequeueAfter: outcome.Again}, err
}

// label gives the volume the labels that its claim has from its source, as far as it has none of its own: machines infer their
// instance type from them.
func (r *Reconciler) label(ctx context.Context, v *cdiv1.DataVolume, inherited map[string]string) error {
	next := v.DeepCopy()
	for key, value := range inherited {
		if _, own := next.Labels[key]; own {
			continue
		}
		if next.Labels == nil {
			next.Labels = map[string]string{}
		}
		next.Labels[key] = value
	}
	if len(next.Labels) == len(v.Labels) {
		return nil
	}
	return r.cluster.Change(ctx, v, next)
}

// noteCloneType writes on the volume how its claim is cloned, where clients look for it. The engine may have written to the volume in the same step, so the
// version that was read does not matter.
func (r *Reconciler) noteCloneType(ctx context.Context, v *cdiv1.DataVolume, way string) error {
	if way == "" || v.Annotations[names.CloneType] == way {
		return nil
	}
	return r.cluster.Annotate(ctx, v, names.CloneType, way)
}
