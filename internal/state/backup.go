package state

import "strings"

// BackupReason names a row of the table about backups of machines.
type BackupReason string

// The states of a backup. BackupOver changes nothing: the backup has ended, and its status stays as it is.
const (
	BackupOver        BackupReason = ""
	BackupNoTracker   BackupReason = "TrackerMissing"
	BackupNoMachine   BackupReason = "SourceMissing"
	BackupUnread      BackupReason = "SourceUnready"
	BackupSourceInUse BackupReason = "SourceInUse"
	BackupUnsteady    BackupReason = "SourceUnsteady"
	BackupNothing     BackupReason = "NothingToBackUp"
	BackupNoClaim     BackupReason = "TargetMissing"
	BackupUnfit       BackupReason = "TargetUnfit"
	BackupTargetInUse BackupReason = "TargetInUse"
	BackupTurn        BackupReason = "WaitsForTurn"
	BackupHolding     BackupReason = "HoldingDisks"
	BackupReading     BackupReason = "ReadingClaims"
	BackupStarting    BackupReason = "WorkerStarting"
	BackupWriting     BackupReason = "Writing"
	BackupDone        BackupReason = "BackupCompleted"
	BackupFailed      BackupReason = "BackupFailed"
	BackupLate        BackupReason = "WorkerDidNotStart"
	BackupTargetLost  BackupReason = "TargetLost"
	BackupSourceLost  BackupReason = "SourceLost"
	BackupAborting    BackupReason = "Aborting"
	BackupPreparing   BackupReason = "PreparingExport"
	BackupServing     BackupReason = "ExportReady"
	BackupOvertaken   BackupReason = "SourceStarted"
	BackupExpired     BackupReason = "TimeIsUp"
	BackupServerLost  BackupReason = "ServerLost"
)

// BackupHoldsDisks is said of a volume that waits until a backup has read the guest's disks.
const BackupHoldsDisks = "a backup reads the disks of the guest, which stay as they are meanwhile: this disk is added or removed when the backup has ended, or is deleted"

// BackupRow is one of the states that are reported about a backup.
type BackupRow struct {
	Reason BackupReason
	// Condition is the one that becomes true, and Upstream its reason, as clients of backup.kubevirt.io know them.
	Condition, Upstream string
	Warn                bool
	Message             string // {detail} is the source, the claim, what a program says, or what was written
}

// The conditions of a backup, of which one is true.
const (
	progressing = "Progressing"
	complete    = "Complete"
	failed      = "Failed"
)

var backupTable = []BackupRow{
	{BackupNoTracker, progressing, "Initializing", true, "there is no {detail}: it is waited for"},
	{BackupNoMachine, progressing, "Initializing", true, "there is no {detail}: it is waited for"},
	{BackupUnread, progressing, "Initializing", true, "the machine does not run, and a disk of it cannot be read: {detail}"},
	{BackupSourceInUse, progressing, "Initializing", false, "the machine does not run, and another pod may write to a disk of it: {detail}"},
	{BackupUnsteady, progressing, "Initializing", false, "waiting until the guest runs and stays where it is: {detail}"},
	{BackupNothing, failed, "Failed", true, "there is nothing to back up: {detail} has no disk in a claim of its own"},
	{BackupNoClaim, progressing, "Initializing", true, "there is no {detail}: it is waited for"},
	{BackupUnfit, failed, "Failed", true, "backups cannot be written into {detail}: use a claim with volumeMode Filesystem that can be written to"},
	{BackupTargetInUse, progressing, "Initializing", false, "waiting for the claim: {detail}"},
	{BackupTurn, progressing, "Initializing", false, "a machine is backed up once at a time: waiting for backup {detail}"},
	{BackupHolding, progressing, "Initiated", false, "the launcher holds the disks as they are now: {detail}"},
	{BackupReading, progressing, "Initiated", false, "the machine does not run; a worker reads its disks from the claims"},
	{BackupStarting, progressing, "Initiated", false, "waiting for the worker that writes the backup: {detail}"},
	{BackupWriting, progressing, "Initiated", false, "the backup is being written: {detail}"},
	{BackupDone, complete, "Completed", false, "the backup is complete: {detail}"},
	{BackupFailed, failed, "Failed", true, "the backup failed: {detail}; backups before it are as they were"},
	{BackupLate, failed, "Failed", true, "the backup failed: its worker did not start for ten minutes: {detail}"},
	{BackupTargetLost, failed, "Failed", true, "the backup failed: {detail} was deleted"},
	{BackupSourceLost, failed, "SourceLost", true, "the backup failed: the guest stopped or moved before it was complete: {detail}; backups before it are as they were"},
	{BackupPreparing, progressing, "PreparingExport", false, "waiting for the server of the disks: {detail}"},
	{BackupServing, progressing, "ExportReady", false, "the disks can be fetched at the addresses in status.includedVolumes: {detail}"},
	{BackupOvertaken, failed, "SourceLost", true, "the backup failed: the machine was started while its disks were read from their claims; make another backup"},
	{BackupServerLost, failed, "Failed", true, "the backup failed: the pod that served the disks was deleted or killed before everything was fetched; make another backup"},
	{BackupExpired, failed, "Failed", true, "the backup ended after {detail} (ttlDuration), before everything was fetched; the next one has what changed since the last that was fetched"},
	{BackupAborting, progressing, "Aborting", false, "the backup is being deleted: the launcher gives the disks back: {detail}"},
}

// OfBackup returns the row a reason stands for; a reason without one is shown, not hidden.
func OfBackup(r BackupReason) BackupRow {
	for _, row := range backupTable {
		if row.Reason == r {
			return row
		}
	}
	return BackupRow{Reason: r, Condition: progressing, Upstream: "Initializing", Warn: true, Message: "{detail}"}
}

// Ends reports whether the row is the last state of a backup.
func (r BackupRow) Ends() bool { return r.Condition != progressing }

// Text returns the message with its blank filled in.
func (r BackupRow) Text(detail string) string {
	if detail == "" {
		return strings.ReplaceAll(r.Message, ": {detail}", "")
	}
	return strings.ReplaceAll(r.Message, "{detail}", detail)
}

// BackupRows returns the whole table.
func BackupRows() []BackupRow { return append([]BackupRow(nil), backupTable...) }
