package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// VirtualMachineSnapshot is a machine and the content of its disks at one moment.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmsnapshot;vmsnapshots,categories=all
// +kubebuilder:printcolumn:name="SourceKind",type=string,JSONPath=`.spec.source.kind`
// +kubebuilder:printcolumn:name="SourceName",type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="ReadyToUse",type=boolean,JSONPath=`.status.readyToUse`
// +kubebuilder:printcolumn:name="CreationTime",type=date,JSONPath=`.status.creationTime`
// +kubebuilder:printcolumn:name="Error",type=string,JSONPath=`.status.error.message`
type VirtualMachineSnapshot struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable"
	Spec   VirtualMachineSnapshotSpec   `json:"spec"`
	Status VirtualMachineSnapshotStatus `json:"status,omitempty"`
}

// VirtualMachineSnapshotList is a list of snapshots.
//
// +kubebuilder:object:root=true
type VirtualMachineSnapshotList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineSnapshot `json:"items"`
}

// DeletionPolicy says what happens to the content when its snapshot is deleted.
//
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

// The policies.
const (
	DeleteContent DeletionPolicy = "Delete"
	RetainContent DeletionPolicy = "Retain"
)

// VirtualMachineSnapshotSpec names the machine to take a snapshot of.
//
// +kubebuilder:validation:XValidation:rule="self.source.kind == 'VirtualMachine' && has(self.source.apiGroup) && self.source.apiGroup == 'kubevirt.io'",message="source must be a VirtualMachine of group kubevirt.io"
type VirtualMachineSnapshotSpec struct {
	// Source is a VirtualMachine of the same namespace.
	Source corev1.TypedLocalObjectReference `json:"source"`
	// DeletionPolicy is Delete if unset.
	DeletionPolicy *DeletionPolicy `json:"deletionPolicy,omitempty"`
	// FailureDeadline is how long taking it may last; five minutes if unset, for ever if zero.
	FailureDeadline *metav1.Duration `json:"failureDeadline,omitempty"`
}

// Indication is a remark about how a snapshot was taken.
type Indication string

// The indications.
const (
	Online          Indication = "Online"
	NoGuestAgent    Indication = "NoGuestAgent"
	GuestAgent      Indication = "GuestAgent"
	QuiesceTimeout  Indication = "QuiesceTimeout"
	PartialSnapshot Indication = "PartialSnapshot"
)

// SourceIndication is an indication and what it means.
type SourceIndication struct {
	Indication Indication `json:"indication"`
	// Message says what that means.
	Message string `json:"message"`
}

// Phase is the progress of a snapshot.
type Phase string

// The phases.
const (
	InProgress Phase = "InProgress"
	Succeeded  Phase = "Succeeded"
	Failed     Phase = "Failed"
	Deleting   Phase = "Deleting"
)

// VirtualMachineSnapshotStatus reports the state of the snapshot.
type VirtualMachineSnapshotStatus struct {
	SourceUID *types.UID `json:"sourceUID,omitempty"`
	// VirtualMachineSnapshotContentName is the object with what was taken.
	VirtualMachineSnapshotContentName *string `json:"virtualMachineSnapshotContentName,omitempty"`
	// CreationTime is when the disks were taken.
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	Phase        Phase        `json:"phase,omitempty"`
	// ReadyToUse is true when it can be restored.
	ReadyToUse *bool  `json:"readyToUse,omitempty"`
	Error      *Error `json:"error,omitempty"`
	// Conditions say what is true of the snapshot, since when and why.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// Indications are words for how the disks were taken; see sourceIndications.
	//
	// +listType=set
	Indications []Indication `json:"indications,omitempty"`
	// SourceIndications say how the disks were taken.
	//
	// +listType=map
	// +listMapKey=indication
	SourceIndications []SourceIndication    `json:"sourceIndications,omitempty"`
	SnapshotVolumes   *SnapshotVolumesLists `json:"snapshotVolumes,omitempty"`
}

// SnapshotVolumesLists are the machine's volumes by whether they are in the snapshot.
type SnapshotVolumesLists struct {
	// IncludedVolumes are volumes that are in the snapshot.
	//
	// +listType=set
	IncludedVolumes []string `json:"includedVolumes,omitempty"`
	// ExcludedVolumes are volumes that are not in the snapshot.
	//
	// +listType=set
	ExcludedVolumes []string `json:"excludedVolumes,omitempty"`
}

// Error is the last thing that went wrong.
type Error struct {
	// Time is when it went wrong.
	Time *metav1.Time `json:"time,omitempty"`
	// Message says what went wrong.
	Message *string `json:"message,omitempty"`
}

// ConditionType names a condition.
type ConditionType string

// The conditions.
const (
	ConditionReady       ConditionType = "Ready"
	ConditionProgressing ConditionType = "Progressing"
	ConditionFailure     ConditionType = "Failure"
)

// Condition is one observation of a snapshot or a restore.
type Condition struct {
	// Type of the condition.
	Type ConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`
	// LastProbeTime is when it was last checked.
	LastProbeTime *metav1.Time `json:"lastProbeTime,omitempty"`
	// LastTransitionTime is when the status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is one word for why.
	Reason string `json:"reason,omitempty"`
	// Message says what it waits for and what to do.
	Message string `json:"message,omitempty"`
}

// VirtualMachineSnapshotContent holds the data of a snapshot: the machine's definition and its VolumeSnapshots. It outlives the
// machine. If its deletion policy is Retain, it outlives its snapshot too.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmsnapshotcontent;vmsnapshotcontents
// +kubebuilder:printcolumn:name="ReadyToUse",type=boolean,JSONPath=`.status.readyToUse`
// +kubebuilder:printcolumn:name="CreationTime",type=date,JSONPath=`.status.creationTime`
type VirtualMachineSnapshotContent struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VirtualMachineSnapshotContentSpec   `json:"spec"`
	Status            VirtualMachineSnapshotContentStatus `json:"status,omitempty"`
}

// VirtualMachineSnapshotContentList is a list of contents.
//
// +kubebuilder:object:root=true
type VirtualMachineSnapshotContentList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineSnapshotContent `json:"items"`
}

// VirtualMachineSnapshotContentSpec is the machine and the claims as they were.
type VirtualMachineSnapshotContentSpec struct {
	// VirtualMachineSnapshotName is the snapshot that this belongs to.
	VirtualMachineSnapshotName *string    `json:"virtualMachineSnapshotName,omitempty"`
	Source                     SourceSpec `json:"source"`
	// VolumeBackups are the snapshots of the machine's volumes.
	//
	// +listType=map
	// +listMapKey=volumeName
	VolumeBackups []VolumeBackup `json:"volumeBackups,omitempty"`
}

// SourceSpec is the object that the snapshot was taken of.
type SourceSpec struct {
	VirtualMachine *VirtualMachine `json:"virtualMachine,omitempty"`
}

// VirtualMachine is the machine as it was.
type VirtualMachine struct {
	// ObjectMeta is the machine's own.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	ObjectMeta metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec is the machine's own, as it was.
	//
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Spec kubevirt.VirtualMachineSpec `json:"spec,omitempty"`
}

// PersistentVolumeClaim is a claim as it was.
type PersistentVolumeClaim struct {
	// ObjectMeta is the claim's own.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	ObjectMeta metav1.ObjectMeta                `json:"metadata,omitempty"`
	Spec       corev1.PersistentVolumeClaimSpec `json:"spec,omitempty"`
}

// VolumeBackup is one volume of the machine, its claim, and the snapshot of that.
type VolumeBackup struct {
	// VolumeName is the machine's volume.
	VolumeName            string                `json:"volumeName"`
	PersistentVolumeClaim PersistentVolumeClaim `json:"persistentVolumeClaim"`
	// VolumeSnapshotName is the snapshot of its claim.
	VolumeSnapshotName *string `json:"volumeSnapshotName,omitempty"`
}

// VirtualMachineSnapshotContentStatus reports the state of the VolumeSnapshots.
type VirtualMachineSnapshotContentStatus struct {
	// CreationTime is when the disks were taken.
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	// ReadyToUse is true when every snapshot can be restored.
	ReadyToUse *bool  `json:"readyToUse,omitempty"`
	Error      *Error `json:"error,omitempty"`
	// VolumeSnapshotStatus is the state of each snapshot.
	//
	// +listType=map
	// +listMapKey=volumeSnapshotName
	VolumeSnapshotStatus []VolumeSnapshotStatus `json:"volumeSnapshotStatus,omitempty"`
}

// VolumeSnapshotStatus is how far one VolumeSnapshot is.
type VolumeSnapshotStatus struct {
	// VolumeSnapshotName is the snapshot.
	VolumeSnapshotName string `json:"volumeSnapshotName"`
	// CreationTime is when it was taken.
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	// ReadyToUse is true when it can be restored.
	ReadyToUse *bool  `json:"readyToUse,omitempty"`
	Error      *Error `json:"error,omitempty"`
}
