package aggregated

import (
	"cmp"
	"context"
	"fmt"
	"net/http"
	"slices"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/instancetype"
)

// graphNode is upstream's ObjectGraphNode: an object that a machine needs, and what that needs.
type graphNode struct {
	ObjectReference corev1.TypedObjectReference `json:"objectReference"`
	Labels          map[string]string           `json:"labels,omitempty"`
	Optional        *bool                       `json:"optional,omitempty"`
	Children        []graphNode                 `json:"children,omitempty"`
}

// graphOptions is upstream's ObjectGraphOptions.
type graphOptions struct {
	IncludeOptionalNodes *bool                 `json:"includeOptionalNodes"`
	LabelSelector        *metav1.LabelSelector `json:"labelSelector"`
}

// dependency is upstream's label of what an object is to the machine.
const dependency = "kubevirt.io/dependency-type"

// graphKinds has the group of every kind that can be in a graph, and what it is to the machine.
var graphKinds = map[string]struct{ group, role string }{
	"VirtualMachine": {"kubevirt.io", "compute"}, "VirtualMachineInstance": {"kubevirt.io", "compute"}, "Pod": {"", "compute"},
	"DataVolume": {"cdi.kubevirt.io", "storage"}, "PersistentVolumeClaim": {"", "storage"},
	"ConfigMap": {"", "config"}, "Secret": {"", "config"}, "ServiceAccount": {"", "config"}, "ControllerRevision": {"apps", "config"},
	instancetype.KindType: {"instancetype.kubevirt.io", "config"}, instancetype.KindClusterType: {"instancetype.kubevirt.io", "config"},
	instancetype.KindPreference: {"instancetype.kubevirt.io", "config"}, instancetype.KindClusterPreference: {"instancetype.kubevirt.io", "config"},
}

func node(kind, namespace, name string, children ...graphNode) graphNode {
	of := graphKinds[kind]
	return graphNode{
		ObjectReference: corev1.TypedObjectReference{APIGroup: ptr.To(of.group), Kind: kind, Name: name, Namespace: &namespace},
		Labels:          map[string]string{dependency: of.role}, Children: children,
	}
}

// graphMachine answers with all objects that a machine needs; tools for backups read it.
func (s *Server) graphMachine(a asked) (int, any, error) {
	m, err := s.Cluster.Machine(a.Context(), a.namespace, a.name)
	if err != nil {
		return 0, nil, err
	}
	root := node("VirtualMachine", a.namespace, m.Name)
	i, err := s.Cluster.Instance(a.Context(), a.namespace, a.name)
	switch {
	case err == nil && cluster.OwnedBy(i, m.UID):
		pods, err := s.graphPod(a.Context(), i)
		if err != nil {
			return 0, nil, err
		}
		root.Children = append(root.Children, node("VirtualMachineInstance", a.namespace, i.Name, pods...))
	case err != nil && !apierrors.IsNotFound(err):
		return 0, nil, err
	}
	if t := m.Spec.Instancetype; t != nil {
		root.Children = append(root.Children, graphMatcher(m, *t, m.Status.InstancetypeRef, instancetype.KindType, instancetype.KindClusterType)...)
	}
	if p := m.Spec.Preference; p != nil {
		root.Children = append(root.Children, graphMatcher(m, kubevirt.InstancetypeMatcher(*p), m.Status.PreferenceRef,
			instancetype.KindPreference, instancetype.KindClusterPreference)...)
	}
	if m.Spec.Template != nil {
		root.Children = append(root.Children, graphVolumes(m, &m.Spec.Template.Spec)...)
	}
	return answerGraph(a, root)
}

// graphInstance does the same for an instance.
func (s *Server) graphInstance(a asked) (int, any, error) {
	i, err := s.Cluster.Instance(a.Context(), a.namespace, a.name)
	if err != nil {
		return 0, nil, err
	}
	children, err := s.graphPod(a.Context(), i)
	if err != nil {
		return 0, nil, err
	}
	machine := &kubevirt.VirtualMachine{ObjectMeta: metav1.ObjectMeta{Namespace: i.Namespace, Name: i.Name}}
	root := node("VirtualMachineInstance", a.namespace, i.Name, append(children, graphVolumes(machine, &i.Spec)...)...)
	return answerGraph(a, root)
}

func (s *Server) graphPod(ctx context.Context, i *kubevirt.VirtualMachineInstance) ([]graphNode, error) {
	p, err := s.Cluster.Launcher(ctx, i)
	if err != nil || p == nil {
		return nil, err
	}
	return []graphNode{node("Pod", p.Namespace, p.Name)}, nil
}

func graphMatcher(vm *kubevirt.VirtualMachine, m kubevirt.InstancetypeMatcher, started *kubevirt.InstancetypeStatusRef, kind, clusterKind string) []graphNode {
	var out []graphNode
	name, revision := m.Name, m.RevisionName
	kinds, written := []string{kind, clusterKind}, cmp.Or(m.Kind, clusterKind)
	if started != nil {
		name, written = cmp.Or(name, started.Name), cmp.Or(m.Kind, started.Kind, clusterKind)
		if started.ControllerRevisionRef != nil {
			revision = started.ControllerRevisionRef.Name
		}
	}
	if found := instancetype.KindOf(written, kinds); name != "" && slices.Contains(kinds, found) {
		namespace := vm.Namespace
		if found == clusterKind {
			namespace = ""
		}
		n := node(found, namespace, name)
		n.Optional = ptr.To(true)
		out = append(out, n)
	}
	if revision != "" {
		out = append(out, node("ControllerRevision", vm.Namespace, revision))
	}
	return out
}

func graphVolumes(vm *kubevirt.VirtualMachine, spec *kubevirt.VirtualMachineInstanceSpec) []graphNode {
	var out []graphNode
	add := func(kind, name string, children ...graphNode) {
		if name != "" {
			out = append(out, node(kind, vm.Namespace, name, children...))
		}
	}
	for _, c := range spec.AccessCredentials {
		if k := c.SSHPublicKey; k != nil && k.Source.Secret != nil {
			add("Secret", k.Source.Secret.SecretName)
		}
		if p := c.UserPassword; p != nil && p.Source.Secret != nil {
			add("Secret", p.Source.Secret.SecretName)
		}
	}
	for _, v := range spec.AllVolumes() {
		switch {
		case v.DataVolume != nil:
			add("DataVolume", v.DataVolume.Name, node("PersistentVolumeClaim", vm.Namespace, v.DataVolume.Name))
		case v.PersistentVolumeClaim != nil:
			add("PersistentVolumeClaim", claimOf(vm, v.PersistentVolumeClaim.Claim()))
		case v.Ephemeral != nil && v.Ephemeral.PersistentVolumeClaim != nil:
			add("PersistentVolumeClaim", claimOf(vm, v.Ephemeral.PersistentVolumeClaim.ClaimName))
		case v.ConfigMap != nil:
			add("ConfigMap", v.ConfigMap.Name)
		case v.Secret != nil:
			add("Secret", v.Secret.SecretName)
		case v.ServiceAccount != nil:
			add("ServiceAccount", v.ServiceAccount.ServiceAccountName)
		case v.Sysprep != nil && v.Sysprep.Secret != nil:
			add("Secret", v.Sysprep.Secret.Name)
		case v.Sysprep != nil && v.Sysprep.ConfigMap != nil:
			add("ConfigMap", v.Sysprep.ConfigMap.Name)
		}
		for _, c := range []*kubevirt.CloudInitSource{v.CloudInitNoCloud, v.CloudInitConfigDrive} {
			if c != nil && c.UserDataSecretRef != nil {
				add("Secret", c.UserDataSecretRef.Name)
			}
			if c != nil && c.NetworkDataSecretRef != nil {
				add("Secret", c.NetworkDataSecretRef.Name)
			}
		}
	}
	return out
}

// answerGraph returns the part of the graph that was asked for.
func answerGraph(a asked, root graphNode) (int, any, error) {
	var o graphOptions
	if err := a.into(&o); err != nil {
		return 0, nil, err
	}
	selector := labels.Everything()
	if o.LabelSelector != nil {
		var err error
		if selector, err = metav1.LabelSelectorAsSelector(o.LabelSelector); err != nil {
			return 0, nil, apierrors.NewBadRequest(fmt.Sprintf("labelSelector: %v", err))
		}
	}
	root.Children = filterGraph(root.Children, selector, ptr.Deref(o.IncludeOptionalNodes, true))
	return http.StatusOK, root, nil
}

func filterGraph(all []graphNode, selector labels.Selector, optional bool) []graphNode {
	var out []graphNode
	for _, n := range all {
		if !selector.Matches(labels.Set(n.Labels)) || ptr.Deref(n.Optional, false) && !optional {
			continue
		}
		n.Children = filterGraph(n.Children, selector, optional)
		out = append(out, n)
	}
	return out
}
