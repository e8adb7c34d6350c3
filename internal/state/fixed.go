package state

import "strings"

// FixedReason names a row of the table of reasons why a running machine cannot be moved. The reasons are upstream's where it has them.
type FixedReason string

// Why it cannot.
const (
	FixedDisks    FixedReason = "DisksNotLiveMigratable"
	FixedLauncher FixedReason = "LauncherOutdated"
	FixedCPU      FixedReason = "CPUModeLiveMigrationNotSupported"
)

// FixedCause is the reason why a machine cannot move.
type FixedCause string

// The causes.
const (
	CauseLauncher FixedCause = "launcher"
	CauseCPU      FixedCause = "processor model"
	CauseCPUHost  FixedCause = "processor of the node"
	CauseHostDisk FixedCause = "host disk"
	CauseImage    FixedCause = "container image"
	CauseAdded    FixedCause = "added disk"
	CauseAdding   FixedCause = "disk that is being added"
	CauseKeeping  FixedCause = "copy that is being kept"
	CauseCopy     FixedCause = "copy"
	CauseRemoved  FixedCause = "removed disk"
	CauseEarly    FixedCause = "disk that was being imported"
	CauseUnlike   FixedCause = "other disks than the target"

	CauseAddedNetwork FixedCause = "added network disk"

	// Of claims that one node can have at a time, and that no other can be made for.
	CauseClaimCopied    FixedCause = "copy of a claim"
	CauseClaimShared    FixedCause = "shared claim"
	CauseClaimDrive     FixedCause = "claim in another drive"
	CauseClassMissing   FixedCause = "claim without a class"
	CauseClassStatic    FixedCause = "claim of a class without a provisioner"
	CauseClassImmediate FixedCause = "claim of a class that binds at once"
)

// FixedRow is one reason why a machine cannot be moved.
type FixedRow struct {
	Cause   FixedCause
	Reason  FixedReason
	Storage bool // it is about its storage
	// Message: {disk} is the disk, {detail} its claim or its mode.
	Message string
}

const instead = ": use a claim with access mode ReadWriteMany, or a network disk"

var fixedTable = []FixedRow{
	{CauseLauncher, FixedLauncher, false, "it was started by an earlier version of Berth; restart it once: virtctl restart"},
	{CauseCPU, FixedCPU, false, "no other node is labelled to have its CPU model, {detail}: use one that several nodes have"},
	{CauseCPUHost, FixedCPU, false, "its CPU model is host-passthrough, and no other node has the same processor ({detail}): use host-model, or a model that several nodes have"},
	{CauseHostDisk, FixedDisks, true, "disk {disk} is a file of its node, which no other node has: import it into a PersistentVolumeClaim and use that"},
	{CauseImage, FixedDisks, true, "disk {disk} is made of a container image on its node: restart the machine, which starts from its image again wherever there is room"},
	{CauseAdded, FixedDisks, true, "disk {disk} was added while the machine ran, by an earlier version of Berth: remove it (virtctl removevolume), or restart the machine"},
	{CauseAdding, FixedDisks, true, "disk {disk} is being added or removed: wait until the machine has it, or has it no longer"},
	{CauseAddedNetwork, FixedDisks, true, "disk {disk} is a network disk that was added while the machine ran: remove it (virtctl removevolume), or restart the machine"},
	{CauseKeeping, FixedDisks, true, "a copy is being kept in a claim ({disk}): wait until it is written"},
	{CauseEarly, FixedDisks, true, "disk {disk} was being imported when the machine was started: restart the machine when the import is done"},
	{CauseUnlike, FixedDisks, true, "disks were added or removed while the target was made ({detail}): migrate again"},
	{CauseCopy, FixedDisks, true, "disk {disk} is a copy of mode {detail} that has yet to get the rest of its master: the machine can move when it has all of it"},
	{CauseClaimCopied, FixedDisks, true, "disk {disk} is a copy of PersistentVolumeClaim {detail}, which one node can have at a time" + instead},
	{CauseClaimShared, FixedDisks, true, "disk {disk} is in PersistentVolumeClaim {detail}, which one node can have at a time, and is read or shared only" + instead},
	{CauseClaimDrive, FixedDisks, true, "disk {disk} is in PersistentVolumeClaim {detail}, which one node can have at a time, and is no plain disk" + instead},
	{CauseClassMissing, FixedDisks, true, "disk {disk} is in PersistentVolumeClaim {detail}, which one node can have at a time and whose StorageClass is not there to make another" + instead},
	{CauseClassStatic, FixedDisks, true, "disk {disk} is in {detail} makes no volumes" + instead},
	{CauseClassImmediate, FixedDisks, true, "disk {disk} is in {detail} makes volumes before it is known where: use one with volumeBindingMode WaitForFirstConsumer"},
	{CauseRemoved, FixedDisks, true, "disks that it was started with were removed since: restart it"},
}

// OfFixed returns the row of a cause.
func OfFixed(c FixedCause) FixedRow {
	for _, row := range fixedTable {
		if row.Cause == c {
			return row
		}
	}
	return FixedRow{Cause: c, Reason: FixedDisks, Message: string(c)}
}

// Text returns the row's message about one disk.
func (r FixedRow) Text(disk, detail string) string {
	return strings.ReplaceAll(strings.ReplaceAll(r.Message, "{disk}", disk), "{detail}", detail)
}

// FixedRows returns all reasons.
func FixedRows() []FixedRow { return append([]FixedRow(nil), fixedTable...) }
