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
	// +kubebuilder:validation:Required
	// +kubebuilder:validation:MinLength=1
	VMIName string `json:"vmiName,omitempty"`
}

// MigrationPhase is how far a migration has come.
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

// MigrationStatus is how far the migration is.
type MigrationStatus struct {
	Phase MigrationPhase `json:"phase,omitempty"`
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// +listType=atomic
	PhaseTransitionTimestamps []MigrationPhaseTransition `json:"phaseTransitionTimestamps,omitempty"`
	MigrationState            *MigrationState            `json:"migrationState,omitempty"`
}

// MigrationPhaseTransition is when a phase began.
type MigrationPhaseTransition struct {
	Phase                    MigrationPhase `json:"phase,omitempty"`
	PhaseTransitionTimestamp metav1.Time    `json:"phaseTransitionTimestamp,omitempty"`
}

// MigrationAbortStatus is what became of the wish to cancel.
type MigrationAbortStatus string

// The fates of that wish.
const (
	AbortInProgress MigrationAbortStatus = "Aborting"
	AbortSucceeded  MigrationAbortStatus = "Succeeded"
	AbortFailed     MigrationAbortStatus = "Failed" // it was too late
)

// PreCopy is the one mode there is: the guest runs on its old node until everything is on the new one.
const PreCopy = "PreCopy"

// MigrationState is a migration as its instance shows it.
type MigrationState struct {
	StartTimestamp                 *metav1.Time         `json:"startTimestamp,omitempty"`
	EndTimestamp                   *metav1.Time         `json:"endTimestamp,omitempty"`
	TargetNodeDomainReadyTimestamp *metav1.Time         `json:"targetNodeDomainReadyTimestamp,omitempty"`
	TargetNode                     string               `json:"targetNode,omitempty"`
	TargetPod                      string               `json:"targetPod,omitempty"`
	SourceNode                     string               `json:"sourceNode,omitempty"`
	SourcePod                      string               `json:"sourcePod,omitempty"`
	Completed                      bool                 `json:"completed,omitempty"`
	Failed                         bool                 `json:"failed,omitempty"`
	FailureReason                  string               `json:"failureReason,omitempty"`
	AbortRequested                 bool                 `json:"abortRequested,omitempty"`
	AbortStatus                    MigrationAbortStatus `json:"abortStatus,omitempty"`
	MigrationUID                   types.UID            `json:"migrationUid,omitempty"`
	Mode                           string               `json:"mode,omitempty"`
}

// Ended says whether the migration has come to its end, one way or the other.
func (m *VirtualMachineInstanceMigration) Ended() bool {
	return m.Status.Phase == MigrationSucceeded || m.Status.Phase == MigrationFailed
}
