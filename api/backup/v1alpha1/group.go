// Package v1alpha1 has the kinds of backup.kubevirt.io/v1alpha1 that Berth serves, spelled as kubevirt.io spells them.
//
// It is data only; what the fields do is in internal/decide/backup.
//
// +kubebuilder:object:generate=true
// +groupName=backup.kubevirt.io
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen object paths=.
//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen crd paths=. output:crd:dir=../../../config/crd/backup

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "backup.kubevirt.io", Version: "v1alpha1"}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &VirtualMachineBackup{}, &VirtualMachineBackupList{}, &VirtualMachineBackupTracker{}, &VirtualMachineBackupTrackerList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
