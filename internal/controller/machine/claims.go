package machine

import (
	"context"
	"errors"
	"fmt"
	"maps"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/clonesource"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/render"
	"github.com/berth-vm/berth/pkg/claim"
)

// LabelName is on every claim that was made for a machine. Unlike the owner, it survives a backup: a claim that comes
// back with it is the machine's again.
const LabelName = "vm.kubevirt.io/name"

// templated is one of the machine's claim templates and what has become of it.
type templated struct {
	template *kubevirt.VolumeClaimTemplate
	name     string
	claim    *corev1.PersistentVolumeClaim // nil: there is none
	complete claim.Result                  // of a claim that is to be made
}

// adopted: the claim was made for a machine of this name, which is gone; it came back without it.
func (t templated) adopted(vm *kubevirt.VirtualMachine) bool {
	return t.claim != nil && metav1.GetControllerOf(t.claim) == nil && t.claim.Labels[LabelName] == vm.Name &&
		t.claim.DeletionTimestamp == nil
}

// observeClaims finds the claims of the templates, and what those that are missing have to be.
func (r *Reconciler) observeClaims(ctx context.Context, w *whole) error {
	vm := w.vm
	seen := map[string]bool{}
	for i := range vm.Spec.VolumeClaimTemplates {
		t := templated{template: &vm.Spec.VolumeClaimTemplates[i]}
		t.name = kubevirt.ClaimName(vm.Name, t.template.ObjectMeta.Name)
		if seen[t.name] {
			w.lacks(machine.ClaimVague, "two volumeClaimTemplates are called %s; give each a name of its own", t.template.ObjectMeta.Name)
		}
		seen[t.name] = true
		var err error
		if t.claim, err = cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, vm.Namespace, t.name); err != nil {
			return err
		}
		switch {
		case t.claim == nil:
			if err := r.complete(ctx, w, &t); err != nil {
				return err
			}
		case t.claim.DeletionTimestamp != nil && !metav1.IsControlledBy(t.claim, vm), !metav1.IsControlledBy(t.claim, vm) && !t.adopted(vm):
			w.lacks(machine.ClaimTaken, "%s", taken(t.claim))
		}
		w.claims = append(w.claims, t)
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
func (r *Reconciler) complete(ctx context.Context, w *whole, t *templated) error {
	if w.means != machine.Provided {
		return nil // the preference, which has a say, may be what is missing
	}
	request := claim.Request{Spec: *t.template.Spec.DeepCopy(), PreferredClass: w.kind.class()}
	var err error
	asked := &corev1.PersistentVolumeClaim{ObjectMeta: *t.template.ObjectMeta.DeepCopy(), Spec: request.Spec}
	asked.Namespace = w.vm.Namespace
	if request.Source, err = clonesource.Measure(ctx, cluster.Reads(r.live), asked); err != nil {
		return err
	}
	storage, err := r.storage(ctx)
	if err != nil {
		return err
	}
	t.complete, err = claim.Complete(request, storage)
	var lack *claim.Error
	switch {
	case errors.As(err, &lack):
		w.lacks(machine.ClaimVague, "volumeClaimTemplate %s: %s; %s", t.template.ObjectMeta.Name, lack.Text, advice(lack, &request.Spec))
		return nil
	case err != nil:
		return err
	}
	switch err := r.cluster.KeepsSource(ctx, newClaim(w.vm, *t)); {
	case errors.Is(err, cluster.ErrSourceDropped):
		w.lacks(machine.ClaimVague, "volumeClaimTemplate %s: %v", t.template.ObjectMeta.Name, err)
	case errors.Is(err, cluster.ErrNamespaceLeaving):
		return err
	}
	return nil // anything else that is wrong with it is said when it is made
}

// advice is what to do about a lack. A size may be missing only because the source to take it from is.
func advice(lack *claim.Error, spec *corev1.PersistentVolumeClaimSpec) string {
	if ref := spec.DataSourceRef; lack.Lack == claim.LacksSize && ref != nil {
		return fmt.Sprintf("%s, or see to %s %s: it does not exist, is not granted to this namespace, or what it stands for has no size yet",
			lack.Advice, ref.Kind, ref.Name)
	}
	return lack.Advice
}

// storage is what completion has to know of the cluster.
func (r *Reconciler) storage(ctx context.Context) (claim.Cluster, error) {
	var classes storagev1.StorageClassList
	if err := r.reader.List(ctx, &classes); err != nil {
		return claim.Cluster{}, fmt.Errorf("list storage classes: %w", err)
	}
	out := claim.Cluster{Classes: classes.Items}
	if !r.data {
		return out, nil
	}
	var profiles cdiv1.StorageProfileList
	if err := r.reader.List(ctx, &profiles); err != nil {
		return claim.Cluster{}, fmt.Errorf("list storage profiles: %w", err)
	}
	out.Profiles = profiles.Items
	config, err := cluster.Get[cdiv1.CDIConfig](ctx, r.reader, "", "config")
	if err != nil {
		return claim.Cluster{}, err
	}
	if config != nil {
		out.Overhead = config.Status.FilesystemOverhead
	}
	return out, nil
}

// createClaims makes the claims that are not there and takes back those that came back without their machine.
func (r *Reconciler) createClaims(ctx context.Context, w *whole) error {
	if w.means != machine.Provided {
		return nil
	}
	if err := r.createCopies(ctx, w); err != nil {
		return err
	}
	for _, t := range w.claims {
		if t.claim == nil {
			if restoring, err := r.restoring(ctx, w); err != nil || restoring {
				return err
			}
			if last, _, err := replacedclaim.Of(ctx, r.live, w.vm.Namespace, t.name); err != nil || last != nil {
				return err // it is made again with the volume that has its data
			}
		}
		switch {
		case t.adopted(w.vm):
			if err := r.cluster.Mark(ctx, t.claim, cluster.Marks{Owners: []metav1.OwnerReference{owner(w.vm)}}); err != nil {
				return err
			}
			r.cluster.Event(w.vm, corev1.EventTypeNormal, "SuccessfulClaimAdoption",
				fmt.Sprintf("PersistentVolumeClaim %s was made for a machine of this name and is its disk again", t.name))
		case t.claim == nil:
			if err := r.createClaim(ctx, w, t); errors.Is(err, cluster.ErrNamespaceLeaving) {
				return err
			} else if err != nil {
				r.cluster.Event(w.vm, corev1.EventTypeWarning, "FailedClaimCreate",
					fmt.Sprintf("Error creating PersistentVolumeClaim %s: %v", t.name, err))
				return err
			}
			r.cluster.Event(w.vm, corev1.EventTypeNormal, "SuccessfulClaimCreate", created(t))
		}
	}
	return nil
}

// createClaim creates the claim of a template. If the claim will be filled and its class has no provisioner, the claim records which
// PersistentVolumes are reserved for it: those may hold data.
func (r *Reconciler) createClaim(ctx context.Context, w *whole, t templated) error {
	c := newClaim(w.vm, t)
	if clonesource.PopulatedByUs(c) && claim.Static(t.complete.Class) {
		list, err := cluster.ReservedFor(ctx, r.live, c)
		if err != nil {
			return err
		}
		c.Annotations = with(c.Annotations, names.VolumeList, list)
	}
	return r.cluster.Create(ctx, c)
}

func created(t templated) string {
	text := "Created PersistentVolumeClaim " + t.name
	if why := t.complete.Reasons(); why != "" {
		text += ": " + why
	}
	return text
}

func newClaim(vm *kubevirt.VirtualMachine, t templated) *corev1.PersistentVolumeClaim {
	c := &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: t.name, Namespace: vm.Namespace,
			Labels:          maps.Clone(t.template.ObjectMeta.Labels),
			Annotations:     maps.Clone(t.template.ObjectMeta.Annotations),
			OwnerReferences: []metav1.OwnerReference{owner(vm)},
		},
		Spec: t.complete.Spec,
	}
	c.Labels = with(c.Labels, LabelName, vm.Name)
	c.Labels = with(c.Labels, render.LabelCreatedBy, string(vm.UID))
	clonesource.MoveNamespace(c)
	return c
}
