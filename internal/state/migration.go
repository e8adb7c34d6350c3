package state

import (
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// MigrationReason names a row of the table about migrations.
type MigrationReason string

// The states of a migration.
const (
	MigrationQueued       MigrationReason = "AnotherMigration"
	MigrationPlacing      MigrationReason = "TargetPlacing"
	MigrationUnplaceable  MigrationReason = "TargetUnschedulable"
	MigrationUnplaced     MigrationReason = "TargetNeverScheduled"
	MigrationPlaced       MigrationReason = "TargetPlaced"
	MigrationPreparing    MigrationReason = "TargetPreparing"
	MigrationReady        MigrationReason = "TargetReady"
	MigrationSending      MigrationReason = "Sending"
	MigrationHanding      MigrationReason = "HandingOver"
	MigrationNaming       MigrationReason = "ClaimsFollow"
	MigrationAborting     MigrationReason = "Aborting"
	MigrationDone         MigrationReason = "Moved"
	MigrationNoGuest      MigrationReason = "NotRunning"
	MigrationRefused      MigrationReason = "NotLiveMigratable"
	MigrationKept         MigrationReason = "SourceKeptGuest"
	MigrationTargetFailed MigrationReason = "TargetFailed"
	MigrationLost         MigrationReason = "TargetLost"
	MigrationAborted      MigrationReason = "Aborted"
	MigrationCopying      MigrationReason = "Copying"
	MigrationCopied       MigrationReason = "Copied"
	MigrationStarted      MigrationReason = "NotStopped"
	MigrationImmovable    MigrationReason = "NotMovable"
	MigrationWritten      MigrationReason = "DisksChanged"
)

// MigrationRow is one of the states that are reported about a migration.
type MigrationRow struct {
	Reason  MigrationReason
	Phase   kubevirt.MigrationPhase
	Warn    bool
	Message string // {detail} is the pods and their nodes, or their own words
}

var migrationTable = []MigrationRow{
	{Reason: MigrationQueued, Phase: kubevirt.MigrationPending, Message: "it waits for its turn: {detail}"},
	{Reason: MigrationPlacing, Phase: kubevirt.MigrationScheduling, Message: "a node for it is being looked for: {detail}"},
	{Reason: MigrationUnplaceable, Phase: kubevirt.MigrationScheduling, Warn: true,
		Message: "no other node can run the machine; make room on one, or delete the migration: {detail}"},
	{Reason: MigrationUnplaced, Phase: kubevirt.MigrationFailed, Warn: true,
		Message: "no other node could run the machine for five minutes, and it stays where it was; make room on one, and migrate again: {detail}"},
	{Reason: MigrationPlaced, Phase: kubevirt.MigrationScheduled, Message: "it has a node: {detail}"},
	{Reason: MigrationPreparing, Phase: kubevirt.MigrationPreparingTarget, Message: "the new node gets ready for the guest: {detail}"},
	{Reason: MigrationReady, Phase: kubevirt.MigrationTargetReady, Message: "the guest is about to be sent: {detail}"},
	{Reason: MigrationSending, Phase: kubevirt.MigrationRunning, Message: "the guest is being sent: {detail}"},
	{Reason: MigrationHanding, Phase: kubevirt.MigrationRunning, Message: "the guest has left its old node and is about to go on: {detail}"},
	{Reason: MigrationNaming, Phase: kubevirt.MigrationRunning,
		Message: "the guest runs on its new node, and its claims get the volumes that have its data: {detail}"},
	{Reason: MigrationAborting, Phase: kubevirt.MigrationRunning, Message: "it is being cancelled: {detail}"},
	{Reason: MigrationDone, Phase: kubevirt.MigrationSucceeded, Message: "the guest has moved: {detail}"},
	{Reason: MigrationNoGuest, Phase: kubevirt.MigrationFailed, Warn: true, Message: "there is no guest that could be moved; start the machine, or wait until it runs: {detail}"},
	{Reason: MigrationRefused, Phase: kubevirt.MigrationFailed, Warn: true, Message: "the machine cannot be moved while it runs: {detail}"},
	{Reason: MigrationKept, Phase: kubevirt.MigrationFailed, Warn: true, Message: "the guest could not be sent and runs where it was: {detail}"},
	{Reason: MigrationTargetFailed, Phase: kubevirt.MigrationFailed, Warn: true, Message: "the new node could not take the guest, which runs where it was: {detail}"},
	{Reason: MigrationLost, Phase: kubevirt.MigrationFailed, Warn: true,
		Message: "the guest had left its old node when the launcher on the new one ended; the machine is started again as after a crash: {detail}"},
	{Reason: MigrationCopying, Phase: kubevirt.MigrationRunning, Message: "the disks of the stopped machine are being copied to another node: {detail}"},
	{Reason: MigrationCopied, Phase: kubevirt.MigrationSucceeded, Message: "the disks of the stopped machine are on another node: {detail}"},
	{Reason: MigrationStarted, Phase: kubevirt.MigrationFailed, Warn: true,
		Message: "the machine was started before its disks could be copied, and nothing was moved; stop it, or move it as it runs: {detail}"},
	{Reason: MigrationImmovable, Phase: kubevirt.MigrationFailed, Warn: true, Message: "the disks of the stopped machine cannot be moved: {detail}"},
	{Reason: MigrationWritten, Phase: kubevirt.MigrationFailed, Warn: true,
		Message: "the disks of the stopped machine changed while they were copied, and stay where they were; move it again when the pod has ended: {detail}"},
	{Reason: MigrationAborted, Phase: kubevirt.MigrationFailed, Message: "it was cancelled, and the guest was not moved: {detail}"},
}

// OfMigration returns the row a reason stands for; a reason without one is shown, not hidden.
func OfMigration(r MigrationReason) MigrationRow {
	for _, row := range migrationTable {
		if row.Reason == r {
			return row
		}
	}
	return MigrationRow{Reason: r, Warn: true, Phase: kubevirt.MigrationPending, Message: string(r) + " {detail}"}
}

// Text returns the row's message for one migration.
func (r MigrationRow) Text(detail string) string {
	text := strings.ReplaceAll(r.Message, "{detail}", detail)
	if detail == "" {
		text = strings.TrimSuffix(text, ": ")
	}
	return text
}

// MigrationRows returns all that can be said about a migration.
func MigrationRows() []MigrationRow { return append([]MigrationRow(nil), migrationTable...) }
