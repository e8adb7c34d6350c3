package machine

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"

	"github.com/berth-vm/berth/internal/decide"
)

// HotFacts are the facts about one volume of a running machine that it was not started with.
type HotFacts struct {
	// Wanted: the instance lists the volume.
	Wanted bool
	// Disk is the state of this one volume.
	Disk Disks
	// Consumer is the pod that makes a held claim be bound on the machine's node.
	Consumer Pod
	// Holder is the pod that hands the disk to the launcher. Up means that the guest has the disk, Done that the guest released it.
	Holder Pod
	// Access to the disk, if it is Ready.
	Access Access
	// Kept: the guest was asked for the disk and has not given it back for too long.
	Kept bool
	// BackedUp: the launcher holds the guest's disks for a backup, and changes none of them meanwhile.
	BackedUp bool
}

// GuestKeepsIt is the reason of a volume whose disk the guest does not release. A person may have to look into it.
const GuestKeepsIt = "GuestKeepsIt"

// DiskInUse is the reason of a volume that another pod has.
const DiskInUse = "DiskInUse"

// BackupHoldsDisks is the reason of a volume that is added or removed when a backup has read the guest's disks.
const BackupHoldsDisks = "BackupHoldsDisks"

// The actions on a volume that is added to a running machine or removed from it.
const (
	StartHotConsumer Action = "StartHotConsumer" // the first consumer of its claim, on the machine's node
	StopHotConsumer  Action = "StopHotConsumer"
	StartHolder      Action = "StartHolder" // it hands the disk over and keeps the claim in use
	StopHolder       Action = "StopHolder"
)

// HotPlan is the action on a volume, and its phase. A volume without a phase is no longer listed.
type HotPlan struct {
	Rule   string
	Do     []Action
	Phase  string
	Reason string
}

// said is the phase and reason that a rule reports of a volume.
type said struct{ phase, reason string }

// Hotplug finds the first rule that holds. Only a guest that runs is asked about: a machine that starts takes all its
// volumes with it.
func Hotplug(f HotFacts) HotPlan {
	p := decide.First(hotRules, f)
	return HotPlan{Rule: p.Rule, Do: p.Do, Phase: p.State.phase, Reason: p.State.reason}
}

// hotRules is the life of an added volume; first match wins. The guest releases a disk before the holder's pod is deleted: the
// launcher closes the disks that the instance no longer lists, and their holders end then.
var hotRules = []decide.Rule[HotFacts, Action, said]{
	{"the consumer of a volume nobody wants ends",
		func(f HotFacts) bool { return !f.Wanted && f.Consumer.alive() }, []Action{StopHotConsumer}, said{kubevirt.VolumeDetaching, "Removed"}},
	{"a disk that the guest does not give back is said, and waited for",
		func(f HotFacts) bool { return !f.Wanted && f.Holder == Up && f.Kept }, nil, said{kubevirt.VolumeDetaching, GuestKeepsIt}},
	{"a disk is removed when a backup has read it",
		func(f HotFacts) bool { return !f.Wanted && f.Holder == Up && f.BackedUp }, nil, said{kubevirt.VolumeDetaching, BackupHoldsDisks}},
	{"a disk that the guest still has is waited for",
		func(f HotFacts) bool { return !f.Wanted && f.Holder == Up }, nil, said{kubevirt.VolumeDetaching, "WaitingForGuest"}},
	{"the holder of a volume nobody wants ends",
		func(f HotFacts) bool { return !f.Wanted && f.Holder.alive() }, []Action{StopHolder}, said{kubevirt.VolumeUnmounted, "Removed"}},
	{"pods of a volume nobody wants are waited out",
		func(f HotFacts) bool { return !f.Wanted && (f.Holder == Going || f.Consumer == Going) }, nil, said{kubevirt.VolumeUnmounted, "Removed"}},
	{"a removed volume is gone", func(f HotFacts) bool { return !f.Wanted }, nil, said{"", ""}},

	{"a guest that has the disk keeps it", func(f HotFacts) bool { return f.Holder == Up }, nil, said{kubevirt.VolumeReady, "Attached"}},
	{"a held volume gets a consumer on the machine's node",
		func(f HotFacts) bool { return f.Disk == Held && f.Consumer == NoPod }, []Action{StartHotConsumer}, said{kubevirt.VolumePending, "Binding"}},
	{"a consumer that ended without binding is replaced",
		func(f HotFacts) bool { return f.Disk == Held && (f.Consumer == Done || f.Consumer == Broken) },
		[]Action{StopHotConsumer}, said{kubevirt.VolumePending, "Binding"}},
	{"a consumer that the machine's node will not have says why",
		func(f HotFacts) bool { return f.Disk == Held && f.Consumer == Unplaceable }, nil, said{kubevirt.VolumePending, "Unschedulable"}},
	{"a held volume is being bound", func(f HotFacts) bool { return f.Disk == Held }, nil, said{kubevirt.VolumePending, "Binding"}},
	{"a consumer ends when the claim is bound",
		func(f HotFacts) bool { return f.Consumer.alive() }, []Action{StopHotConsumer}, said{kubevirt.VolumePending, "Filling"}},
	{"a volume that is not filled is waited for",
		func(f HotFacts) bool { return f.Disk != Ready && f.Disk != Unbound }, nil, said{kubevirt.VolumePending, "Filling"}},

	{"a volume with its data, or none to wait for, gets a holder", func(f HotFacts) bool { return f.Holder == NoPod }, []Action{StartHolder}, said{kubevirt.VolumeBound, "Starting"}},
	{"a holder that ended although its volume is wanted is replaced",
		func(f HotFacts) bool { return f.Holder == Done || f.Holder == Broken }, []Action{StopHolder}, said{kubevirt.VolumeBound, "Starting"}},
	{"a volume that is not on the machine's node says why",
		func(f HotFacts) bool { return f.Holder == Unplaceable }, nil, said{kubevirt.VolumeBound, "Unschedulable"}},
	{"a disk that others have is not handed over",
		func(f HotFacts) bool { return f.Holder == Placed && f.Disk == Ready && f.Access.denied() }, nil, said{kubevirt.VolumeBound, DiskInUse}},
	{"a disk is added when a backup has read the others",
		func(f HotFacts) bool { return f.Holder == Placed && f.BackedUp }, nil, said{kubevirt.VolumeAttached, BackupHoldsDisks}},
	{"a holder hands the disk over",
		func(f HotFacts) bool { return f.Holder == Placed }, nil, said{kubevirt.VolumeAttached, "HandingOver"}},
	{"a holder is being started", func(HotFacts) bool { return true }, nil, said{kubevirt.VolumeBound, "Starting"}},
}
