package state

import "strings"

// CloneReason names a row of the table about clones of machines.
type CloneReason string

// The states of a clone of a machine. Reasons that upstream has events for have their names.
const (
	CloneNoSource       CloneReason = "SourceDoesNotExist"
	CloneSnapshotting   CloneReason = "SnapshotCreated"
	CloneSnapshotFailed CloneReason = "SnapshotFailed"
	ClonePartial        CloneReason = "SnapshotContentInvalid"
	CloneRestoring      CloneReason = "RestoreCreated"
	CloneCreating       CloneReason = "RestoreReady"
	CloneRestoreFailed  CloneReason = "RestoreFailed"
	CloneWrong          CloneReason = "RestoreCreationFailed"
	CloneTargetExists   CloneReason = "TargetExists"
	CloneTargetLost     CloneReason = "TargetDeleted"
	CloneNameTaken      CloneReason = "NameTaken"
	CloneDone           CloneReason = "TargetVMCreated"
	CloneFailed         CloneReason = "CloneFailed"
)

// CloneRow is one of the states that are reported about a clone of a machine.
type CloneRow struct {
	Reason  CloneReason
	Phase   string
	End     End
	Warn    bool
	Message string // {detail} is the source, the target, or what the snapshot or the restore says
}

var cloneTable = []CloneRow{
	{Reason: CloneNoSource, Warn: true, Message: "waiting for the source of the clone, which does not exist: {detail}"},
	{Reason: CloneSnapshotting, Phase: "SnapshotInProgress", Message: "waiting for the snapshot that the clone is made from: {detail}"},
	{Reason: CloneSnapshotFailed, Phase: "Failed", End: Badly, Warn: true, Message: "the snapshot that the clone is made from failed: {detail}"},
	{Reason: ClonePartial, Phase: "Failed", End: Badly, Warn: true, Message: "the snapshot has not every disk of the machine, so the clone would share disks with it: {detail}"},
	{Reason: CloneWrong, Phase: "Failed", End: Badly, Warn: true, Message: "the clone cannot be made as it is asked for: {detail}"},
	{Reason: CloneRestoring, Phase: "RestoreInProgress", Message: "the target is made from the snapshot: {detail}"},
	{Reason: CloneCreating, Phase: "CreatingTargetVM", Message: "the target is made and gets its disks: {detail}"},
	{Reason: CloneRestoreFailed, Phase: "Failed", End: Badly, Warn: true, Message: "the target could not be made from the snapshot: {detail}"},
	{Reason: CloneTargetExists, Phase: "Failed", End: Badly, Warn: true, Message: "a machine of the target's name exists and is left alone; name one that does not exist: {detail}"},
	{Reason: CloneTargetLost, Phase: "Failed", End: Badly, Warn: true, Message: "the target, or what makes it, was deleted before it was complete: {detail}"},
	{Reason: CloneNameTaken, Phase: "Failed", End: Badly, Warn: true, Message: "something that is not the clone's has the name that it needs: {detail}"},
	{Reason: CloneDone, Phase: "Succeeded", End: Well, Message: "the target is there, with disks of its own, and stopped: {detail}"},
	{Reason: CloneFailed, Phase: "Failed", End: Badly, Warn: true, Message: "the clone failed: {detail}"},
}

// OfClone returns the row a reason stands for; a reason without one is shown, not hidden.
func OfClone(r CloneReason) CloneRow {
	for _, row := range cloneTable {
		if row.Reason == r {
			return row
		}
	}
	return CloneRow{Reason: r, Warn: true, Message: "{detail}"}
}

// Text returns the message with its blank filled in.
func (r CloneRow) Text(detail string) string {
	if detail == "" {
		return strings.ReplaceAll(r.Message, ": {detail}", "")
	}
	return strings.ReplaceAll(r.Message, "{detail}", detail)
}

// CloneRows returns the whole table.
func CloneRows() []CloneRow { return append([]CloneRow(nil), cloneTable...) }
