package compose

import (
	"context"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	upstream "kubevirt.io/api/instancetype"
	"kubevirt.io/api/instancetype/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/instancetype"
)

// Kind holds a machine's instance type and preference, each as it was when the machine first used it: later changes apply to
// machines that are created later.
type Kind struct {
	typ           *instancetype.Type
	preference    *instancetype.Preference
	TypeRef       *kubevirt.InstancetypeStatusRef // nil: the machine names none
	PreferenceRef *kubevirt.InstancetypeStatusRef
	Copies        []*appsv1.ControllerRevision // still to be made
}

func (k *Kind) class() string { return instancetype.Class(k.preference) }

// matcher is an InstancetypeMatcher or a PreferenceMatcher, which have the same fields, and the state of what it refers to.
type matcher struct {
	kubevirt.InstancetypeMatcher
	what      string        // as messages call it
	means     machine.Means // of a machine that lacks it
	kinds     []string      // that it may name, the one it names if it does not say last
	infer     func(labels map[string]string) (instancetype.Ref, bool)
	remembers *kubevirt.InstancetypeStatusRef // what the machine was started with before; nil: never
}

// observeKind finds the instance type and the preference that the machine names; before is the kind it was started with.
func (r *Reader) observeKind(ctx context.Context, w *Machine, before Kind) error {
	var err error
	if t := w.Object.Spec.Instancetype; t != nil && !ignorable(w.Object) {
		w.Kind.typ, w.Kind.TypeRef, err = resolve[instancetype.Type](ctx, r, w, matcher{
			InstancetypeMatcher: *t, what: "instance type", means: machine.TypeMissing, infer: instancetype.InferType,
			kinds: []string{instancetype.KindType, instancetype.KindClusterType}, remembers: before.TypeRef,
		})
	}
	if p := w.Object.Spec.Preference; p != nil && err == nil {
		w.Kind.preference, w.Kind.PreferenceRef, err = resolve[instancetype.Preference](ctx, r, w, matcher{
			InstancetypeMatcher: kubevirt.InstancetypeMatcher(*p), what: "preference", means: machine.PreferenceMissing, infer: instancetype.InferPreference,
			kinds: []string{instancetype.KindPreference, instancetype.KindClusterPreference}, remembers: before.PreferenceRef,
		})
	}
	return err
}

// ignorable: the machine says itself what it would only have inferred if it could.
func ignorable(vm *kubevirt.VirtualMachine) bool {
	p := vm.Spec.Instancetype.InferFromVolumeFailurePolicy
	return p != nil && *p == kubevirt.IgnoreInferFromVolumeFailure && len(instancetype.Conflicts(&vm.Spec.Template.Spec)) > 0
}

// resolve reads the object that a matcher refers to. It returns nil without an error if the machine lacks it, or need not have it.
func resolve[T any](ctx context.Context, r *Reader, w *Machine, m matcher) (*T, *kubevirt.InstancetypeStatusRef, error) {
	ref, err := r.named(ctx, w, m)
	if err != nil || ref == nil {
		return nil, nil, err
	}
	raw, err := r.copyOf(ctx, w, m, ref)
	if err != nil || raw == nil {
		return nil, nil, err
	}
	var object struct {
		Spec T `json:"spec"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		w.lacks(m.means, "the copy of %s %s in ControllerRevision %s cannot be read: %v",
			m.what, ref.Name, ref.ControllerRevisionRef.Name, err)
		return nil, nil, nil
	}
	return &object.Spec, ref, nil
}

// named returns the reference of a matcher: by its name, or by the labels of a volume.
func (r *Reader) named(ctx context.Context, w *Machine, m matcher) (*kubevirt.InstancetypeStatusRef, error) {
	ref := &kubevirt.InstancetypeStatusRef{
		Name: m.Name, Kind: m.Kind, InferFromVolume: m.InferFromVolume, InferFromVolumeFailurePolicy: m.InferFromVolumeFailurePolicy}
	if ref.Name == "" && m.InferFromVolume != "" {
		if old := m.remembers; old != nil && old.InferFromVolume == m.InferFromVolume {
			ref.Name, ref.Kind = old.Name, old.Kind
			return ref, nil
		}
		labels, err := r.volumeLabels(ctx, w.Object, m.InferFromVolume)
		if err != nil {
			return nil, err
		}
		found, ok := m.infer(labels)
		switch {
		case !ok && m.InferFromVolumeFailurePolicy != nil && *m.InferFromVolumeFailurePolicy == kubevirt.IgnoreInferFromVolumeFailure:
			return nil, nil
		case !ok:
			w.lacks(m.means, "unable to find required default-%s label on volume %s, its claim or its source; label one of them, or name the %s",
				labelWord[m.what], m.InferFromVolume, m.what)
			return nil, nil
		}
		ref.Name, ref.Kind = found.Name, found.Kind
	}
	if ref.Kind == "" {
		ref.Kind = m.kinds[len(m.kinds)-1]
	}
	ref.Kind = instancetype.KindOf(ref.Kind, m.kinds)
	return ref, nil
}

var labelWord = map[string]string{"instance type": "instancetype", "preference": "preference"}

// copyOf is the object as the machine first met it, or as it is now if it has not met it before.
func (r *Reader) copyOf(ctx context.Context, w *Machine, m matcher, ref *kubevirt.InstancetypeStatusRef) ([]byte, error) {
	revision := m.RevisionName
	if old := m.remembers; revision == "" && old != nil && old.Name == ref.Name && old.Kind == ref.Kind && old.ControllerRevisionRef != nil {
		revision = old.ControllerRevisionRef.Name
	}
	if revision == "" {
		return r.firstCopy(ctx, w, m, ref)
	}
	ref.ControllerRevisionRef = &kubevirt.ControllerRevisionRef{Name: revision}
	c, err := cluster.Get[appsv1.ControllerRevision](ctx, r.Read.Live, w.Object.Namespace, revision)
	if err != nil {
		return nil, err
	}
	if c == nil && m.RevisionName == "" {
		return r.firstCopy(ctx, w, m, ref) // a copy that got lost, as in a restored namespace
	}
	if c == nil {
		w.lacks(m.means, "ControllerRevision %s, the copy of %s %s it is to use, does not exist", revision, m.what, ref.Name)
		return nil, nil
	}
	return c.Data.Raw, nil
}

// firstCopy reads the object itself and prepares the copy.
func (r *Reader) firstCopy(ctx context.Context, w *Machine, m matcher, ref *kubevirt.InstancetypeStatusRef) ([]byte, error) {
	namespace := w.Object.Namespace
	switch ref.Kind {
	case m.kinds[1]:
		namespace = ""
	case m.kinds[0]:
	default:
		w.lacks(m.means, "%s is no kind of %s; it must be %s or %s", ref.Kind, m.what, m.kinds[0], m.kinds[1])
		return nil, nil
	}
	u := &unstructured.Unstructured{}
	u.SetGroupVersionKind(v1beta1.SchemeGroupVersion.WithKind(ref.Kind))
	err := r.Read.Live.Get(ctx, types.NamespacedName{Namespace: namespace, Name: ref.Name}, u)
	switch {
	case apierrors.IsNotFound(err):
		w.lacks(m.means, "%s %s does not exist; create it, or name another %s", ref.Kind, ref.Name, m.what)
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("read %s %s: %w", ref.Kind, ref.Name, err)
	}
	u.SetManagedFields(nil)
	raw, err := u.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("copy %s %s: %w", ref.Kind, ref.Name, err)
	}
	c := newCopy(w.Object, u, raw)
	w.Kind.Copies = append(w.Kind.Copies, c)
	ref.ControllerRevisionRef = &kubevirt.ControllerRevisionRef{Name: c.Name}
	return raw, nil
}

// newCopy is the revision that clients of instancetype.kubevirt.io expect to find.
func newCopy(vm *kubevirt.VirtualMachine, u *unstructured.Unstructured, raw []byte) *appsv1.ControllerRevision {
	name := fmt.Sprintf("%s-%s-%s-%d", vm.Name, u.GetName(), u.GetUID(), u.GetGeneration())
	if most := 253; len(name) > most {
		name = fmt.Sprintf("%s-%s-%d", vm.Name, u.GetUID(), u.GetGeneration())
	}
	return &appsv1.ControllerRevision{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: vm.Namespace, OwnerReferences: []metav1.OwnerReference{observed.Owner(vm)},
			Labels: map[string]string{
				upstream.ControllerRevisionObjectGenerationLabel: fmt.Sprint(u.GetGeneration()),
				upstream.ControllerRevisionObjectKindLabel:       u.GetKind(),
				upstream.ControllerRevisionObjectUIDLabel:        string(u.GetUID()),
				upstream.ControllerRevisionObjectVersionLabel:    v1beta1.SchemeGroupVersion.Version,
			},
		},
		Data: runtime.RawExtension{Raw: raw},
	}
}
