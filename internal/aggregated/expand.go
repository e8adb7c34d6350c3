package aggregated

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/instancetype"
)

// expandMachine answers with a machine as its instance type and preference make it.
func (s *Server) expandMachine(a asked) (int, any, error) {
	m, err := s.Cluster.Machine(a.Context(), a.namespace, a.name)
	if err != nil {
		return 0, nil, err
	}
	return s.expand(a.Context(), m)
}

// expandSpec does the same for a machine that is in the request, whether or not there is one.
func (s *Server) expandSpec(a asked) (int, any, error) {
	m := &kubevirt.VirtualMachine{}
	if err := a.into(m); err != nil {
		return 0, nil, err
	}
	switch {
	case m.Spec.Template == nil:
		return 0, nil, apierrors.NewBadRequest("Object is not a valid VirtualMachine")
	case m.Namespace != "" && m.Namespace != a.namespace:
		return 0, nil, apierrors.NewBadRequest("VM namespace must be empty or " + a.namespace)
	}
	m.Namespace = a.namespace
	m.Status.InstancetypeRef, m.Status.PreferenceRef = nil, nil // the request asks about the names in it, and not about what a machine was started with
	return s.expand(a.Context(), m)
}

func (s *Server) expand(ctx context.Context, m *kubevirt.VirtualMachine) (int, any, error) {
	out := m.DeepCopy()
	out.TypeMeta = metav1.TypeMeta{APIVersion: kubevirt.GroupVersion.String(), Kind: "VirtualMachine"}
	if m.Spec.Template == nil || m.Spec.Instancetype == nil && m.Spec.Preference == nil {
		return http.StatusOK, out, nil
	}
	var typ *instancetype.Type
	var preference *instancetype.Preference
	var err error
	if t := m.Spec.Instancetype; t != nil {
		typ, err = named[instancetype.Type](ctx, s, m, *t, m.Status.InstancetypeRef, instancetype.KindType, instancetype.KindClusterType)
	}
	if p := m.Spec.Preference; p != nil && err == nil {
		preference, err = named[instancetype.Preference](ctx, s, m, kubevirt.InstancetypeMatcher(*p), m.Status.PreferenceRef,
			instancetype.KindPreference, instancetype.KindClusterPreference)
	}
	if err != nil {
		return 0, nil, err
	}
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: out.Spec.Template.ObjectMeta, Spec: out.Spec.Template.Spec}
	err = instancetype.Apply(i, typ, preference)
	var problem *instancetype.Problem
	switch {
	case errors.As(err, &problem):
		return 0, nil, apierrors.NewBadRequest(problem.Text)
	case err != nil:
		return 0, nil, err
	}
	out.Spec.Template.ObjectMeta, out.Spec.Template.Spec = i.ObjectMeta, i.Spec
	out.Spec.Instancetype, out.Spec.Preference = nil, nil
	out.Status.InstancetypeRef, out.Status.PreferenceRef = nil, nil
	return http.StatusOK, out, nil
}

// named reads what a matcher names: the copy that the machine was started with, or the object itself.
func named[T any](ctx context.Context, s *Server, vm *kubevirt.VirtualMachine, m kubevirt.InstancetypeMatcher,
	started *kubevirt.InstancetypeStatusRef, kind, clusterKind string,
) (*T, error) {
	revision := m.RevisionName
	if started != nil && (m.Name == "" || m.Name == started.Name) {
		m.Name, m.Kind = started.Name, started.Kind
		if revision == "" && started.ControllerRevisionRef != nil {
			revision = started.ControllerRevisionRef.Name
		}
	}
	if m.Name == "" {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("it is inferred from volume %s when the machine is started; name it to see the whole machine before", m.InferFromVolume))
	}
	raw, err := s.content(ctx, vm.Namespace, m, revision, kind, clusterKind)
	if err != nil {
		return nil, err
	}
	var object struct {
		Kind string `json:"kind"`
		Spec T      `json:"spec"`
	}
	if err := json.Unmarshal(raw, &object); err != nil {
		return nil, fmt.Errorf("read %s %s: %w", m.Kind, m.Name, err)
	}
	if object.Kind != kind && object.Kind != clusterKind {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("ControllerRevision %s is no copy of a %s or %s", revision, kind, clusterKind))
	}
	return &object.Spec, nil
}

func (s *Server) content(ctx context.Context, namespace string, m kubevirt.InstancetypeMatcher, revision, kind, clusterKind string) ([]byte, error) {
	if revision != "" {
		r, err := s.Cluster.Revision(ctx, namespace, revision)
		if err != nil {
			return nil, err
		}
		return r.Data.Raw, nil
	}
	switch instancetype.KindOf(cmp.Or(m.Kind, clusterKind), []string{kind, clusterKind}) {
	case clusterKind:
		return s.Cluster.Instancetype(ctx, clusterKind, "", m.Name)
	case kind:
		return s.Cluster.Instancetype(ctx, kind, namespace, m.Name)
	}
	return nil, apierrors.NewBadRequest(fmt.Sprintf("got unexpected kind in matcher: %s", m.Kind))
}
