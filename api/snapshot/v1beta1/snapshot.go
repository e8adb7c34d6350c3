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

// DeletionPolicy is what becomes of the content of a snapshot that is deleted.
//
// +kubebuilder:validation:Enum=Delete;Retain
type DeletionPolicy string

// The policies.
const (
	DeleteContent DeletionPolicy = "Delete"
	RetainContent DeletionPolicy = "Retain"
)

// VirtualMachineSnapshotSpec is what to take a snapshot of.
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

// Indication is something to know about how a snapshot was taken.
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
	Message    string     `json:"message"`
}

// Phase is how far a snapshot has come.
type Phase string

// The phases.
const (
	InProgress Phase = "InProgress"
	Succeeded  Phase = "Succeeded"
	Failed     Phase = "Failed"
	Deleting   Phase = "Deleting"
)

// VirtualMachineSnapshotStatus is what the snapshot is.
type VirtualMachineSnapshotStatus struct {
	SourceUID                         *types.UID   `json:"sourceUID,omitempty"`
	VirtualMachineSnapshotContentName *string      `json:"virtualMachineSnapshotContentName,omitempty"`
	CreationTime                      *metav1.Time `json:"creationTime,omitempty"`
	Phase                             Phase        `json:"phase,omitempty"`
	ReadyToUse                        *bool        `json:"readyToUse,omitempty"`
	Error                             *Error       `json:"error,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// +listType=set
	Indications []Indication `json:"indications,omitempty"`
	// +listType=map
	// +listMapKey=indication
	SourceIndications []SourceIndication    `json:"sourceIndications,omitempty"`
	SnapshotVolumes   *SnapshotVolumesLists `json:"snapshotVolumes,omitempty"`
}

// SnapshotVolumesLists are the machine's volumes by whether they are in the snapshot.
type SnapshotVolumesLists struct {
	// +listType=set
	IncludedVolumes []string `json:"includedVolumes,omitempty"`
	// +listType=set
	ExcludedVolumes []string `json:"excludedVolumes,omitempty"`
}

// Error is the last thing that went wrong.
type Error struct {
	Time    *metav1.Time `json:"time,omitempty"`
	Message *string      `json:"message,omitempty"`
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
	Type               ConditionType          `json:"type"`
	Status             corev1.ConditionStatus `json:"status"`
	LastProbeTime      *metav1.Time           `json:"lastProbeTime,omitempty"`
	LastTransitionTime metav1.Time            `json:"lastTransitionTime,omitempty"`
	Reason             string                 `json:"reason,omitempty"`
	Message            string                 `json:"message,omitempty"`
}

// VirtualMachineSnapshotContent is what a snapshot consists of. It outlives the machine, and its snapshot if it is to be
// retained.
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
	VirtualMachineSnapshotName *string    `json:"virtualMachineSnapshotName,omitempty"`
	Source                     SourceSpec `json:"source"`
	// +listType=map
	// +listMapKey=volumeName
	VolumeBackups []VolumeBackup `json:"volumeBackups,omitempty"`
}

// SourceSpec is what the snapshot was taken of.
type SourceSpec struct {
	VirtualMachine *VirtualMachine `json:"virtualMachine,omitempty"`
}

// VirtualMachine is the machine as it was.
type VirtualMachine struct {
	// +kubebuilder:pruning:PreserveUnknownFields
	ObjectMeta metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:validation:Schemaless
	// +kubebuilder:pruning:PreserveUnknownFields
	// +kubebuilder:validation:Type=object
	Spec kubevirt.VirtualMachineSpec `json:"spec,omitempty"`
}

// PersistentVolumeClaim is a claim as it was.
type PersistentVolumeClaim struct {
	// +kubebuilder:pruning:PreserveUnknownFields
	ObjectMeta metav1.ObjectMeta                `json:"metadata,omitempty"`
	Spec       corev1.PersistentVolumeClaimSpec `json:"spec,omitempty"`
}

// VolumeBackup is one volume of the machine, its claim, and the snapshot of that.
type VolumeBackup struct {
	VolumeName            string                `json:"volumeName"`
	PersistentVolumeClaim PersistentVolumeClaim `json:"persistentVolumeClaim"`
	VolumeSnapshotName    *string               `json:"volumeSnapshotName,omitempty"`
}

// VirtualMachineSnapshotContentStatus is how far its VolumeSnapshots are.
type VirtualMachineSnapshotContentStatus struct {
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	ReadyToUse   *bool        `json:"readyToUse,omitempty"`
	Error        *Error       `json:"error,omitempty"`
	// +listType=map
	// +listMapKey=volumeSnapshotName
	VolumeSnapshotStatus []VolumeSnapshotStatus `json:"volumeSnapshotStatus,omitempty"`
}

// VolumeSnapshotStatus is how far one VolumeSnapshot is.
type VolumeSnapshotStatus struct {
	VolumeSnapshotName string       `json:"volumeSnapshotName"`
	CreationTime       *metav1.Time `json:"creationTime,omitempty"`
	ReadyToUse         *bool        `json:"readyToUse,omitempty"`
	Error              *Error       `json:"error,omitempty"`
}
