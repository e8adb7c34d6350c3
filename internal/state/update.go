package state

import "strings"

// UpdateReason names a row of the table about running machines whose volumes were changed to other claims.
type UpdateReason string

// What can be said about them.
const (
	UpdateMoving    UpdateReason = "VolumesMigrating"
	UpdateResting   UpdateReason = "VolumesMigrationRetries"
	UpdateStarting  UpdateReason = "VolumesWaitForGuest"
	UpdateFixed     UpdateReason = "VolumesCannotMigrate"
	UpdateRefused   UpdateReason = "VolumesNotMigratable"
	UpdateAtRestart UpdateReason = "VolumesUpdateNeedsRestart"
	TemplateChanged UpdateReason = "RestartRequired"
)

// UpdateRow is one of the states that are reported.
type UpdateRow struct {
	Reason UpdateReason
	// Restart: only a restart brings it about.
	Restart bool
	// Message: {detail} is the migration, the volumes, or what is in the way.
	Message string
}

// The first words of what is refused are upstream's.
var updateTable = []UpdateRow{
	{Reason: UpdateMoving, Message: "the disks of changed volumes are sent into their new claims: {detail}"},
	{Reason: UpdateResting, Message: "the disks of changed volumes could not be sent into their new claims; it is tried again: {detail}"},
	{Reason: UpdateStarting, Message: "the disks of changed volumes are sent into their new claims when the guest runs: {detail}"},
	{Reason: UpdateFixed, Restart: true, Message: "the disks of changed volumes are to be sent into their new claims, and the guest cannot be moved: {detail}"},
	{Reason: UpdateRefused, Restart: true, Message: "invalid volumes to update with migration: {detail}"},
	{Reason: UpdateAtRestart, Restart: true, Message: "the machine uses the volumes that were changed from its next start on, with what is on them then: {detail}; " +
		"virtctl restart, or set updateVolumesStrategy to Migration to have its disks sent there while it runs"},
	{Reason: TemplateChanged, Restart: true, Message: "a non-live-updatable field was changed in the template spec: {detail}; " +
		"restart the machine (virtctl restart) to apply it, or change it back"},
}

// OfUpdate returns the row a reason stands for; a reason without one is shown, not hidden.
func OfUpdate(r UpdateReason) UpdateRow {
	for _, row := range updateTable {
		if row.Reason == r {
			return row
		}
	}
	return UpdateRow{Reason: r, Message: string(r)}
}

// Text returns the row's message.
func (r UpdateRow) Text(detail string) string {
	return strings.ReplaceAll(r.Message, "{detail}", detail)
}

// UpdateRows returns all that can be said about changed volumes.
func UpdateRows() []UpdateRow { return append([]UpdateRow(nil), updateTable...) }

// UpdateCause is why the disk of a volume cannot be sent into another claim.
type UpdateCause string

// The causes.
const (
	UpdateMissing  UpdateCause = "no claim"
	UpdateFilling  UpdateCause = "claim that is being filled"
	UpdateUsed     UpdateCause = "claim in use"
	UpdateTwice    UpdateCause = "claim of another volume"
	UpdateSmaller  UpdateCause = "smaller claim"
	UpdateMode     UpdateCause = "claim of another mode"
	UpdateAdded    UpdateCause = "added disk"
	UpdateShared   UpdateCause = "shared disk"
	UpdateDrive    UpdateCause = "LUN or CD-ROM"
	UpdateCopied   UpdateCause = "copy"
	UpdateDirect   UpdateCause = "disk without a mount"
	UpdateReplaced UpdateCause = "disk that has moved"
	UpdateClosed   UpdateCause = "claim on a node that is being emptied"
)

// UpdateCauseRow is one reason.
type UpdateCauseRow struct {
	Cause UpdateCause
	// Message: {disk} is the volume, {claim} the claim that it will be in, {detail} further information.
	Message string
}

var updateCauses = []UpdateCauseRow{
	{UpdateMissing, "volume {disk} is to be in PersistentVolumeClaim {claim}, which is not there: make it"},
	{UpdateFilling, "volume {disk} is to be in PersistentVolumeClaim {claim}, which is being filled: wait ({detail})"},
	{UpdateClosed, "volume {disk} is to be in PersistentVolumeClaim {claim}, whose volume is on {detail} alone, which is being emptied or takes no pods: " +
		"let it take pods again (kubectl uncordon), or use a claim on another node"},
	{UpdateUsed, "volume {disk} is to be in PersistentVolumeClaim {claim}, which {detail} has: stop it, or use another claim"},
	{UpdateTwice, "volume {disk} is to be in PersistentVolumeClaim {claim}, which volume {detail} of the machine is in: use another claim"},
	{UpdateSmaller, "volume {disk} is to be in PersistentVolumeClaim {claim}, which is smaller than the one that it is in ({detail}): use a larger one"},
	{UpdateMode, "volume {disk} is to be in PersistentVolumeClaim {claim}, and one of the two has a filesystem and the other is a device ({detail}): use one with the same volumeMode"},
	{UpdateAdded, "volume {disk} was added while the machine runs: remove it (virtctl removevolume), or restart the machine"},
	{UpdateShared, "volume {disk} is shared with other machines, or only read: stop them and this one, and copy it"},
	{UpdateDrive, "volume {disk} is a LUN or a CD-ROM, whose data is not the guest's to be sent: restart the machine"},
	{UpdateCopied, "volume {disk} is a copy of its claim, which every start makes again: restart the machine"},
	{UpdateDirect, "volume {disk}, or the claim that it is to be in, is opened without a mount: restart the machine"},
	{UpdateReplaced, "volume {disk} has followed its guest to another node, and its claim gets its data when the machine stops: restart the machine, and then change the volume"},
}

// OfUpdateCause returns what a cause stands for, about one volume.
func OfUpdateCause(c UpdateCause, disk, claim, detail string) string {
	for _, row := range updateCauses {
		if row.Cause == c {
			return strings.NewReplacer("{disk}", disk, "{claim}", claim, "{detail}", detail).Replace(row.Message)
		}
	}
	return string(c)
}

// UpdateCauseRows returns all causes.
func UpdateCauseRows() []UpdateCauseRow { return append([]UpdateCauseRow(nil), updateCauses...) }
