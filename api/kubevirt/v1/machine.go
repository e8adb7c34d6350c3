package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

// VirtualMachine is a machine and its disks, running or not.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vm;vms,categories=all
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Status",type=string,JSONPath=`.status.printableStatus`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type VirtualMachine struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VirtualMachineSpec   `json:"spec"`
	Status            VirtualMachineStatus `json:"status,omitempty"`
}

// VirtualMachineList is a list of machines.
//
// +kubebuilder:object:root=true
type VirtualMachineList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachine `json:"items"`
}

// RunStrategy says when a machine is to run.
//
// +kubebuilder:validation:Enum=Always;Halted;Manual;RerunOnFailure;Once
type RunStrategy string

// The run strategies.
const (
	RunAlways         RunStrategy = "Always"
	RunHalted         RunStrategy = "Halted"
	RunManual         RunStrategy = "Manual"
	RunRerunOnFailure RunStrategy = "RerunOnFailure"
	RunOnce           RunStrategy = "Once"
)

// Strategy returns when the machine is to run, in whichever of the two forms it says so.
func (s *VirtualMachineSpec) Strategy() RunStrategy {
	switch {
	case s.RunStrategy != nil:
		return *s.RunStrategy
	case s.Running != nil && *s.Running:
		return RunAlways
	}
	return RunHalted
}

// VirtualMachineSpec describes the desired state of the machine.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.running) && has(self.runStrategy))",message="Running and RunStrategy are mutually exclusive. Note that Running is deprecated, please use RunStrategy instead"
type VirtualMachineSpec struct {
	// Running is the older form of RunStrategy: true is Always, false is Halted.
	Running *bool `json:"running,omitempty"`
	// RunStrategy says when the machine is to run.
	RunStrategy *RunStrategy `json:"runStrategy,omitempty"`
	// Template is the instance that is made of the machine each time it starts.
	Template *VirtualMachineInstanceTemplateSpec `json:"template"`
	// DataVolumeTemplates are volumes made for this machine and deleted with it.
	// +listType=atomic
	DataVolumeTemplates []DataVolumeTemplateSpec `json:"dataVolumeTemplates,omitempty"`
	// VolumeClaimTemplates are claims made for this machine; each is called <machine>-<template>.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	VolumeClaimTemplates []VolumeClaimTemplate `json:"volumeClaimTemplates,omitempty"`
	// UpdateVolumesStrategy says what happens to a running machine whose volumes are changed to other claims: Migration sends its
	// disks into them while it runs; Replacement, or nothing, has it use them from its next start on.
	UpdateVolumesStrategy *UpdateVolumesStrategy `json:"updateVolumesStrategy,omitempty"`
	// Instancetype names the instance type the machine gets its processors and memory from.
	Instancetype *InstancetypeMatcher `json:"instancetype,omitempty"`
	// Preference names the preference that fills in what neither the machine nor its instance type says.
	Preference *PreferenceMatcher `json:"preference,omitempty"`
}

// UpdateVolumesStrategy says what happens to a running machine whose volumes are changed to other claims.
//
// +kubebuilder:validation:Enum=Migration;Replacement
type UpdateVolumesStrategy string

// The strategies.
const (
	UpdateByMigration   UpdateVolumesStrategy = "Migration"
	UpdateByReplacement UpdateVolumesStrategy = "Replacement"
)

// VirtualMachineInstanceTemplateSpec is the template that the machine's instance is made from.
type VirtualMachineInstanceTemplateSpec struct {
	// ObjectMeta has the labels and annotations of the machine's instances.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	ObjectMeta metav1.ObjectMeta          `json:"metadata,omitempty"`
	Spec       VirtualMachineInstanceSpec `json:"spec,omitempty"`
}

// DataVolumeTemplateSpec is a DataVolume to be made.
type DataVolumeTemplateSpec struct {
	metav1.TypeMeta `json:",inline"`
	// ObjectMeta has the name, the labels and the annotations of the volume.
	//
	// +kubebuilder:pruning:PreserveUnknownFields
	ObjectMeta metav1.ObjectMeta    `json:"metadata,omitempty"`
	Spec       cdiv1.DataVolumeSpec `json:"spec"`
	// Status is always empty. It exists because some clients send a whole DataVolume.
	Status *DataVolumeTemplateStatus `json:"status,omitempty"`
}

// PrintableStatus is one word a person can read for the whole machine.
type PrintableStatus string

// The words, as virtctl and user interfaces know them.
const (
	StatusStopped                 PrintableStatus = "Stopped"
	StatusProvisioning            PrintableStatus = "Provisioning"
	StatusStarting                PrintableStatus = "Starting"
	StatusRunning                 PrintableStatus = "Running"
	StatusPaused                  PrintableStatus = "Paused"
	StatusStopping                PrintableStatus = "Stopping"
	StatusTerminating             PrintableStatus = "Terminating"
	StatusCrashLoopBackOff        PrintableStatus = "CrashLoopBackOff"
	StatusUnschedulable           PrintableStatus = "ErrorUnschedulable"
	StatusErrImagePull            PrintableStatus = "ErrImagePull"
	StatusImagePullBackOff        PrintableStatus = "ImagePullBackOff"
	StatusPvcNotFound             PrintableStatus = "ErrorPvcNotFound"
	StatusDataVolumeError         PrintableStatus = "DataVolumeError"
	StatusWaitingForVolumeBinding PrintableStatus = "WaitingForVolumeBinding"
	StatusUnknown                 PrintableStatus = "Unknown"
)

// VirtualMachineStatus reports the state of the machine.
type VirtualMachineStatus struct {
	// Created says that an instance exists.
	Created bool `json:"created,omitempty"`
	// Ready says that the instance runs.
	Ready           bool            `json:"ready,omitempty"`
	PrintableStatus PrintableStatus `json:"printableStatus,omitempty"`
	RunStrategy     RunStrategy     `json:"runStrategy,omitempty"`
	// ObservedGeneration is the generation of the spec that this status is about.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// DesiredGeneration is the generation of the spec that the machine is to have.
	DesiredGeneration int64 `json:"desiredGeneration,omitempty"`
	// Conditions say what is true of the machine, since when and why.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// StateChangeRequests are starts and stops that were asked for and not yet carried out, oldest first.
	// +listType=atomic
	StateChangeRequests []StateChangeRequest `json:"stateChangeRequests,omitempty"`
	// VolumeRequests are volumes to be added or removed permanently, oldest first.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	VolumeRequests []VolumeRequest `json:"volumeRequests,omitempty"`
	// StartFailure counts instances that ended before they ran, for the back-off between tries.
	StartFailure *StartFailure `json:"startFailure,omitempty"`
	// InstancetypeRef is the instance type the machine was last started with.
	InstancetypeRef *InstancetypeStatusRef `json:"instancetypeRef,omitempty"`
	// PreferenceRef is the preference the machine was last started with.
	PreferenceRef *InstancetypeStatusRef `json:"preferenceRef,omitempty"`
	// SnapshotInProgress is the VirtualMachineSnapshot that is being taken.
	SnapshotInProgress *string `json:"snapshotInProgress,omitempty"`
	// RestoreInProgress is the VirtualMachineRestore that is under way.
	RestoreInProgress *string `json:"restoreInProgress,omitempty"`
	// VolumeUpdateState reports the change of volumes that were changed while the machine runs.
	VolumeUpdateState *VolumeUpdateState `json:"volumeUpdateState,omitempty"`
	// VolumeSnapshotStatuses say which volumes a snapshot of the machine has.
	//
	// +listType=atomic
	VolumeSnapshotStatuses []VolumeSnapshotStatus `json:"volumeSnapshotStatuses,omitempty"`
	// ChangedBlockTracking says that backups of the machine can be incremental.
	ChangedBlockTracking *ChangedBlockTrackingStatus `json:"changedBlockTracking,omitempty"`
}

// ChangedBlockTrackingState says whether it can be recorded which blocks of a machine's disks change.
type ChangedBlockTrackingState string

// ChangedBlockTrackingEnabled is the state of every machine: nothing has to be prepared or restarted. What changes is recorded from the first backup of a
// VirtualMachineBackupTracker on.
const ChangedBlockTrackingEnabled ChangedBlockTrackingState = "Enabled"

// ChangedBlockTrackingStatus is what clients wait for before they make an incremental backup.
type ChangedBlockTrackingStatus struct {
	// State is Enabled.
	State ChangedBlockTrackingState `json:"state"`
}

// VolumeSnapshotStatus says whether a snapshot of the machine has a volume.
type VolumeSnapshotStatus struct {
	// Name of the volume.
	Name string `json:"name"`
	// Enabled says that a snapshot has it.
	Enabled bool `json:"enabled"`
	// Reason is why it has not.
	Reason string `json:"reason,omitempty"`
}

// StateChangeAction is the change of state that is requested of a machine.
type StateChangeAction string

// The actions.
const (
	StartRequest StateChangeAction = "Start"
	StopRequest  StateChangeAction = "Stop"
)

// StateChangeRequest is one start or stop that was asked for.
type StateChangeRequest struct {
	Action StateChangeAction `json:"action"`
	// Data has the options of the request.
	Data map[string]string `json:"data,omitempty"`
	// UID of the instance a stop is meant for, so that a late stop never ends the next one.
	UID *types.UID `json:"uid,omitempty"`
}

// StartFailure counts failures in a row.
type StartFailure struct {
	// ConsecutiveFailCount is how many starts in a row failed.
	ConsecutiveFailCount int       `json:"consecutiveFailCount,omitempty"`
	LastFailedVMIUID     types.UID `json:"lastFailedVMIUID,omitempty"`
	// RetryAfterTimestamp is when the next start is tried.
	RetryAfterTimestamp *metav1.Time `json:"retryAfterTimestamp,omitempty"`
}

// Condition is one observation of a machine or an instance.
type Condition struct {
	// Type of the condition.
	Type string `json:"type"`
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

// VolumeUpdateState reports the change of volumes that were changed while the machine runs.
type VolumeUpdateState struct {
	VolumeMigrationState *VolumeMigrationState `json:"volumeMigrationState,omitempty"`
}

// VolumeMigrationState has the volumes whose disks are being sent into other claims.
type VolumeMigrationState struct {
	// MigratedVolumes lists the changed volumes.
	//
	// +listType=atomic
	MigratedVolumes []MigratedVolume `json:"migratedVolumes,omitempty"`
}
