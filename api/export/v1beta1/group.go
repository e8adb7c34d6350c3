// Package v1beta1 has the kind of export.kubevirt.io/v1beta1 that Berth serves: the fields it implements, spelled as kubevirt.io
// spells them.
//
// It is data only; what the fields do is in internal/decide/export.
//
// +kubebuilder:object:generate=true
// +groupName=export.kubevirt.io
package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen object paths=.
//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen crd paths=. output:crd:dir=../../../config/crd/export
//go:generate go run ../../../config/crd/serve ../../../config/crd/export/export.kubevirt.io_virtualmachineexports.yaml v1

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "export.kubevirt.io", Version: "v1beta1"}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &VirtualMachineExport{}, &VirtualMachineExportList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
