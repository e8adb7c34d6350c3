package v1alpha1

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VirtualMachineBackup writes the disks of a machine, as they are at one moment, into a claim.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmbackup;vmbackups,categories=all
// +kubebuilder:printcolumn:name="SourceKind",type=string,JSONPath=`.spec.source.kind`
// +kubebuilder:printcolumn:name="SourceName",type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name="Type",type=string,JSONPath=`.status.type`
// +kubebuilder:printcolumn:name="Complete",type=string,JSONPath=`.status.conditions[?(@.type=="Complete")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.status=="True")].reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VirtualMachineBackup struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says what to back up, and where to.
	Spec   VirtualMachineBackupSpec    `json:"spec"`
	Status *VirtualMachineBackupStatus `json:"status,omitempty"`
}

// VirtualMachineBackupList is a list of backups.
//
// +kubebuilder:object:root=true
type VirtualMachineBackupList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineBackup `json:"items"`
}

// The kinds that a backup is made of.
const (
	Machine = "VirtualMachine"
	Tracker = "VirtualMachineBackupTracker"
)

// VirtualMachineBackupSpec names the machine to back up, and where the backup is written.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable after creation"
// +kubebuilder:validation:XValidation:rule="has(self.mode) && self.mode == 'Pull' || has(self.pvcName) && self.pvcName != \"\"",message="pvcName is required"
// +kubebuilder:validation:XValidation:rule="!has(self.mode) || self.mode != 'Pull' || (has(self.tokenSecretRef) && self.tokenSecretRef != \"\")",message="tokenSecretRef is required when mode is Pull"
type VirtualMachineBackupSpec struct {
	// Source is the VirtualMachine to back up; or the VirtualMachineBackupTracker of one, and then only what changed since the tracker's last
	// backup is written, if that was recorded.
	//
	// +kubebuilder:validation:XValidation:rule="has(self.apiGroup)",message="apiGroup is required"
	// +kubebuilder:validation:XValidation:rule="!has(self.apiGroup) || self.apiGroup == 'kubevirt.io' || self.apiGroup == 'backup.kubevirt.io'",message="apiGroup must be kubevirt.io or backup.kubevirt.io"
	// +kubebuilder:validation:XValidation:rule="!has(self.apiGroup) || (self.apiGroup == 'kubevirt.io' && self.kind == 'VirtualMachine') || (self.apiGroup == 'backup.kubevirt.io' && self.kind == 'VirtualMachineBackupTracker')",message="kind must be VirtualMachine for kubevirt.io or VirtualMachineBackupTracker for backup.kubevirt.io"
	// +kubebuilder:validation:XValidation:rule="self.name != ''",message="name is required"
	Source corev1.TypedLocalObjectReference `json:"source"`
	// Mode is Push: the backup is written into the claim. Or it is Pull: clients fetch it, at the addresses in the status.
	//
	// +kubebuilder:validation:Enum=Push;Pull
	Mode *BackupMode `json:"mode,omitempty"`
	// PvcName is the claim, of the same namespace, that the backup is written into. It has a filesystem. In mode Pull it has no use.
	PvcName *string `json:"pvcName,omitempty"`
	// SkipQuiesce leaves the guest's filesystems as they are: its agent is not asked to freeze them.
	SkipQuiesce bool `json:"skipQuiesce,omitempty"`
	// ForceFullBackup has all of the disks written, whatever was recorded.
	ForceFullBackup bool `json:"forceFullBackup,omitempty"`
	// TokenSecretRef is the Secret with the token that clients show in mode Pull, under the key token.
	//
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$`
	// +kubebuilder:validation:MaxLength=253
	TokenSecretRef string `json:"tokenSecretRef,omitempty"`
	// TTLDuration is how long after its creation a backup in mode Pull can be fetched. It is two hours unless it is set.
	TTLDuration *metav1.Duration `json:"ttlDuration,omitempty"`
}

// Claim returns the name of the claim that the backup is written into.
func (s VirtualMachineBackupSpec) Claim() string {
	if s.PvcName == nil {
		return ""
	}
	return *s.PvcName
}

// defaultTTL is how long a backup in mode Pull can be fetched.
const defaultTTL = 2 * time.Hour

// TTL returns how long after its creation a backup in mode Pull can be fetched.
func (s VirtualMachineBackupSpec) TTL() time.Duration {
	if s.TTLDuration == nil {
		return defaultTTL
	}
	return s.TTLDuration.Duration
}

// Pulled reports whether clients fetch the backup.
func (s VirtualMachineBackupSpec) Pulled() bool { return s.Mode != nil && *s.Mode == PullMode }

// BackupMode says whether a backup pushes data to a claim or offers it for reading.
type BackupMode string

// The modes.
const (
	PushMode BackupMode = "Push" // it is written into a claim
	PullMode BackupMode = "Pull" // clients fetch it
)

// BackupType says whether a backup has all data.
type BackupType string

// The types.
const (
	Full        BackupType = "Full"
	Incremental BackupType = "Incremental" // it has what changed since the checkpoint before
)

// VirtualMachineBackupStatus is the progress of a backup, or how it ended.
type VirtualMachineBackupStatus struct {
	// Type says whether the backup has all data, or what changed since the checkpoint before.
	Type BackupType `json:"type,omitempty"`
	// Conditions are Progressing, Complete, Failed and Quiesced.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// CheckpointName is the name of the backup in its claim, and of the moment that it is of.
	CheckpointName *string `json:"checkpointName,omitempty"`
	// EndpointCert is the certificate, as PEM, of the server that a backup in mode Pull is read from.
	EndpointCert *string `json:"endpointCert,omitempty"`
	// IncludedVolumes are the volumes of the machine whose disks are in the backup.
	//
	// +listType=atomic
	IncludedVolumes []BackupVolumeInfo `json:"includedVolumes,omitempty"`
	// ExportUID is the UID of what serves a backup in mode Pull.
	ExportUID *types.UID `json:"exportUID,omitempty"`
}

// BackupVolumeInfo is a volume whose disk is in a backup.
type BackupVolumeInfo struct {
	// VolumeName is the name of the volume in the machine's spec.
	VolumeName string `json:"volumeName"`
	// DiskTarget is the device name that the disk had in the domain.
	DiskTarget string `json:"diskTarget"`
	// DataEndpoint is the URL where the data of the disk is read, in mode Pull.
	DataEndpoint string `json:"dataEndpoint,omitempty"`
	// MapEndpoint is the URL where it is read which parts of the disk have data or changed, in mode Pull.
	MapEndpoint string `json:"mapEndpoint,omitempty"`
}

// Types of conditions.
const (
	ConditionComplete    = "Complete"
	ConditionFailed      = "Failed"
	ConditionProgressing = "Progressing"
	ConditionQuiesced    = "Quiesced"
)

// The reasons of the conditions, which clients know.
const (
	ReasonInitializing         = "Initializing"
	ReasonInitiated            = "Initiated"
	ReasonPreparingExport      = "PreparingExport" // in mode Pull: what serves the disks starts
	ReasonExportReady          = "ExportReady"     // in mode Pull: the disks can be fetched
	ReasonAborting             = "Aborting"
	ReasonCompleted            = "Completed"
	ReasonCompletedWithWarning = "CompletedWithWarning"
	ReasonFailed               = "Failed"
	ReasonQuiesceSucceeded     = "QuiesceSucceeded"
	ReasonQuiesceFailed        = "QuiesceFailed"
	ReasonQuiesceSkipped       = "QuiesceSkipped"
	ReasonSourceLost           = "SourceLost"
)

// Condition returns the condition of a type; nil if it has none.
func (b *VirtualMachineBackup) Condition(kind string) *metav1.Condition {
	if b.Status == nil {
		return nil
	}
	for i := range b.Status.Conditions {
		if b.Status.Conditions[i].Type == kind {
			return &b.Status.Conditions[i]
		}
	}
	return nil
}

// Over reports whether the backup has ended, well or badly.
func (b *VirtualMachineBackup) Over() bool {
	for _, kind := range []string{ConditionComplete, ConditionFailed} {
		if c := b.Condition(kind); c != nil && c.Status == metav1.ConditionTrue {
			return true
		}
	}
	return false
}

// VirtualMachineBackupTracker records what changes on the disks of a machine since the last backup that names the tracker, so that the next one
// has to write only that.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmbackuptracker;vmbackuptrackers,categories=all
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name="Checkpoint",type=string,JSONPath=`.status.latestCheckpoint.name`
// +kubebuilder:printcolumn:name="Taken",type=date,JSONPath=`.status.latestCheckpoint.creationTime`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VirtualMachineBackupTracker struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says whose changes are recorded.
	Spec   VirtualMachineBackupTrackerSpec    `json:"spec"`
	Status *VirtualMachineBackupTrackerStatus `json:"status,omitempty"`
}

// VirtualMachineBackupTrackerList is a list of trackers.
//
// +kubebuilder:object:root=true
type VirtualMachineBackupTrackerList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineBackupTracker `json:"items"`
}

// VirtualMachineBackupTrackerSpec is whose changes are recorded.
//
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable after creation"
type VirtualMachineBackupTrackerSpec struct {
	// Source is the VirtualMachine.
	//
	// +kubebuilder:validation:XValidation:rule="has(self.apiGroup) && self.apiGroup == 'kubevirt.io'",message="apiGroup must be kubevirt.io"
	// +kubebuilder:validation:XValidation:rule="self.kind == 'VirtualMachine'",message="kind must be VirtualMachine"
	// +kubebuilder:validation:XValidation:rule="self.name != ''",message="name is required"
	Source corev1.TypedLocalObjectReference `json:"source"`
}

// VirtualMachineBackupTrackerStatus is the last backup that names the tracker.
type VirtualMachineBackupTrackerStatus struct {
	// LatestCheckpoint is the moment of the last complete backup.
	LatestCheckpoint *BackupCheckpoint `json:"latestCheckpoint,omitempty"`
	// CheckpointRedefinitionRequired has no use in Berth, and is never set.
	CheckpointRedefinitionRequired *bool `json:"checkpointRedefinitionRequired,omitempty"`
}

// BackupCheckpoint is the moment of a backup.
type BackupCheckpoint struct {
	// Name is the checkpointName of the backup.
	Name string `json:"name,omitempty"`
	// CreationTime is the moment that the backup holds.
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	// Volumes lists the volumes whose disks are in the backup.
	//
	// +listType=atomic
	Volumes []BackupVolumeInfo `json:"volumes,omitempty"`
}

// Latest returns the name of the tracker's last checkpoint; empty: it has none.
func (t *VirtualMachineBackupTracker) Latest() string {
	if t.Status == nil || t.Status.LatestCheckpoint == nil {
		return ""
	}
	return t.Status.LatestCheckpoint.Name
}
