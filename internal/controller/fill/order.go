package fill

import (
	"github.com/berth-vm/berth/internal/clonesource"

	cloning "github.com/berth-vm/berth/internal/controller/clone"
	"github.com/berth-vm/berth/internal/names"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/clone"
	"github.com/berth-vm/berth/internal/render"
)

// Order is one claim to make and fill. The same order, placed again with the same For, continues it.
type Order struct {
	// For is the object the claim is filled for. It owns the claim and the other objects that are made in its namespace.
	For   client.Object
	Owner metav1.OwnerReference // that says so
	// Finalizer is set on For while an object made for it exists in another namespace; Kept is the rest of For's metadata that this
	// controller owns.
	Finalizer string
	Kept      cluster.Marks

	Namespace, Name string // of the claim
	UID             types.UID
	Labels          map[string]string
	Annotations     map[string]string
	Spec            cdiv1.DataVolumeSpec

	// Placed: a node was chosen for the claim, so it is bound without a consumer whatever its class says.
	Placed bool
	// CloneType is the strategy that a clone is asked to be made with; empty: the cheapest.
	CloneType clone.Strategy
	// Allowed: the caller has checked that a source in another namespace may be read.
	Allowed bool
}

// OfVolume returns the order of a DataVolume.
func OfVolume(v *cdiv1.DataVolume) Order {
	kept := cluster.Marks{}
	if name, said := v.Annotations[names.PrePopulated]; said {
		kept.Annotations = map[string]string{names.PrePopulated: name} // ours, perhaps: all of it has to be said with every mark
	}
	return Order{
		Kept: kept,
		For:  v, Owner: render.VolumeOwner(v), Finalizer: "cdi.kubevirt.io/cloneSource",
		Namespace: v.Namespace, Name: v.Name, UID: v.UID, Labels: v.Labels, Annotations: v.Annotations, Spec: v.Spec,
	}
}

// OfClaim returns the order to fill a claim that a user made, as spec describes. kept is the rest of the metadata that this
// controller owns.
func OfClaim(c *corev1.PersistentVolumeClaim, spec cdiv1.DataVolumeSpec, kept cluster.Marks) Order {
	return Order{
		For: c, Owner: render.ClaimOwner(c), Kept: kept,
		Namespace: c.Namespace, Name: c.Name, UID: c.UID, Annotations: c.Annotations, Spec: spec,
	}
}

// itself reports whether the claim is filled for its own sake.
func (o *Order) itself(c *corev1.PersistentVolumeClaim) bool { return c.UID == o.For.GetUID() }

// owns reports whether the claim is the one that the order fills.
func (o *Order) owns(c *corev1.PersistentVolumeClaim) bool {
	return o.itself(c) || metav1.IsControlledBy(c, o.For)
}

// keeps reports whether it is recorded on the claim that its data was there before.
func (o *Order) keeps(c *corev1.PersistentVolumeClaim) bool {
	return c.Annotations[names.PopulatedFor] == o.For.GetName() && !clonesource.PopulatedByUs(c)
}

// claim returns the ordered claim.
func (o *Order) claim(spec corev1.PersistentVolumeClaimSpec) *corev1.PersistentVolumeClaim {
	return render.Claim(metav1.ObjectMeta{
		Namespace: o.Namespace, Name: o.Name, Labels: o.Labels, Annotations: o.Annotations,
		OwnerReferences: []metav1.OwnerReference{o.Owner},
	}, spec)
}

// cloning returns the part of the order that cloning needs.
func (o *Order) cloning() cloning.Order {
	return cloning.Order{
		For: o.For, Owner: o.Owner, Finalizer: o.Finalizer, Kept: &o.Kept, Namespace: o.Namespace, Name: o.Name, UID: o.UID,
		Annotations: o.Annotations, Spec: &o.Spec, Placed: o.Placed, Wish: o.CloneType, Allowed: o.Allowed,
	}
}

// Finalizers lists our finalizers on the order's owner, as they are after this step.
func (s *Seen) Finalizers() []string { return s.order.Kept.Finalizers }

// Inherited returns the labels that the claim has from what it is filled from.
func (s *Seen) Inherited() map[string]string {
	if s.claim == nil || !s.order.owns(s.claim) {
		return nil
	}
	return clonesource.Inherited(s.claim.Labels)
}

// CloneType returns how the claim is cloned, in upstream's word; empty: it is no clone, or that is not decided yet.
func (s *Seen) CloneType() string {
	if s.claim == nil || !s.order.owns(s.claim) || !s.clone.IsClone() {
		return ""
	}
	return s.claim.Annotations[names.CloneType]
}
