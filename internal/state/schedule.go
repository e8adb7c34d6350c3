package state

import "strings"

// ScheduleReason names a row of the table about schedules of machines.
type ScheduleReason string

// What can be said about a machine of a schedule.
const (
	ScheduleInvalid   ScheduleReason = "Invalid"
	ScheduleNoMachine ScheduleReason = "MachineMissing"
	ScheduleSuspended ScheduleReason = "Suspended"
	SchedulePrevious  ScheduleReason = "PreviousNotEnded"
	ScheduleGoingOn   ScheduleReason = "InProgress"
	ScheduleTaken     ScheduleReason = "NameTaken"
	ScheduleFailed    ScheduleReason = "LastFailed"
	ScheduleOverdue   ScheduleReason = "Overdue"
	ScheduleWaiting   ScheduleReason = "WaitsForFirst"
	ScheduleGood      ScheduleReason = "UpToDate"
	ScheduleTooMany   ScheduleReason = "TooManyMachines"
)

// What can be said about the removal of old ones.
const (
	ScheduleKept       ScheduleReason = ""
	ScheduleRemoving   ScheduleReason = "Removing"
	ScheduleNotRemoved ScheduleReason = "RemovalFailed"
)

// ScheduleRow is one thing that can be said about a machine of a schedule.
type ScheduleRow struct {
	Reason ScheduleReason
	// UpToDate: nothing is wrong with it. Warn: an event tells of it as a warning.
	UpToDate, Warn bool
	Message        string // {detail} is an object, a time, or what an object says
}

var scheduleTable = []ScheduleRow{
	{ScheduleInvalid, false, true, "{detail}"},
	{ScheduleNoMachine, false, true, "there is no {detail}: it is waited for"},
	{ScheduleTooMany, false, true, "the selector selects {detail}, and only the first of them by name are looked at: use several schedules"},
	{ScheduleSuspended, true, false, "suspended: nothing is made: {detail}"},
	{SchedulePrevious, false, true, "the next one is due and waits, because the one before has not ended: {detail}"},
	{ScheduleGoingOn, true, false, "it is being made: {detail}"},
	{ScheduleTaken, false, true, "nothing is made, because {detail} exists and was not made by this schedule: delete it"},
	{ScheduleFailed, false, true, "the last one failed: {detail}"},
	{ScheduleOverdue, false, true, "the last good one is too old: {detail}"},
	{ScheduleWaiting, true, false, "nothing was made yet: {detail}"},
	{ScheduleGood, true, false, "the last one is good: {detail}"},
	{ScheduleRemoving, true, false, "old backups are being removed: {detail}"},
	{ScheduleNotRemoved, false, true, "old backups were not removed, which is tried again: {detail}"},
}

// OfSchedule returns the row a reason stands for; a reason without one is shown, not hidden.
func OfSchedule(r ScheduleReason) ScheduleRow {
	for _, row := range scheduleTable {
		if row.Reason == r {
			return row
		}
	}
	return ScheduleRow{Reason: r, Warn: true, Message: "{detail}"}
}

// Text returns the message with its blank filled in.
func (r ScheduleRow) Text(detail string) string {
	if detail == "" {
		return strings.ReplaceAll(r.Message, ": {detail}", "")
	}
	return strings.ReplaceAll(r.Message, "{detail}", detail)
}

// ScheduleRows returns the whole table.
func ScheduleRows() []ScheduleRow { return append([]ScheduleRow(nil), scheduleTable...) }
