// Package v1alpha1 has the kinds of berth.dev/v1alpha1. DiskAccess says who has a disk open: one object for each disk that is in
// use. ContainerVolume records what a container makes for a machine, and is written by the machine side alone. VolumeBackupSource is written by
// users: a disk of a backup, for claims and DataVolumes to be filled with. MachineSchedule is written by users too: which machines are backed up when.
//
// It is data only; internal/decide/access says which holders may have a disk at the same time, and which disk two names stand for
// is in internal/identity.
//
// +kubebuilder:object:generate=true
// +groupName=berth.dev
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen object paths=.
//go:generate go tool -modfile=../../../hack/tools/go.mod controller-gen crd paths=. output:crd:dir=../../../config/crd/access

// GroupVersion is the group and version of every kind in this package.
var GroupVersion = schema.GroupVersion{Group: "berth.dev", Version: "v1alpha1"}

// AddToScheme makes the kinds known to a scheme.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &DiskAccess{}, &DiskAccessList{}, &ContainerVolume{}, &ContainerVolumeList{},
		&VolumeBackupSource{}, &VolumeBackupSourceList{}, &MachineSchedule{}, &MachineScheduleList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}
