package v1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VirtualMachineInstanceMigration moves a running guest to another node. Deleting it before it is done cancels it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmim;vmims,categories=all
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=".status.phase"
// +kubebuilder:printcolumn:name="VMI",type=string,JSONPath=".spec.vmiName"
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Source",type=string,JSONPath=".status.migrationState.sourceNode"
// +kubebuilder:printcolumn:name="Target",type=string,JSONPath=".status.migrationState.targetNode"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=".metadata.creationTimestamp"
// +kubebuilder:printcolumn:name="Message",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
// +kubebuilder:validation:XValidation:rule="self.spec == oldSelf.spec",message="the spec of a migration cannot be changed; create another"
type VirtualMachineInstanceMigration struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   MigrationSpec   `json:"spec"`
	Status MigrationStatus `json:"status,omitempty"`
}

// VirtualMachineInstanceMigrationList is a list of migrations.
//
// +kubebuilder:object:root=true
type VirtualMachineInstanceMigrationList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineInstanceMigration `json:"items"`
}

// MigrationSpec names the instance that is to move.
type MigrationSpec struct {
	// VMIName is the machine to move.
	//
	// +kubebuilder:validation:Required
	// +kubebuilder:validation:MinLength=1
	VMIName string `json:"vmiName,omitempty"`
	// AddedNodeSelector are labels that the new node must have besides those that the machine asks for. Of a label that the machine
	// asks for itself, what the machine says counts.
	AddedNodeSelector map[string]string `json:"addedNodeSelector,omitempty"`
}

// MigrationPhase is the progress of a migration.
type MigrationPhase string

// The phases.
const (
	MigrationPending         MigrationPhase = "Pending"
	MigrationScheduling      MigrationPhase = "Scheduling"
	MigrationScheduled       MigrationPhase = "Scheduled"
	MigrationPreparingTarget MigrationPhase = "PreparingTarget"
	MigrationTargetReady     MigrationPhase = "TargetReady"
	MigrationRunning         MigrationPhase = "Running"
	MigrationSucceeded       MigrationPhase = "Succeeded"
	MigrationFailed          MigrationPhase = "Failed"
)

// MigrationStatus is the progress of the migration.
type MigrationStatus struct {
	Phase MigrationPhase `json:"phase,omitempty"`
	// Conditions say what is true of the migration, since when and why.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// PhaseTransitionTimestamps are the phases that the migration went through, and when.
	//
	// +listType=atomic
	PhaseTransitionTimestamps []MigrationPhaseTransition `json:"phaseTransitionTimestamps,omitempty"`
	MigrationState            *MigrationState            `json:"migrationState,omitempty"`
	// SentBytes of TotalBytes are at the new node: memory and disks. A guest that writes makes the total grow.
	SentBytes int64 `json:"sentBytes,omitempty"`
	// TotalBytes is how much there is to send.
	TotalBytes int64 `json:"totalBytes,omitempty"`
}

// MigrationPhaseTransition is when a phase began.
type MigrationPhaseTransition struct {
	Phase MigrationPhase `json:"phase,omitempty"`
	// PhaseTransitionTimestamp is when the phase began.
	PhaseTransitionTimestamp metav1.Time `json:"phaseTransitionTimestamp,omitempty"`
}

// MigrationAbortStatus is the result of a request to cancel the migration.
type MigrationAbortStatus string

// The results of a request to cancel.
const (
	AbortInProgress MigrationAbortStatus = "Aborting"
	AbortSucceeded  MigrationAbortStatus = "Succeeded"
	AbortFailed     MigrationAbortStatus = "Failed" // it was too late
)

// PreCopy is the one mode there is: the guest runs on its old node until everything is on the new one.
const PreCopy = "PreCopy"

// MigrationState is a migration as its instance shows it.
type MigrationState struct {
	// StartTimestamp is when the guest began to move.
	StartTimestamp *metav1.Time `json:"startTimestamp,omitempty"`
	// EndTimestamp is when the move ended.
	EndTimestamp *metav1.Time `json:"endTimestamp,omitempty"`
	// TargetNodeDomainReadyTimestamp is when the target was first known to have all of the guest.
	TargetNodeDomainReadyTimestamp *metav1.Time `json:"targetNodeDomainReadyTimestamp,omitempty"`
	// TargetNodeDomainDetected is true since then.
	TargetNodeDomainDetected bool `json:"targetNodeDomainDetected,omitempty"`
	// TargetNodeAddress is the address of the launcher that takes the guest.
	TargetNodeAddress string `json:"targetNodeAddress,omitempty"`
	// TargetNode is the node that the guest moves to.
	TargetNode string `json:"targetNode,omitempty"`
	// TargetPod is the launcher that takes the guest.
	TargetPod string `json:"targetPod,omitempty"`
	// SourceNode is the node that the guest leaves.
	SourceNode string `json:"sourceNode,omitempty"`
	// SourcePod is the launcher that the guest leaves.
	SourcePod string `json:"sourcePod,omitempty"`
	// Completed is true when the move has ended, well or not.
	Completed bool `json:"completed,omitempty"`
	// Failed is true if the guest stayed where it was.
	Failed bool `json:"failed,omitempty"`
	// FailureReason says why.
	FailureReason string `json:"failureReason,omitempty"`
	// AbortRequested is true if the migration was deleted while it ran.
	AbortRequested bool `json:"abortRequested,omitempty"`
	// AbortStatus says whether that was in time.
	AbortStatus MigrationAbortStatus `json:"abortStatus,omitempty"`
	// MigrationUID is the UID of the VirtualMachineInstanceMigration.
	MigrationUID types.UID `json:"migrationUid,omitempty"`
	// Mode is PreCopy.
	Mode string `json:"mode,omitempty"`
	// MigrationPolicyName is the MigrationPolicy whose limits it has; not there if none matched.
	MigrationPolicyName *string `json:"migrationPolicyName,omitempty"`
	// MigrationConfiguration has the limits of the migration, from the configuration and the policy that selects it.
	MigrationConfiguration *MigrationConfiguration `json:"migrationConfiguration,omitempty"`
}

// Ended reports whether the migration has come to its end, one way or the other.
func (m *VirtualMachineInstanceMigration) Ended() bool {
	return m.Status.Phase == MigrationSucceeded || m.Status.Phase == MigrationFailed
}

// Labels and annotations of migrations, as upstream has them.
const (
	LabelVolumeUpdate = "kubevirt.io/volume-update-migration" // on a migration for volumes that were changed: the instance
	LabelMigrated     = "kubevirt.io/vmi-name"                // the instance; upstream's virtctl finds migrations by it
	AnnEvacuation     = "kubevirt.io/evacuationMigration"     // of one that a drain asked for: the node
	// AnnStays is on an instance whose evacuation was cancelled. Its value names the evacuation, by the launcher and the time.
	AnnStays   = "berth.dev/evacuation-cancelled"
	AnnOffline = "berth.dev/offline" // "true" on one of a machine that does not run: its claims are copied
)

// LabelOutdated is on instances whose guest runs in an older image than a new one would.
const LabelOutdated = "kubevirt.io/outdatedLauncherImage"

// MigrateOptions are the options of the subresource migrate.
type MigrateOptions struct {
	// +listType=atomic
	DryRun            []string          `json:"dryRun,omitempty"`
	AddedNodeSelector map[string]string `json:"addedNodeSelector,omitempty"`
}
