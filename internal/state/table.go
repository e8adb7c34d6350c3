package state

import (
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
)

//go:generate go run ./gen ../../docs/reference/states.md

// Reasons that do not depend on how the volume is filled. Their words are the ones CDI's clients know wherever CDI has
// the state at all.
const (
	ClaimCreated    Reason = "Pending"
	ClaimUnbound    Reason = "ClaimPending"
	ClaimAwaited    Reason = "ClaimAwaited"
	ClaimLeaving    Reason = "ErrResourceMarkedForDeletion"
	ClaimFollows    Reason = "ClaimFollows"
	ClaimInTheWay   Reason = "ErrResourceExists"
	ClaimUnusable   Reason = "ErrIncompatiblePVC"
	ClaimIncomplete Reason = "ErrClaimNotValid"
	ClaimVanished   Reason = "ErrClaimLost"
	QuotaExceeded   Reason = "ErrExceededQuota"
	WorkerRefused   Reason = "ErrStartingPod"
	Held            Reason = "WaitForFirstConsumer"
	Populated       Reason = "ExternalPopulationSucceeded"
	Populating      Reason = "ExternalPopulationInProgress"
	Unsupported     Reason = "UnsupportedSource"
	PrePopulated    Reason = "PrePopulated"
	ContentsUnknown Reason = "ErrContentsUnknown"
	ClaimInUse      Reason = "ClaimInUse"
	ImportPaused    Reason = "ImportPaused"
)

// Reasons of clones alone.
const (
	SourceMissing    Reason = "CloneWithoutSource"
	SourceUnfilled   Reason = "CloneSourceNotReady"
	SourceBusy       Reason = "CloneSourceInUse"
	SourceRefused    Reason = "CloneValidationFailed"
	SourceForbidden  Reason = "CloneNotAuthorized"
	SnapshotTaking   Reason = "SnapshotForSmartCloneInProgress"
	SnapshotRestored Reason = "CloneFromSnapshotSourceInProgress"
	CSICloning       Reason = "CSICloneInProgress"
)

// Stage is a step every transfer goes through; each flow has its own reason and phase for it.
type Stage string

// The stages of a transfer.
const (
	Scheduled   Stage = "Scheduled"
	Unplaceable Stage = "WorkerUnschedulable"
	Unfetchable Stage = "WorkerImageMissing"
	WorkerGoing Stage = "WorkerLeaving"
	CutOff      Stage = "WorkerUnreachable"
	InProgress  Stage = "InProgress"
	Retrying    Stage = "Retrying"
	GivenUp     Stage = "Failed"
	Succeeded   Stage = "Succeeded"
)

// Flow is the way in which a volume is filled, for the texts about it.
type Flow string

// The flows that use workers.
const (
	Import Flow = "Import"
	Upload Flow = "Upload"
	Clone  Flow = "Clone"
)

// Reason returns the flow's reason for a stage.
func (f Flow) Reason(s Stage) Reason {
	if f == Upload && s == InProgress {
		return "UploadReady"
	}
	return Reason(string(f) + string(s))
}

var table = concat(
	[]Row{
		{Reason: ClaimCreated, Phase: cdiv1.Pending, Message: "PVC {claim} is being created"},
		{Reason: ClaimUnbound, Phase: cdiv1.Pending,
			Message: "PVC {claim} is not bound yet: no volume has been provisioned for it; {detail}"},
		{Reason: ClaimAwaited, Phase: cdiv1.Pending, Bound: NotFound,
			Message: "PVC {claim} is said to hold the data already, but it does not exist; restore it"},
		{Reason: ClaimLeaving, Phase: cdiv1.Pending, Warn: true,
			Message: "PVC {claim} is being deleted; it is made again and filled again once it is gone; {detail}"},
		{Reason: ClaimFollows, Phase: cdiv1.Pending,
			Message: "PVC {claim} gets the volume that has its data since its machine moved to another node; nothing is filled again"},
		{Reason: ClaimInTheWay, Phase: cdiv1.Pending, Warn: true,
			Message: "PVC {claim} exists and is not managed by this DataVolume; delete it, rename the DataVolume, or " +
				"allow adoption with the annotation cdi.kubevirt.io/allowClaimAdoption"},
		{Reason: ClaimUnusable, Phase: cdiv1.Pending, Warn: true, Message: "PVC {claim} cannot be used: {detail}"},
		{Reason: ClaimIncomplete, Phase: cdiv1.Pending, Warn: true, Bound: ClaimNotValid, Message: "{detail}"},
		{Reason: ClaimVanished, Phase: cdiv1.Failed, Warn: true, Bound: ClaimLost, Run: Broken,
			Message: "PVC {claim} lost: its volume is gone; delete the DataVolume and create it again"},
		{Reason: QuotaExceeded, Phase: cdiv1.Pending, Warn: true, Bound: ExceededQuota,
			Message: "{detail}; tried again as soon as the quota changes"},
		{Reason: WorkerRefused, Phase: cdiv1.Pending, Warn: true, Run: Broken,
			Message: "the worker for PVC {claim} was refused: {detail}; tried again"},
		{Reason: Unsupported, Phase: cdiv1.Failed, Warn: true, Run: Broken, Message: "{detail}"},
		{Reason: Held, Phase: cdiv1.WaitForFirstConsumer,
			Message: "PVC {claim} waits for its first consumer: start the VM or any pod that uses it, or set the " +
				"annotation cdi.kubevirt.io/storage.bind.immediate.requested on the DataVolume"},
		{Reason: Populating, Phase: cdiv1.PendingPopulation,
			Message: "PVC {claim} is filled by another populator, which binds it when it is done"},
		{Reason: Populated, Phase: cdiv1.Succeeded, Ready: true, Run: Completed,
			Message: "PVC {claim} filled by another populator"},
		{Reason: PrePopulated, Phase: cdiv1.Succeeded, Ready: true, Run: Completed,
			Message: "PVC {claim} holds its data already, so nothing was transferred"},
		{Reason: ClaimInUse, Phase: cdiv1.Pending, Warn: true,
			Message: "PVC {claim} is not written to while its disk is in use: {detail}; it is filled when that has ended"},
		{Reason: ImportPaused, Phase: cdiv1.Paused,
			Message: "Multistage import into PVC {claim} is paused: all stages so far are complete; add the next checkpoint, and finalCheckpoint with the last"},
		{Reason: ContentsUnknown, Phase: cdiv1.Pending, Warn: true, Message: "PVC {claim} is not written to: {detail}"},

		{Reason: SourceMissing, Phase: cdiv1.Pending, Warn: true, Bound: NoSource, Message: "The source {source} doesn't exist; {detail}"},
		{Reason: SourceUnfilled, Phase: cdiv1.Pending,
			Message: "The source {source} exists but cannot be cloned yet: {detail}; cloning starts when it is filled"},
		{Reason: SourceBusy, Phase: cdiv1.CloneScheduled, Warn: true,
			Message: "{source} is in use: {detail}; cloning starts when the pod ends"},
		{Reason: SourceRefused, Phase: cdiv1.Pending, Warn: true, Message: "{source} cannot be cloned: {detail}"},
		{Reason: SourceForbidden, Phase: cdiv1.Pending, Warn: true, Message: "{detail}"},
		{Reason: SnapshotTaking, Phase: cdiv1.SnapshotForSmartCloneInProgress, Run: Moving,
			Message: "Creating a snapshot of {source} for {claim}; {detail}"},
		{Reason: SnapshotRestored, Phase: cdiv1.CloneFromSnapshotSourceInProgress, Run: Moving,
			Message: "Creating {claim} from snapshot; {detail}"},
		{Reason: CSICloning, Phase: cdiv1.CSICloneInProgress, Run: Moving,
			Message: "CSI volume clone from {source} into {claim} in progress; {detail}"},
	},
	transfer(Import, cdiv1.ImportScheduled, cdiv1.ImportInProgress, words{
		Scheduled: "Import into {claim} scheduled; {detail}", InProgress: "Import into {claim} in progress; {detail}",
		Succeeded: "Successfully imported into PVC {claim}", GivenUp: "Failed to import into PVC {claim}: {detail}"}),
	transfer(Upload, cdiv1.UploadScheduled, cdiv1.UploadReady, words{
		Scheduled: "Upload into {claim} scheduled; {detail}", InProgress: "Upload into {claim} ready; {detail}",
		Succeeded: "Successfully uploaded into {claim}", GivenUp: "Upload into {claim} failed: {detail}"}),
	transfer(Clone, cdiv1.CloneScheduled, cdiv1.CloneInProgress, words{
		Scheduled:  "Cloning from {source} into {claim} scheduled; {detail}",
		InProgress: "Cloning from {source} into {claim} in progress; {detail}",
		Succeeded:  "Successfully cloned from {source} into {claim}",
		GivenUp:    "Cloning from {source} into {claim} failed: {detail}"}),
)

// failedTry is upstream's event for a failed attempt of any flow; our own event, which names the flow, is sent too.
const failedTry Reason = "Error"

// words are the messages in which the flows differ.
type words map[Stage]string

// transfer returns the rows of one flow: the same stages with the flow's own phases.
func transfer(f Flow, scheduled, moving cdiv1.DataVolumePhase, say words) []Row {
	between := moving // CDI's clients know a failing import as one in progress
	if f == Upload {
		between = scheduled // UploadReady would invite a client to send to a worker that is not there
	}
	return []Row{
		{Reason: f.Reason(Scheduled), Phase: scheduled, Message: say[Scheduled]},
		{Reason: f.Reason(Unplaceable), Phase: scheduled, Warn: true, Run: Unschedulable,
			Message: "the worker for PVC {claim} cannot be scheduled: {detail}"},
		{Reason: f.Reason(Unfetchable), Phase: scheduled, Warn: true, Run: Unpullable,
			Message: "the worker for PVC {claim} cannot start: {detail}"},
		{Reason: f.Reason(WorkerGoing), Phase: scheduled,
			Message: "the last worker for PVC {claim} is still ending; {detail}"},
		{Reason: f.Reason(CutOff), Phase: between, Warn: true,
			Message: "the worker for PVC {claim} cannot be reached: {detail}; it goes on when the node is back"},
		{Reason: f.Reason(InProgress), Phase: moving, Run: Moving, Message: say[InProgress]},
		{Reason: f.Reason(Retrying), Phase: between, Warn: true, Run: Broken, Told: failedTry, Message: "{detail}"},
		{Reason: f.Reason(GivenUp), Phase: cdiv1.Failed, Warn: true, Run: Broken, Told: failedTry, Message: say[GivenUp]},
		{Reason: f.Reason(Succeeded), Phase: cdiv1.Succeeded, Ready: true, Run: Completed, RunText: string(f) + " Complete",
			Message: say[Succeeded]},
	}
}

func concat(parts ...[]Row) []Row {
	var all []Row
	for _, p := range parts {
		all = append(all, p...)
	}
	return all
}
