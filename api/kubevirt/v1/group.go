// Package v1 has the kinds of kubevirt.io/v1 that Berth runs: the fields it implements, spelled as kubevirt.io spells
// them, and a few of its own, which the test beside it lists. A field that is not here is refused by the API server
// (strict validation) rather than ignored: a machine that silently lacks half of what was asked for helps nobody.
//
// It is data only; what the fields do is in internal/decide/machine and internal/launch.
//
// +kubebuilder:object:generate=true
// +groupName=kubevirt.io
package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen object paths=.
//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen crd paths=. output:crd:dir=../../../config/crd/kubevirt

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "kubevirt.io", Version: "v1"}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion,
		&VirtualMachine{}, &VirtualMachineList{}, &VirtualMachineInstance{}, &VirtualMachineInstanceList{},
		&VirtualMachineInstanceMigration{}, &VirtualMachineInstanceMigrationList{}, &KubeVirt{}, &KubeVirtList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
