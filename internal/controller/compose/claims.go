package compose

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/pkg/claim"
)

// LabelName is on every claim that was made for a machine. Unlike the owner, it survives a backup: a claim that comes
// back with it is the machine's again.
const LabelName = "vm.kubevirt.io/name"

// ClaimTemplate is one of the machine's claim templates and the state of its claim.
type ClaimTemplate struct {
	template *kubevirt.VolumeClaimTemplate
	Name     string
	Claim    *corev1.PersistentVolumeClaim // nil: there is none
	Complete claim.Result                  // of a claim that is to be made
}

// Adopted reports whether the claim was made for a machine of this name, which is gone; it came back without it.
func (t ClaimTemplate) Adopted(vm *kubevirt.VirtualMachine) bool {
	return t.Claim != nil && metav1.GetControllerOf(t.Claim) == nil && t.Claim.Labels[LabelName] == vm.Name &&
		t.Claim.DeletionTimestamp == nil
}

// observeClaims finds the claims of the templates, and what those that are missing have to be.
func (r *Reader) observeClaims(ctx context.Context, w *Machine) error {
	vm := w.Object
	seen := map[string]bool{}
	for i := range vm.Spec.VolumeClaimTemplates {
		t := ClaimTemplate{template: &vm.Spec.VolumeClaimTemplates[i]}
		t.Name = kubevirt.ClaimName(vm.Name, t.template.ObjectMeta.Name)
		if seen[t.Name] {
			w.lacks(machine.ClaimVague, "two volumeClaimTemplates are called %s; give each a name of its own", t.template.ObjectMeta.Name)
		}
		seen[t.Name] = true
		var err error
		if t.Claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.Read.Cached, vm.Namespace, t.Name); err != nil {
			return err
		}
		switch {
		case t.Claim == nil:
			if err := r.complete(ctx, w, &t); err != nil {
				return err
			}
		case t.Claim.DeletionTimestamp != nil && !metav1.IsControlledBy(t.Claim, vm), !metav1.IsControlledBy(t.Claim, vm) && !t.Adopted(vm):
			w.lacks(machine.ClaimTaken, "%s", taken(t.Claim))
		}
		w.Claims = append(w.Claims, t)
	}
	return nil
}

func taken(c *corev1.PersistentVolumeClaim) string {
	whose := "nobody's"
	if o := metav1.GetControllerOf(c); o != nil {
		whose = fmt.Sprintf("owned by %s %s (%s)", o.Kind, o.Name, o.UID)
	}
	if c.DeletionTimestamp != nil {
		return fmt.Sprintf("PersistentVolumeClaim %s exists, is %s and is being deleted", c.Name, whose)
	}
	return fmt.Sprintf("PersistentVolumeClaim %s exists and is %s", c.Name, whose)
}

// complete finds what a claim that is to be made has to say. The data side's profiles are asked if there is one.
func (r *Reader) complete(ctx context.Context, w *Machine, t *ClaimTemplate) error {
	if w.Means != machine.Provided {
		return nil // the preference, which has a say, may be what is missing
	}
	request := claim.Request{Spec: *t.template.Spec.DeepCopy(), PreferredClass: w.Kind.class()}
	var err error
	asked := &corev1.PersistentVolumeClaim{ObjectMeta: *t.template.ObjectMeta.DeepCopy(), Spec: request.Spec}
	asked.Namespace = w.Object.Namespace
	if request.Source, err = clonesource.Measure(ctx, cluster.Reads(r.Read.Live), asked); err != nil {
		return err
	}
	storage, err := r.Read.Storage(ctx)
	if err != nil {
		return err
	}
	t.Complete, err = claim.Complete(request, storage)
	var lack *claim.Error
	switch {
	case errors.As(err, &lack):
		w.lacks(machine.ClaimVague, "volumeClaimTemplate %s: %s; %s", t.template.ObjectMeta.Name, lack.Text, advice(lack, &request.Spec))
		return nil
	case err != nil:
		return err
	}
	switch err := r.Dry.KeepsSource(ctx, NewClaim(w.Object, *t)); {
	case errors.Is(err, cluster.ErrSourceDropped):
		w.lacks(machine.ClaimVague, "volumeClaimTemplate %s: %v", t.template.ObjectMeta.Name, err)
	case errors.Is(err, cluster.ErrNamespaceLeaving):
		return err
	}
	return nil // anything else that is wrong with it is said when it is made
}

// advice says what the user can do about a missing part of a claim. A size may be missing only because the clone's source does not exist.
func advice(lack *claim.Error, spec *corev1.PersistentVolumeClaimSpec) string {
	if ref := spec.DataSourceRef; lack.Lack == claim.LacksSize && ref != nil {
		return fmt.Sprintf("%s, or see to %s %s: it does not exist, is not granted to this namespace, or what it stands for has no size yet",
			lack.Advice, ref.Kind, ref.Name)
	}
	return lack.Advice
}

// NewClaim returns the claim of a template.
func NewClaim(vm *kubevirt.VirtualMachine, t ClaimTemplate) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: t.Name, Namespace: vm.Namespace,
			Labels:          maps.Clone(t.template.ObjectMeta.Labels),
			Annotations:     maps.Clone(t.template.ObjectMeta.Annotations),
			OwnerReferences: []metav1.OwnerReference{observed.Owner(vm)},
		},
		Spec: t.Complete.Spec,
	}
	c.Labels = observed.With(c.Labels, LabelName, vm.Name)
	c.Labels = observed.With(c.Labels, render.LabelCreatedBy, string(vm.UID))
	clonesource.MoveNamespace(c)
	return c
}
