package cluster

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/state"
)

// Annotations in which a claim without a DataVolume says what a DataVolume says in its status.
const (
	AnnState          = names.State // the reason, which the event had too
	AnnProgress       = "cdi.kubevirt.io/storage.populator.progress"
	AnnRestarts       = names.Restarts
	AnnRunning        = "cdi.kubevirt.io/storage.condition.running"
	AnnRunningReason  = names.RunReason
	AnnRunningMessage = names.RunMessage
	AnnBound          = "cdi.kubevirt.io/storage.condition.bound"
	AnnBoundReason    = "cdi.kubevirt.io/storage.condition.bound.reason"
	AnnBoundMessage   = "cdi.kubevirt.io/storage.condition.bound.message"
)

// ClaimAnnotations are all annotations that a claim's status is written to.
var ClaimAnnotations = []string{
	AnnState, AnnProgress, AnnRestarts, AnnRunning, AnnRunningReason, AnnRunningMessage, AnnBound, AnnBoundReason, AnnBoundMessage,
}

// AnnFilledFor on a volume is the UID of the claim it was filled for, written in the same moment as it was given to it.
const AnnFilledFor = "berth.dev/filled-for"

// ReportClaim writes the status of a claim into its annotations, along with our other marks on it, if anything changed; and an
// event if the reason changed.
func (w *Writer) ReportClaim(ctx context.Context, c *corev1.PersistentVolumeClaim, marks Marks, s Status) error {
	condition := bound(s)
	if marks.Annotations == nil {
		marks.Annotations = map[string]string{}
	}
	maps.Copy(marks.Annotations, map[string]string{
		AnnState: string(s.State.Reason), AnnProgress: string(s.Progress), AnnRestarts: strconv.Itoa(int(s.Restarts)),
		AnnRunning: strconv.FormatBool(s.State.Run == state.Moving), AnnRunningReason: s.State.RunReason(), AnnRunningMessage: s.State.RunMessage(),
		AnnBound: strconv.FormatBool(condition.Status == corev1.ConditionTrue), AnnBoundReason: condition.Reason, AnnBoundMessage: condition.Message,
	})
	key := claimKey(client.ObjectKeyFromObject(c))
	old, before := c.Annotations, c.Annotations[AnnState]
	if found, ok := w.said.Load(key); ok && found.(claimSaying).uid == c.UID {
		last := found.(claimSaying)
		before = last.annotations[AnnState] // also when the cache does not have it yet, so that no event is sent twice
		if last.about == c.ResourceVersion {
			old = last.annotations
		}
	}
	if !differs(c, old, marks) {
		return nil
	}
	if err := w.Mark(ctx, c, marks); err != nil {
		return err
	}
	w.said.Store(key, claimSaying{uid: c.UID, about: c.ResourceVersion, annotations: maps.Clone(marks.Annotations)})
	if before != string(s.State.Reason) {
		w.Tell(c, s.State)
	}
	return nil
}

// claimKey tells claims from volumes of the same name.
type claimKey client.ObjectKey

// claimSaying is the last report about a claim, and the version of the claim it was about.
type claimSaying struct {
	uid         types.UID
	about       string
	annotations map[string]string
}

// differs reports whether the marks on the claim are not the wanted ones.
func differs(c *corev1.PersistentVolumeClaim, old map[string]string, marks Marks) bool {
	for key, value := range marks.Annotations {
		if was, ok := old[key]; !ok || was != value {
			return true
		}
	}
	for _, key := range marks.Gone {
		_, there := old[key]
		if _, kept := marks.Annotations[key]; there && !kept {
			return true
		}
	}
	for key, value := range marks.Labels {
		if c.Labels[key] != value {
			return true
		}
	}
	return false
}

// ForgetClaim drops what is remembered of a claim that is gone.
func (w *Writer) ForgetClaim(claim client.ObjectKey) { w.said.Delete(claimKey(claim)) }

// ErrForeign is returned for a volume that belongs to another claim than the caller says.
var ErrForeign = errors.New("the volume belongs to another claim")

// Rebind gives a volume to a claim, and marks it as filled for that claim, in one write. from is the UID of the claim that must hold the
// volume now. Rebind fails if another claim holds it, if the two claims are in different namespaces, or if the volume is no longer as it
// was seen: a claim's own spec.volumeName is its author's word and proves nothing.
func (w *Writer) Rebind(ctx context.Context, pv *corev1.PersistentVolume, from types.UID, to *corev1.PersistentVolumeClaim) error {
	if at := pv.Spec.ClaimRef; from == "" || at == nil || at.UID != from && at.UID != to.UID || at.Namespace != to.Namespace {
		return fmt.Errorf("give volume %s to claim %s/%s: %w", pv.Name, to.Namespace, to.Name, ErrForeign)
	}
	next := pv.DeepCopy()
	next.Spec.ClaimRef = &corev1.ObjectReference{
		APIVersion: "v1", Kind: "PersistentVolumeClaim", Namespace: to.Namespace, Name: to.Name, UID: to.UID,
	}
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[AnnFilledFor] = string(to.UID)
	err := w.client.Patch(ctx, next, client.MergeFromWithOptions(pv, client.MergeFromWithOptimisticLock{}), Owner)
	if err != nil {
		return fmt.Errorf("give volume %s to claim %s/%s: %w", pv.Name, to.Namespace, to.Name, err)
	}
	return nil
}

// AwaitClaim has the DataVolume of that name, if there is one, wait for its claim, which comes with its data, instead of making and
// filling another.
func (w *Writer) AwaitClaim(ctx context.Context, live client.Reader, namespace, name string) error {
	if name == "" {
		return nil
	}
	v, err := Get[cdiv1.DataVolume](ctx, live, namespace, name)
	switch {
	case meta.IsNoMatchError(err): // the cluster has no such kind
		return nil
	case err != nil:
		return err
	case v == nil || v.Annotations[names.PrePopulated] == name:
		return nil
	}
	next := v.DeepCopy()
	if next.Annotations == nil {
		next.Annotations = map[string]string{}
	}
	next.Annotations[names.PrePopulated] = name
	return w.Change(ctx, v, next)
}

// Annotate writes one annotation, also if other fields of the object changed meanwhile. A later object of the same name is refused
// with a conflict.
func (w *Writer) Annotate(ctx context.Context, obj client.Object, key, value string) error {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": obj.GetUID(), "annotations": map[string]string{key: value}}})
	if err != nil {
		return fmt.Errorf("write an annotation of %s: %w", w.name(obj), err)
	}
	next := obj.DeepCopyObject().(client.Object)
	if err := w.client.Patch(ctx, next, client.RawPatch(types.MergePatchType, patch), Owner); err != nil {
		return fmt.Errorf("annotate %s: %w", w.name(obj), err)
	}
	return nil
}

// Unannotate removes annotations that others wrote. It fails if the object is no longer as it was seen.
func (w *Writer) Unannotate(ctx context.Context, obj client.Object, keys ...string) error {
	next := obj.DeepCopyObject().(client.Object)
	left := maps.Clone(obj.GetAnnotations())
	for _, key := range keys {
		delete(left, key)
	}
	next.SetAnnotations(left)
	err := w.client.Patch(ctx, next, client.MergeFromWithOptions(obj, client.MergeFromWithOptimisticLock{}), Owner)
	if err != nil {
		return fmt.Errorf("remove annotations of %s: %w", w.name(obj), err)
	}
	return nil
}
