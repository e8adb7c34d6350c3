package state

import "strings"

// SnapshotReason names a row of the table about snapshots of machines and their return.
type SnapshotReason string

// The states of a snapshot or a restore.
const (
	SnapshotNoMachine SnapshotReason = "SourceMissing"
	SnapshotUnsteady  SnapshotReason = "SourceUnsteady"
	SnapshotNothing   SnapshotReason = "NothingToSnapshot"
	SnapshotBegun     SnapshotReason = "Begun"
	SnapshotCutting   SnapshotReason = "Cutting"
	SnapshotStoring   SnapshotReason = "Storing"
	SnapshotDone      SnapshotReason = "OperationComplete"
	SnapshotFailed    SnapshotReason = "OperationFailed"
	SnapshotLost      SnapshotReason = "PartsDeleted"

	RestoreWaiting   SnapshotReason = "SnapshotNotReady"
	RestoreMachine   SnapshotReason = "MakingTarget"
	RestoreTaken     SnapshotReason = "TargetExists"
	RestoreQueued    SnapshotReason = "AnotherRestore"
	RestoreStopping  SnapshotReason = "TargetRunning"
	RestoreRefused   SnapshotReason = "TargetNotStopped"
	RestoreStaging   SnapshotReason = "MakingVolumes"
	RestoreBlocked   SnapshotReason = "VolumesNotMade"
	RestoreInUse     SnapshotReason = "ClaimsInUse"
	RestoreReplacing SnapshotReason = "ReplacingClaims"
	RestoreStuck     SnapshotReason = "ClaimsNotReplaced"
	RestoreMaking    SnapshotReason = "MakingClaims"
	RestoreDone      SnapshotReason = "RestoreComplete"
	RestoreFailed    SnapshotReason = "RestoreFailed"
	RestoreWithdrawn SnapshotReason = "RestoreWithdrawn"
)

// End says how an operation has ended.
type End int

// The ends.
const (
	GoingOn End = iota
	Well
	Badly
)

// SnapshotRow is one of the states that are reported about a snapshot or a restore.
type SnapshotRow struct {
	Reason  SnapshotReason
	Event   string // the reason of its event, where upstream has another word for it; empty: Reason
	End     End
	Warn    bool
	Message string // {detail} is the volume, the storage's own words or the machine
}

var snapshotTable = []SnapshotRow{
	{Reason: SnapshotNoMachine, Warn: true, Message: "the machine does not exist: {detail}"},
	{Reason: SnapshotUnsteady, Message: "waiting for the machine to run or to have stopped: {detail}"},
	{Reason: SnapshotNothing, Warn: true, Message: "no volume of the machine can have a snapshot: {detail}"},
	{Reason: SnapshotBegun, Message: "the machine and its claims are written down"},
	{Reason: SnapshotCutting, Message: "snapshots of its volumes are being taken: {detail}"},
	{Reason: SnapshotStoring, Message: "snapshots of its volumes are taken and being stored: {detail}"},
	{Reason: SnapshotDone, End: Well, Message: "the snapshot is complete"},
	{Reason: SnapshotFailed, End: Badly, Warn: true, Message: "the snapshot could not be taken: {detail}"},
	{Reason: SnapshotLost, Event: "VolumeSnapshotMissing", End: Badly, Warn: true, Message: "parts of the snapshot were deleted: {detail}"},

	{Reason: RestoreWaiting, Message: "waiting for the snapshot: {detail}"},
	{Reason: RestoreMachine, Message: "the machine is made from the snapshot, stopped: {detail}"},
	{Reason: RestoreTaken, Event: "VirtualMachineRestoreError", End: Badly, Warn: true,
		Message: "the machine exists and the snapshot is of another; name one that does not exist, or delete it and restore again: {detail}"},
	{Reason: RestoreStopping, Message: "waiting for the machine to stop: {detail}"},
	{Reason: RestoreRefused, Event: "VirtualMachineRestoreError", End: Badly, Warn: true,
		Message: "the machine runs; stop it and restore again, or set targetReadinessPolicy to StopTarget: {detail}"},
	{Reason: RestoreQueued, Message: "waiting for another restore of the machine to end: {detail}"},
	{Reason: RestoreStaging, Message: "volumes are made from the snapshot, and the machine keeps its disks until all are there: {detail}"},
	{Reason: RestoreBlocked, Event: "VirtualMachineRestoreError", Warn: true,
		Message: "a volume cannot be made from the snapshot, and the machine keeps its disks; mend it, or delete the restore to withdraw it: {detail}"},
	{Reason: RestoreInUse, Warn: true, Message: "waiting until nobody uses the claims that are to be replaced: {detail}"},
	{Reason: RestoreReplacing, Message: "all volumes are there and get the names of the machine's claims: {detail}"},
	{Reason: RestoreStuck, Warn: true, Message: "the machine's claims cannot all be replaced yet: {detail}"},
	{Reason: RestoreMaking, Message: "claims are made from the snapshot: {detail}"},
	{Reason: RestoreDone, Event: "VirtualMachineRestoreComplete", End: Well, Message: "the machine and its claims are what they were when the snapshot was taken"},
	{Reason: RestoreFailed, Event: "VirtualMachineRestoreError", End: Badly, Warn: true, Message: "the snapshot cannot be put back: {detail}"},
	{Reason: RestoreWithdrawn, Message: "the restore is withdrawn: the machine has the disks that it had"},
}

// OfSnapshot returns the row a reason stands for; a reason without one is shown, not hidden.
func OfSnapshot(r SnapshotReason) SnapshotRow {
	for _, row := range snapshotTable {
		if row.Reason == r {
			return row
		}
	}
	return SnapshotRow{Reason: r, Warn: true, Message: "{detail}"}
}

// Text returns the message with its blank filled in.
func (r SnapshotRow) Text(detail string) string {
	if detail == "" {
		return strings.ReplaceAll(r.Message, ": {detail}", "")
	}
	return strings.ReplaceAll(r.Message, "{detail}", detail)
}

// SnapshotRows returns the whole table.
func SnapshotRows() []SnapshotRow { return append([]SnapshotRow(nil), snapshotTable...) }
