package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualMachineRestore puts a machine and its disks back to where they were when a snapshot was taken.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmrestore;vmrestores,categories=all
// +kubebuilder:printcolumn:name="TargetKind",type=string,JSONPath=`.spec.target.kind`
// +kubebuilder:printcolumn:name="TargetName",type=string,JSONPath=`.spec.target.name`
// +kubebuilder:printcolumn:name="Complete",type=boolean,JSONPath=`.status.complete`
// +kubebuilder:printcolumn:name="RestoreTime",type=date,JSONPath=`.status.restoreTime`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type VirtualMachineRestore struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable"
	Spec   VirtualMachineRestoreSpec   `json:"spec"`
	Status VirtualMachineRestoreStatus `json:"status,omitempty"`
}

// VirtualMachineRestoreList is a list of restores.
//
// +kubebuilder:object:root=true
type VirtualMachineRestoreList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineRestore `json:"items"`
}

// TargetReadinessPolicy says what happens if the machine to restore is running.
//
// +kubebuilder:validation:Enum=StopTarget;WaitGracePeriod;FailImmediate;WaitEventually
type TargetReadinessPolicy string

// The policies.
const (
	StopTarget      TargetReadinessPolicy = "StopTarget"      // stop it
	WaitGracePeriod TargetReadinessPolicy = "WaitGracePeriod" // wait five minutes for a user to stop it
	FailImmediate   TargetReadinessPolicy = "FailImmediate"
	WaitEventually  TargetReadinessPolicy = "WaitEventually"
)

// VolumeRestorePolicy says how the restored claims are named. It is optional: the default depends on the target.
//
// +kubebuilder:validation:Enum=InPlace;PrefixTargetName
type VolumeRestorePolicy string

// The policies.
const (
	// InPlace replaces the claims of the machine the snapshot is of, under the names they have.
	InPlace VolumeRestorePolicy = "InPlace"
	// PrefixTargetName names the claims of another machine after it: <machine>-<claim template>, else <machine>-<volume>.
	PrefixTargetName VolumeRestorePolicy = "PrefixTargetName"
)

// VirtualMachineRestoreSpec names the machine to restore and the snapshot to restore it from.
//
// +kubebuilder:validation:XValidation:rule="self.target.kind == 'VirtualMachine' && has(self.target.apiGroup) && self.target.apiGroup == 'kubevirt.io'",message="target must be a VirtualMachine of group kubevirt.io"
type VirtualMachineRestoreSpec struct {
	// Target is a VirtualMachine of the same namespace: the one the snapshot is of, or one that does not exist, which is
	// made from the snapshot and stopped.
	Target corev1.TypedLocalObjectReference `json:"target"`
	// VirtualMachineSnapshotName is the snapshot to restore.
	VirtualMachineSnapshotName string `json:"virtualMachineSnapshotName"`
	// TargetReadinessPolicy is WaitGracePeriod if unset.
	TargetReadinessPolicy *TargetReadinessPolicy `json:"targetReadinessPolicy,omitempty"`
	VolumeRestorePolicy   *VolumeRestorePolicy   `json:"volumeRestorePolicy,omitempty"`
	// Patches are operations of a JSON patch, one each, on a machine that is made: on its spec, labels and annotations.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=4096
	Patches []string `json:"patches,omitempty"`
}

// VirtualMachineRestoreStatus is the progress of the restore.
type VirtualMachineRestoreStatus struct {
	// Restores lists the restored volumes and their claims.
	//
	// +listType=map
	// +listMapKey=volumeName
	Restores []VolumeRestore `json:"restores,omitempty"`
	// RestoreTime is when it was complete.
	RestoreTime *metav1.Time `json:"restoreTime,omitempty"`
	// Complete is true when the machine has its disks.
	Complete *bool `json:"complete,omitempty"`
	// Conditions say what is true of the restore, since when and why.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// VolumeRestore is one volume that is put back.
type VolumeRestore struct {
	// VolumeName is the machine's volume.
	VolumeName string `json:"volumeName"`
	// PersistentVolumeClaimName is the claim that it is restored to.
	PersistentVolumeClaimName string `json:"persistentVolumeClaim"`
	// VolumeSnapshotName is the snapshot that it comes from.
	VolumeSnapshotName string `json:"volumeSnapshotName"`
	// DataVolumeName is the DataVolume that the claim is the disk of.
	DataVolumeName *string `json:"dataVolumeName,omitempty"`
}
