// Package cluster is the only package that writes to the API server.
//
// Few verbs suffice. Create makes an object that never changes afterwards (a claim, a pod); that it exists already
// is success, because its name says whose it is. Replace is Create for one that may be there from before. Apply states the fields we own in an object that changes, by
// server-side apply under one field owner. Delete removes exactly the object that was looked at. All of them
// may be repeated after a crash. The package does not know why anything is written.
package cluster

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// Owner is the field owner of everything we write.
const Owner client.FieldOwner = "berth"

// Writer writes to one cluster.
type Writer struct {
	client client.Client
	events events.EventRecorder
	clock  clock.PassiveClock
	said   sync.Map // what was last reported about a volume, by its name: the cache hears of it only later
	told   lastEvents
}

// New returns a writer that tells the time of changes by clock and shows them as events of recorder.
func New(c client.Client, recorder events.EventRecorder, clock clock.PassiveClock) *Writer {
	return &Writer{client: c, events: recorder, clock: clock}
}

// ErrTaken means that a pod of the name that ours was to have is there, and is not ours.
var ErrTaken = errors.New("a pod of that name exists and is not ours")

// Create makes obj. If an object of that name exists, it is left as it is: the next reconcile finds out whether it is the right
// one. A pod that has another owner is ErrTaken: Owned would never find it, and the user would not learn why theirs does not
// come.
//
// A claim whose data source the API server would drop is not made: ErrSourceDropped.
func (w *Writer) Create(ctx context.Context, obj client.Object) error {
	if err := w.KeepsSource(ctx, obj); err != nil {
		return err
	}
	err := w.client.Create(ctx, obj, Owner)
	switch {
	case apierrors.IsAlreadyExists(err):
		return w.taken(ctx, obj)
	case err != nil:
		return fmt.Errorf("create %s: %w", w.name(obj), leaving(err))
	}
	return nil
}

func (w *Writer) taken(ctx context.Context, obj client.Object) error {
	owner := metav1.GetControllerOf(obj)
	if _, pod := obj.(*corev1.Pod); !pod || owner == nil {
		return nil
	}
	there, err := Get[corev1.Pod](ctx, w.client, obj.GetNamespace(), obj.GetName())
	if err != nil || there == nil || OwnedBy(there, owner.UID) {
		return err
	}
	return fmt.Errorf("create %s: %w: delete it", w.name(obj), ErrTaken)
}

// Replace makes obj in the place of whatever has its name: of a Secret of another namespace, which we may neither read nor
// change. After a crash there may be none, and it is made then.
func (w *Writer) Replace(ctx context.Context, obj client.Object) error {
	err := w.client.Create(ctx, obj.DeepCopyObject().(client.Object), Owner)
	if apierrors.IsAlreadyExists(err) {
		if err := w.Delete(ctx, obj); err != nil {
			return err
		}
		err = w.client.Create(ctx, obj.DeepCopyObject().(client.Object), Owner)
	}
	if err != nil {
		return fmt.Errorf("replace %s: %w", w.name(obj), leaving(err))
	}
	return nil
}

// Apply makes the fields that are set in obj ours and gives them these values. A field we applied before and that is
// no longer set is removed, so obj must always hold everything we own.
func (w *Writer) Apply(ctx context.Context, obj client.Object) error {
	return w.ApplyAs(ctx, Owner, obj)
}

// ApplyAs is Apply for one of two parts of ours that each own fields of the same object.
func (w *Writer) ApplyAs(ctx context.Context, owner client.FieldOwner, obj client.Object) error {
	u, err := w.fields(obj)
	if err != nil {
		return err
	}
	if err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("apply %s: %w", w.name(obj), leaving(err))
	}
	return nil
}

// ApplyStatus is Apply for the status subresource.
func (w *Writer) ApplyStatus(ctx context.Context, obj client.Object) error {
	u, err := w.fields(obj)
	if err != nil {
		return err
	}
	unstructured.RemoveNestedField(u.Object, "spec")
	err = w.client.Status().Apply(ctx, client.ApplyConfigurationFromUnstructured(u), Owner, client.ForceOwnership)
	if err != nil {
		return fmt.Errorf("apply status of %s: %w", w.name(obj), err)
	}
	return nil
}

// Marks are the metadata we own on an object whose other fields are not ours to change any more.
type Marks struct {
	Labels      map[string]string
	Annotations map[string]string
	Owners      []metav1.OwnerReference
	Finalizers  []string
	Gone        []string // annotations to remove, if we set them before
}

// Mark is Apply for metadata alone: marks always holds everything we own. It does nothing to a later object of the
// same name.
func (w *Writer) Mark(ctx context.Context, obj client.Object, marks Marks) error {
	return w.MarkAs(ctx, Owner, obj, marks)
}

// MarkAs is Mark for one of two parts of ours that each own marks on the same object.
func (w *Writer) MarkAs(ctx context.Context, owner client.FieldOwner, obj client.Object, marks Marks) error {
	gvk, err := apiutil.GVKForObject(obj, w.client.Scheme())
	if err != nil {
		return fmt.Errorf("find the kind of %T: %w", obj, err)
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(gvk)
	u.SetNamespace(obj.GetNamespace())
	u.SetName(obj.GetName())
	u.SetUID(obj.GetUID())
	u.SetLabels(marks.Labels)
	u.SetAnnotations(marks.Annotations)
	u.SetOwnerReferences(marks.Owners)
	u.SetFinalizers(marks.Finalizers)
	if err := w.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(u), owner, client.ForceOwnership); err != nil {
		return fmt.Errorf("mark %s: %w", w.name(obj), err)
	}
	return nil
}

// Delete deletes the object that obj was read from and no later one of the same name. One that is gone is success. An
// obj that was not read has no UID; its name must say whose it is.
func (w *Writer) Delete(ctx context.Context, obj client.Object) error {
	var options []client.DeleteOption
	if uid := obj.GetUID(); uid != "" {
		options = append(options, client.Preconditions{UID: &uid})
	}
	if p, ok := obj.(*corev1.Pod); ok && p.Spec.TerminationGracePeriodSeconds != nil {
		options = append(options, client.GracePeriodSeconds(grace(*p.Spec.TerminationGracePeriodSeconds)))
	}
	err := w.client.Delete(ctx, obj, options...)
	// A conflict means that another object has the name now: ours is gone, as wanted.
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return fmt.Errorf("delete %s: %w", w.name(obj), err)
	}
	return nil
}

// Event makes an event about obj.
func (w *Writer) Event(obj client.Object, kind, reason, message string) {
	w.events.Eventf(obj, nil, kind, reason, "Reconcile", "%s", message)
}

// fields returns obj as the set of fields it holds, for server-side apply.
func (w *Writer) fields(obj client.Object) (*unstructured.Unstructured, error) {
	gvk, err := apiutil.GVKForObject(obj, w.client.Scheme())
	if err != nil {
		return nil, fmt.Errorf("find the kind of %T: %w", obj, err)
	}
	content, err := runtime.DefaultUnstructuredConverter.ToUnstructured(obj)
	if err != nil {
		return nil, fmt.Errorf("turn %T into fields: %w", obj, err)
	}
	u := &unstructured.Unstructured{Object: content}
	u.SetGroupVersionKind(gvk)
	u.SetManagedFields(nil)
	u.SetResourceVersion("")
	unstructured.RemoveNestedField(u.Object, "metadata", "creationTimestamp")
	if prune(u.Object["status"]) {
		delete(u.Object, "status")
	}
	if hollow(u.Object["spec"]) {
		u.Object["spec"] = map[string]any{} // kinds that require a spec accept an empty one
	}
	return u, nil
}

// prune removes the empty objects of a status, and reports whether nothing is left. The API server makes null of an empty object that had
// fields of ours before, and then refuses the whole status. In lists they stay: there an empty object may have a meaning.
func prune(value any) bool {
	fields, ok := value.(map[string]any)
	if !ok {
		return false
	}
	for name, v := range fields {
		if prune(v) {
			delete(fields, name)
		}
	}
	return len(fields) == 0
}

// hollow reports whether a value has only empty structs, which Go writes for unset fields.
func hollow(value any) bool {
	fields, ok := value.(map[string]any)
	if !ok {
		return false
	}
	for _, v := range fields {
		if !hollow(v) {
			return false
		}
	}
	return true
}

func (w *Writer) name(obj client.Object) string {
	kind := fmt.Sprintf("%T", obj)
	if gvk, err := apiutil.GVKForObject(obj, w.client.Scheme()); err == nil {
		kind = gvk.Kind
	}
	return strings.TrimSuffix(fmt.Sprintf("%s %s/%s", kind, obj.GetNamespace(), obj.GetName()), "/")
}

// ExceededQuota returns the API server's own sentence about the quota that err ran into ("exceeded quota: team, requested: ...,
// used: ..., limited: ..."). The server has no reason of its own for it, so the sentence is all there is.
func ExceededQuota(err error) (string, bool) {
	if !apierrors.IsForbidden(err) {
		return "", false
	}
	_, after, found := strings.Cut(err.Error(), "exceeded quota: ")
	return "exceeded quota: " + after, found
}
