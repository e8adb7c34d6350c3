package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// MachineSchedule backs machines of its namespace up, or takes snapshots of them, at fixed times, and removes old ones that it made.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=machineschedules,shortName=msched;mscheds,categories=all
// +kubebuilder:printcolumn:name="Schedule",type=string,JSONPath=`.spec.schedule`
// +kubebuilder:printcolumn:name="Suspend",type=boolean,JSONPath=`.spec.suspend`
// +kubebuilder:printcolumn:name="UpToDate",type=string,JSONPath=`.status.conditions[?(@.type=="UpToDate")].status`
// +kubebuilder:printcolumn:name="Last Success",type=date,JSONPath=`.status.lastSuccess`
// +kubebuilder:printcolumn:name="Next",type=string,JSONPath=`.status.next`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="UpToDate")].message`
type MachineSchedule struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// Spec says what is made of which machines, and when.
	Spec   MachineScheduleSpec   `json:"spec"`
	Status MachineScheduleStatus `json:"status,omitempty"`
}

// MachineScheduleList is a list of schedules.
//
// +kubebuilder:object:root=true
type MachineScheduleList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MachineSchedule `json:"items"`
}

// MachineScheduleSpec says what is made of which machines, and when.
//
// +kubebuilder:validation:XValidation:rule="has(self.machine) != has(self.selector)",message="exactly one of machine and selector says which machines"
// +kubebuilder:validation:XValidation:rule="has(self.backup) != has(self.snapshot)",message="exactly one of backup and snapshot says what is made"
type MachineScheduleSpec struct {
	// Machine is the name of a VirtualMachine in the namespace of the schedule.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$`
	Machine string `json:"machine,omitempty"`
	// Selector selects VirtualMachines in the namespace of the schedule by their labels; an empty one selects all.
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// Backup has a VirtualMachineBackup made each time.
	Backup *ScheduledBackup `json:"backup,omitempty"`
	// Snapshot has a VirtualMachineSnapshot made each time.
	Snapshot *ScheduledSnapshot `json:"snapshot,omitempty"`
	// Schedule is when, in the syntax of cron: minute, hour, day of the month, month, day of the week; or @hourly, @daily, @weekly, @monthly.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=256
	Schedule string `json:"schedule"`
	// TimeZone is the time zone of the schedule, and of the days and weeks of keep, by its name in the IANA database; UTC if unset.
	//
	// +kubebuilder:validation:MaxLength=64
	TimeZone string `json:"timeZone,omitempty"`
	// Suspend has nothing made as long as it is set.
	Suspend bool `json:"suspend,omitempty"`
	// StartingDeadline is how late it may be begun, because the controller did not run or the one before had not ended. What is later is left out; one
	// hour if unset, seven days at most.
	//
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('10s') && duration(self) <= duration('168h')",message="startingDeadline must be between ten seconds and seven days"
	StartingDeadline *metav1.Duration `json:"startingDeadline,omitempty"`
	// Keep says what is kept of what the schedule made; everything if unset.
	Keep *ScheduleKeep `json:"keep,omitempty"`
}

// ScheduledBackup is how backups are made.
type ScheduledBackup struct {
	// PvcName is the claim that they are written into, in a directory for each machine.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	PvcName string `json:"pvcName"`
	// SkipQuiesce leaves the guest's filesystems as they are: its agent is not asked to freeze them.
	SkipQuiesce bool `json:"skipQuiesce,omitempty"`
	// Increments is how many backups after a full one have only what changed, before the next full one; six if unset. A full backup is removed only together with
	// those that lie over it, so this is also how much is removed at once.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Increments *int32 `json:"increments,omitempty"`
}

// ScheduledSnapshot is how snapshots are taken.
type ScheduledSnapshot struct {
	// FailureDeadline is how long taking one may last; five minutes if unset.
	FailureDeadline *metav1.Duration `json:"failureDeadline,omitempty"`
}

// ScheduleKeep says what is kept. What one of the rules keeps is kept. The last good one, and what it lies over, always is.
//
// +kubebuilder:validation:MinProperties=1
type ScheduleKeep struct {
	// Last is how many of the last ones are kept.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Last int32 `json:"last,omitempty"`
	// Hourly is for how many of the last hours that have one the last one is kept.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Hourly int32 `json:"hourly,omitempty"`
	// Daily is for how many of the last days that have one the last one is kept.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Daily int32 `json:"daily,omitempty"`
	// Weekly is for how many of the last weeks that have one the last one is kept. A week begins on Monday.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Weekly int32 `json:"weekly,omitempty"`
	// Monthly is for how many of the last months that have one the last one is kept.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=1000
	Monthly int32 `json:"monthly,omitempty"`
}

// Types of conditions of a schedule.
const (
	ScheduleReady    = "Ready"    // it can be carried out
	ScheduleUpToDate = "UpToDate" // each of its machines has a good one that is not too old
)

// MachineScheduleStatus is what the schedule came to.
type MachineScheduleStatus struct {
	// Next is when the next ones are made.
	Next *metav1.Time `json:"next,omitempty"`
	// LastSuccess is the time that the last good one was scheduled for.
	LastSuccess *metav1.Time `json:"lastSuccess,omitempty"`
	// LastFailure is the last one that failed.
	LastFailure *ScheduleFailure `json:"lastFailure,omitempty"`
	// Machines are the machines, by name.
	//
	// +listType=map
	// +listMapKey=name
	Machines []ScheduledMachine `json:"machines,omitempty"`
	// Conditions are Ready and UpToDate.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// ScheduleFailure is one that failed.
type ScheduleFailure struct {
	// Time is the time that it was scheduled for.
	Time metav1.Time `json:"time"`
	// Name is the backup or snapshot.
	Name string `json:"name"`
	// Message is why it failed.
	Message string `json:"message,omitempty"`
}

// ScheduledMachine is what the schedule came to for one machine.
type ScheduledMachine struct {
	// Name of the VirtualMachine.
	Name string `json:"name"`
	// UID of the VirtualMachine.
	UID types.UID `json:"uid"`
	// LastSuccess is the time that the last good one was scheduled for.
	LastSuccess *metav1.Time `json:"lastSuccess,omitempty"`
	// LastFailure is the last one that failed, if none has been good since.
	LastFailure *ScheduleFailure `json:"lastFailure,omitempty"`
	// Kept is how many good ones there are.
	Kept int32 `json:"kept,omitempty"`
	// Overdue is when there should have been another good one; not set: there is one that is not too old.
	Overdue *metav1.Time `json:"overdue,omitempty"`
	// Reason is one word for how it is.
	Reason string `json:"reason,omitempty"`
	// Message says what it waits for or what is wrong.
	Message string `json:"message,omitempty"`
	// Removal says how the removal of old backups goes.
	Removal string `json:"removal,omitempty"`
}

// Deadline is how late something may be begun.
func (s MachineScheduleSpec) Deadline() time.Duration {
	if s.StartingDeadline == nil {
		return time.Hour
	}
	return s.StartingDeadline.Duration
}

// increments is how many follow a full backup, if the schedule does not say.
const increments = 6

// MostIncrements is how many follow a full backup.
func (b ScheduledBackup) MostIncrements() int {
	if b.Increments == nil {
		return increments
	}
	return int(*b.Increments)
}
