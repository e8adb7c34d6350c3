// Package v1beta1 has the kind of clone.kubevirt.io/v1beta1: the fields that Berth implements, spelled as kubevirt.io spells them.
//
// It is data only; what the fields do is in internal/decide/machineclone and internal/controller/machineclone.
//
// +kubebuilder:object:generate=true
// +groupName=clone.kubevirt.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen object paths=.
//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen crd paths=. output:crd:dir=../../../config/crd/clone
//go:generate go run ../../../config/crd/serve ../../../config/crd/clone/clone.kubevirt.io_virtualmachineclones.yaml v1alpha1

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "clone.kubevirt.io", Version: "v1beta1"}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &VirtualMachineClone{}, &VirtualMachineCloneList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
