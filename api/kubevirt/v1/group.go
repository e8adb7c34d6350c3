// Package v1 has the kinds of kubevirt.io/v1 that Berth runs: every field of a machine's spec, spelled as kubevirt.io spells
// it, and a few of its own. The tests beside it hold both. Fields that Berth does not implement are declared too, so that manifests written for
// KubeVirt apply: admission warns about a field without effect, and refuses it if the guest would come to harm without it.
//
// It is data only; what the fields do is in internal/decide/machine and internal/launcherapi, and which of them do anything in
// internal/machinefields. The types are our own and not kubevirt.io's: controller-gen makes one definition of all kinds of a group that a
// package imports.
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
