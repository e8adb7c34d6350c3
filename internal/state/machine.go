package state

import (
	"strings"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// MachineReason names a row of the machine table.
type MachineReason string

// The states of a machine or its instance.
const (
	Halted              MachineReason = "Halted"
	Provisioning        MachineReason = "Provisioning"
	DiskMissing         MachineReason = "DiskMissing"
	DiskFailed          MachineReason = "DataVolumeError"
	DiskRetrying        MachineReason = "DataVolumeRetrying"
	DiskForbidden       MachineReason = "HostDiskForbidden"
	UsageTypeMissing    MachineReason = "UsageTypeMissing"
	DirectForbidden     MachineReason = "DirectForbidden"
	DirectImpossible    MachineReason = "DirectImpossible"
	DisksFilling        MachineReason = "NotAllDVsReady"
	DiskInUse           MachineReason = "DiskInUse"
	ConsumerPlacing     MachineReason = "WaitingForVolumeBinding"
	ConsumerUnplaceable MachineReason = "Unschedulable"
	HandingOver         MachineReason = "ConsumerBound"
	LauncherStarting    MachineReason = "GuestNotRunning"
	Cloning             MachineReason = "Cloning"
	LauncherUnplaceable MachineReason = "LauncherUnschedulable"
	LauncherLeaving     MachineReason = "PodTerminating"
	GuestRunning        MachineReason = "GuestRunning"
	GuestUnready        MachineReason = "GuestNotReady"
	GuestArriving       MachineReason = "GuestArriving"
	NodeAway            MachineReason = "NodeUnreachable"
	EndUnknown          MachineReason = "EndUnknown"
	NodeLost            MachineReason = "DataOnLostNode"
	GuestEnded          MachineReason = "GuestPoweredOff"
	GuestFailed         MachineReason = "GuestFailed"
	Stopping            MachineReason = "Stopping"
	Keeping             MachineReason = "KeepingDisk"
	Restarting          MachineReason = "Restarting"
	CrashLoop           MachineReason = "CrashLoopBackOff"
	Terminating         MachineReason = "Terminating"
	InstanceInTheWay    MachineReason = "FailedCreate"
	BeingRestored       MachineReason = "RestoreInProgress"
	ClaimTaken          MachineReason = "ClaimInTheWay"
	ClaimVague          MachineReason = "ClaimIncomplete"
	TypeMissing         MachineReason = "FailedFindInstancetype"
	PreferenceMissing   MachineReason = "FailedFindPreference"
	KindUnfit           MachineReason = "InstancetypeOrPreference"
	FieldsRefused       MachineReason = "FieldsNotSupported"
	GuestPaused         MachineReason = "GuestPaused"
	PausedByUser        MachineReason = "PausedByUser"
	// The server of a network disk. The words are those of launch.Fault.
	DiskUnreachable MachineReason = "DiskUnreachable"
	DiskDenied      MachineReason = "DiskDenied"
	DiskAbsent      MachineReason = "DiskAbsent"
	DiskRefused     MachineReason = "DiskRefused"
	DiskReadOnly    MachineReason = "DiskReadOnly"
	DiskUnsupported MachineReason = "DiskUnsupported"
	DiskFull        MachineReason = "DiskFull"
	DiskStalled     MachineReason = "DiskStalled"
	DiskCondemned   MachineReason = "DiskCondemned" // of one that is used while it is imported
	DiskSourceAway  MachineReason = "DiskSourceAway"
	// A volume that a container makes. They are the reasons of its record too.
	VolumeStarting   MachineReason = "VolumeContainerStarting"
	VolumeMaking     MachineReason = "VolumeBeingMade"
	VolumeMade       MachineReason = "VolumeMade"
	VolumeRefused    MachineReason = "VolumeRefused"
	VolumeForbidden  MachineReason = "VolumeContainerForbidden"
	VolumeInUse      MachineReason = "VolumeInUse"
	VolumeDeleting   MachineReason = "VolumeBeingDeleted"
	VolumeNotDeleted MachineReason = "VolumeNotDeleted"
	// AsInstance stands for whatever the instance says: a machine with an instance says the same.
	AsInstance MachineReason = "AsInstance"
)

// MachineRow is one of the states that are reported about a machine. Instance is the phase of its instance in that state, and
// empty if there is none.
type MachineRow struct {
	Reason   MachineReason
	Status   kubevirt.PrintableStatus
	Instance kubevirt.Phase
	Ready    bool
	Warn     bool
	Quiet    bool   // no event: what it waits for tells of itself
	Message  string // {detail} is the disk, the node, the scheduler's or the launcher's own words
	Failure  string // the reason of the machine's condition Failure, in the words that clients know; empty: it has no such condition
}

var machineTable = []MachineRow{
	{Reason: Halted, Status: kubevirt.StatusStopped, Message: "stopped; start it with: virtctl start {name}"},
	{Reason: Provisioning, Status: kubevirt.StatusProvisioning, Quiet: true, Message: "its disks and its instance are being made"},
	{Reason: DiskMissing, Status: kubevirt.StatusPvcNotFound, Instance: kubevirt.PhasePending, Warn: true,
		Message: "{detail}; create it, or take the volume out of the machine"},
	{Reason: DiskFailed, Status: kubevirt.StatusDataVolumeError, Instance: kubevirt.PhasePending, Warn: true, Message: "{detail}"},
	{Reason: DiskRetrying, Status: kubevirt.StatusDataVolumeError, Instance: kubevirt.PhasePending, Warn: true,
		Message: "one of its disks could not be filled so far: {detail}"},
	{Reason: DiskForbidden, Status: kubevirt.StatusDataVolumeError, Instance: kubevirt.PhasePending, Warn: true, Message: "{detail}"},
	{Reason: UsageTypeMissing, Status: kubevirt.StatusProvisioning, Instance: kubevirt.PhasePending, Warn: true, Message: "{detail}"},
	{Reason: DirectForbidden, Status: kubevirt.StatusDataVolumeError, Instance: kubevirt.PhasePending, Warn: true,
		Message: "a volume says direct: true and its administrator has not allowed that; leave direct out to have it mounted: {detail}"},
	{Reason: DirectImpossible, Status: kubevirt.StatusDataVolumeError, Instance: kubevirt.PhasePending, Warn: true,
		Message: "a volume says direct: true and QEMU cannot open what is behind its claim; leave direct out to have it mounted: {detail}"},
	{Reason: DisksFilling, Status: kubevirt.StatusProvisioning, Instance: kubevirt.PhasePending, Quiet: true, Message: "waiting for its disks: {detail}"},
	{Reason: DiskInUse, Status: kubevirt.StatusProvisioning, Instance: kubevirt.PhasePending, Warn: true,
		Message: "it starts when it can have its disks: {detail}"},
	{Reason: ConsumerPlacing, Status: kubevirt.StatusWaitingForVolumeBinding, Instance: kubevirt.PhasePending,
		Message: "a consumer pod with all its claims is being placed, so that every disk is bound on a node that can run it: {detail}"},
	{Reason: ConsumerUnplaceable, Status: kubevirt.StatusUnschedulable, Instance: kubevirt.PhasePending, Warn: true,
		Message: "no node can run it, and nothing was bound: {detail}"},
	{Reason: HandingOver, Status: kubevirt.StatusProvisioning, Instance: kubevirt.PhasePending,
		Message: "its claims are bound; the consumer hands its room to the launcher: {detail}"},
	{Reason: Cloning, Status: kubevirt.StatusStarting, Instance: kubevirt.PhaseScheduled, Message: "its disks are copied before the guest starts: {detail}"},
	{Reason: LauncherStarting, Status: kubevirt.StatusStarting, Instance: kubevirt.PhaseScheduled, Message: "its guest is being started: {detail}"},
	{Reason: LauncherUnplaceable, Status: kubevirt.StatusUnschedulable, Instance: kubevirt.PhaseScheduling, Warn: true,
		Message: "no node can run it: {detail}"},
	{Reason: LauncherLeaving, Status: kubevirt.StatusStopping, Instance: kubevirt.PhaseRunning, Message: "its launcher is being deleted: {detail}"},
	{Reason: GuestRunning, Status: kubevirt.StatusRunning, Instance: kubevirt.PhaseRunning, Ready: true, Message: "its guest runs: {detail}"},
	{Reason: GuestUnready, Status: kubevirt.StatusRunning, Instance: kubevirt.PhaseRunning,
		Message: "its guest runs and its readiness probe does not hold yet: {detail}"},
	{Reason: GuestArriving, Status: kubevirt.StatusRunning, Instance: kubevirt.PhaseRunning, Quiet: true,
		Message: "its guest has moved and goes on in a moment: {detail}"},
	{Reason: NodeAway, Status: kubevirt.StatusUnknown, Instance: kubevirt.PhaseUnknown, Warn: true,
		Message: "its node does not answer, and its disks are there: it goes on when the node is back: {detail}"},
	{Reason: EndUnknown, Status: kubevirt.StatusStopping, Warn: true,
		Message: "it was told to stop and its node does not answer, so its guest may still run and write: it is let go when the node is back; " +
			"if the node is switched off for certain, delete the Node or taint it with node.kubernetes.io/out-of-service=nodeshutdown:NoExecute: {detail}"},
	{Reason: NodeLost, Status: kubevirt.StatusUnschedulable, Instance: kubevirt.PhaseScheduling, Warn: true,
		Message: "its data is on a node that is gone, and no other node can have it: bring the node back, or restore its disks elsewhere: {detail}"},
	{Reason: GuestEnded, Status: kubevirt.StatusStopped, Instance: kubevirt.PhaseSucceeded, Message: "{detail}"},
	{Reason: GuestFailed, Status: kubevirt.StatusStopped, Instance: kubevirt.PhaseFailed, Warn: true, Message: "{detail}"},
	{Reason: Stopping, Status: kubevirt.StatusStopping, Message: "it is being stopped: {detail}"},
	{Reason: Keeping, Status: kubevirt.StatusStopping, Message: "it is stopped when its disk is kept: {detail}"},
	{Reason: Restarting, Status: kubevirt.StatusStarting, Message: "its last instance has ended and the next is made"},
	{Reason: CrashLoop, Status: kubevirt.StatusCrashLoopBackOff, Instance: kubevirt.PhaseFailed, Warn: true,
		Message: "its last instance failed and is tried again: {detail}"},
	{Reason: Terminating, Status: kubevirt.StatusTerminating, Message: "it is being deleted: {detail}"},
	{Reason: InstanceInTheWay, Status: kubevirt.StatusStopped, Warn: true,
		Message: "an instance of this name exists and is not this machine's; delete it or rename the machine"},
	{Reason: BeingRestored, Status: kubevirt.StatusStopped, Message: "it is being restored from a snapshot and can start after that: {detail}"},
	{Reason: ClaimTaken, Status: kubevirt.StatusPvcNotFound, Warn: true,
		Message: "{detail}; it is not this machine's and is left as it is: rename the machine or the template, or delete the claim"},
	{Reason: ClaimVague, Status: kubevirt.StatusPvcNotFound, Warn: true, Message: "{detail}"},
	{Reason: TypeMissing, Status: kubevirt.StatusProvisioning, Warn: true, Message: "{detail}", Failure: "FailedFindInstancetype"},
	{Reason: PreferenceMissing, Status: kubevirt.StatusProvisioning, Warn: true, Message: "{detail}", Failure: "FailedFindPreference"},
	{Reason: KindUnfit, Status: kubevirt.StatusProvisioning, Warn: true, Message: "{detail}", Failure: "FailedCreate"},
	{Reason: FieldsRefused, Status: kubevirt.StatusProvisioning, Instance: kubevirt.PhasePending, Warn: true, Failure: "FailedCreate",
		Message: "it is not started without what it asks for, which machines here cannot have; change the machine: {detail}"},
	{Reason: GuestPaused, Status: kubevirt.StatusPaused, Instance: kubevirt.PhaseRunning, Warn: true,
		Message: "its guest waits for a disk and goes on by itself when the disk answers: {detail}"},
	{Reason: PausedByUser, Status: kubevirt.StatusPaused, Instance: kubevirt.PhaseRunning,
		Message: "a user paused the guest; to let it run again: virtctl unpause vm {name}"},
	{Reason: DiskUnreachable, Status: kubevirt.StatusStopped, Instance: kubevirt.PhaseFailed, Warn: true,
		Message: "the server of a network disk does not answer; see that it runs and that this namespace's pods may reach it: {detail}"},
	{Reason: DiskDenied, Status: kubevirt.StatusStopped, Instance: kubevirt.PhaseFailed, Warn: true,
		Message: "the server of a network disk refuses the login; correct the Secret that the volume names and restart the machine: {detail}"},
	{Reason: DiskAbsent, Status: kubevirt.StatusStopped, Instance: kubevirt.PhaseFailed, Warn: true,
		Message: "the server has no such disk; make it there, or correct the volume: {detail}"},
	{Reason: DiskReadOnly, Status: kubevirt.StatusStopped, Instance: kubevirt.PhaseFailed, Warn: true,
		Message: "a network disk can only be read; add to the volume \"accessMode: read-shared\" if the guest only reads it, or \"copy: {mode: copy-on-write}\" for a copy that it can write to: {detail}"},
	{Reason: DiskRefused, Status: kubevirt.StatusStopped, Instance: kubevirt.PhaseFailed, Warn: true,
		Message: "machines may not have disks at that server; only the administrator can allow it, and never the pod's own addresses: {detail}"},
	{Reason: DiskCondemned, Status: kubevirt.StatusPaused, Instance: kubevirt.PhaseRunning, Warn: true,
		Message: "its guest is paused: it was started before a disk was imported, and the import cannot be completed; the DataVolume says what to do: {detail}"},
	{Reason: DiskSourceAway, Status: kubevirt.StatusPaused, Instance: kubevirt.PhaseRunning, Warn: true,
		Message: "its guest is paused: it needs a part of a disk that is not imported yet, and the disk's source cannot be reached; see that the source runs " +
			"and that its address is right, and the guest goes on by itself when it is back: {detail}"},
	{Reason: VolumeStarting, Status: kubevirt.StatusProvisioning, Message: "the container that makes one of its volumes is being started: {detail}"},
	{Reason: VolumeMaking, Status: kubevirt.StatusProvisioning, Message: "a container makes one of its volumes: {detail}"},
	{Reason: VolumeMade, Status: kubevirt.StatusProvisioning, Message: "a container has made one of its volumes: {detail}"},
	{Reason: VolumeRefused, Status: kubevirt.StatusDataVolumeError, Warn: true,
		Message: "what a container says about one of its volumes cannot be used; mend the container, it is asked again: {detail}"},
	{Reason: VolumeForbidden, Status: kubevirt.StatusDataVolumeError, Warn: true,
		Message: "the container of one of its volumes is not run; change it in the machine: {detail}"},
	{Reason: VolumeInUse, Status: kubevirt.StatusRunning,
		Message: "a volume that the machine does not list any more is deleted when the instance that has it has stopped: {detail}"},
	{Reason: VolumeDeleting, Status: kubevirt.StatusTerminating, Message: "what a container made is being deleted: {detail}"},
	{Reason: VolumeNotDeleted, Status: kubevirt.StatusTerminating, Warn: true,
		Message: "what a container made is not deleted yet, and this waits for it; mend the container, or, if what it made may stay, set the " +
			"annotation berth.dev/abandon-volumes of the machine to the volume's name: {detail}"},
	{Reason: DiskUnsupported, Status: kubevirt.StatusStopped, Instance: kubevirt.PhaseFailed, Warn: true,
		Message: "a network disk asks for something that QEMU cannot do: {detail}"},
	{Reason: DiskFull, Status: kubevirt.StatusPaused, Instance: kubevirt.PhaseRunning, Warn: true,
		Message: "its guest is paused because a disk has no room left where it is stored; make room there, and it goes on by itself: {detail}"},
	{Reason: DiskStalled, Status: kubevirt.StatusPaused, Instance: kubevirt.PhaseRunning, Warn: true,
		Message: "its guest waits for a disk whose server takes connections and does no work, as one that is full, or a stream whose registry is away; it goes on by itself when the server does: {detail}"},
	{Reason: AsInstance},
}

// OfMachine returns the row a reason stands for; a reason without one is shown, not hidden.
func OfMachine(r MachineReason) MachineRow {
	for _, row := range machineTable {
		if row.Reason == r {
			return row
		}
	}
	return MachineRow{Reason: r, Status: kubevirt.StatusStopped, Warn: true, Message: "{detail}"}
}

// Text returns the message with its blanks filled in.
func (r MachineRow) Text(name, detail string) string {
	text := r.Message
	if detail == "" {
		text = strings.ReplaceAll(text, ": {detail}", "")
	}
	return strings.NewReplacer("{name}", name, "{detail}", detail).Replace(text)
}

// MachineRows returns the whole table.
func MachineRows() []MachineRow { return append([]MachineRow(nil), machineTable...) }
