package machine

import (
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// HotFacts is everything the decision about one volume of a running machine depends on that it was not started with.
type HotFacts struct {
	// Wanted: the instance lists the volume.
	Wanted bool
	// Disk is what has become of this one volume.
	Disk Disks
	// Consumer is the pod that makes a held claim be bound on the machine's node.
	Consumer Pod
	// Holder is the pod that hands the disk to the launcher. Up means that the guest has it, Done that it gave it back.
	Holder Pod
	// Access to the disk, if it is Ready.
	Access Access
	// Kept: the guest was asked for the disk and has not given it back for too long.
	Kept bool
}

// GuestKeepsIt is the reason of a volume whose disk the guest does not give back. Somebody may have to look into it.
const GuestKeepsIt = "GuestKeepsIt"

// DiskInUse is the reason of a volume that somebody else has.
const DiskInUse = "DiskInUse"

// The actions on a volume that is added to a running machine or removed from it.
const (
	StartHotConsumer Action = "StartHotConsumer" // the first consumer of its claim, on the machine's node
	StopHotConsumer  Action = "StopHotConsumer"
	StartHolder      Action = "StartHolder" // it hands the disk over and keeps the claim in use
	StopHolder       Action = "StopHolder"
)

// HotPlan is what to do about a volume and the phase it is in. Without a phase it is no longer spoken of.
type HotPlan struct {
	Rule   string
	Do     []Action
	Phase  string
	Reason string
}

type hotRule struct {
	name   string
	when   func(HotFacts) bool
	do     []Action
	phase  string
	reason string
}

// Hotplug finds the first rule that holds. Only a guest that runs is asked about: a machine that starts takes all its
// volumes with it.
func Hotplug(f HotFacts) HotPlan {
	for _, r := range hotRules {
		if r.when(f) {
			return HotPlan{Rule: r.name, Do: r.do, Phase: r.phase, Reason: r.reason}
		}
	}
	return HotPlan{}
}

// hotRules is the life of an added volume; first match wins. A disk is given back by the guest before its pod goes: the
// launcher lets go of what the instance no longer lists, and its holder ends then.
var hotRules = []hotRule{
	{"the consumer of a volume nobody wants ends",
		func(f HotFacts) bool { return !f.Wanted && f.Consumer.alive() }, []Action{StopHotConsumer}, kubevirt.VolumeDetaching, "Removed"},
	{"a disk that the guest does not give back is said, and waited for",
		func(f HotFacts) bool { return !f.Wanted && f.Holder == Up && f.Kept }, nil, kubevirt.VolumeDetaching, GuestKeepsIt},
	{"a disk that the guest still has is waited for",
		func(f HotFacts) bool { return !f.Wanted && f.Holder == Up }, nil, kubevirt.VolumeDetaching, "WaitingForGuest"},
	{"the holder of a volume nobody wants ends",
		func(f HotFacts) bool { return !f.Wanted && f.Holder.alive() }, []Action{StopHolder}, kubevirt.VolumeUnmounted, "Removed"},
	{"pods of a volume nobody wants are waited out",
		func(f HotFacts) bool { return !f.Wanted && (f.Holder == Going || f.Consumer == Going) }, nil, kubevirt.VolumeUnmounted, "Removed"},
	{"a removed volume is gone", func(f HotFacts) bool { return !f.Wanted }, nil, "", ""},

	{"a guest that has the disk keeps it", func(f HotFacts) bool { return f.Holder == Up }, nil, kubevirt.VolumeReady, "Attached"},
	{"a held volume gets a consumer on the machine's node",
		func(f HotFacts) bool { return f.Disk == Held && f.Consumer == NoPod }, []Action{StartHotConsumer}, kubevirt.VolumePending, "Binding"},
	{"a consumer that ended without binding is replaced",
		func(f HotFacts) bool { return f.Disk == Held && (f.Consumer == Done || f.Consumer == Broken) },
		[]Action{StopHotConsumer}, kubevirt.VolumePending, "Binding"},
	{"a consumer that the machine's node will not have says why",
		func(f HotFacts) bool { return f.Disk == Held && f.Consumer == Unplaceable }, nil, kubevirt.VolumePending, "Unschedulable"},
	{"a held volume is being bound", func(f HotFacts) bool { return f.Disk == Held }, nil, kubevirt.VolumePending, "Binding"},
	{"a consumer ends when the claim is bound",
		func(f HotFacts) bool { return f.Consumer.alive() }, []Action{StopHotConsumer}, kubevirt.VolumePending, "Filling"},
	{"a volume that is not filled is waited for",
		func(f HotFacts) bool { return f.Disk != Ready && f.Disk != Unbound }, nil, kubevirt.VolumePending, "Filling"},

	{"a volume with its data, or none to wait for, gets a holder", func(f HotFacts) bool { return f.Holder == NoPod }, []Action{StartHolder}, kubevirt.VolumeBound, "Starting"},
	{"a holder that ended although its volume is wanted is replaced",
		func(f HotFacts) bool { return f.Holder == Done || f.Holder == Broken }, []Action{StopHolder}, kubevirt.VolumeBound, "Starting"},
	{"a volume that is not on the machine's node says why",
		func(f HotFacts) bool { return f.Holder == Unplaceable }, nil, kubevirt.VolumeBound, "Unschedulable"},
	{"a disk that others have is not handed over",
		func(f HotFacts) bool { return f.Holder == Placed && f.Disk == Ready && f.Access.denied() }, nil, kubevirt.VolumeBound, DiskInUse},
	{"a holder hands the disk over",
		func(f HotFacts) bool { return f.Holder == Placed }, nil, kubevirt.VolumeAttached, "HandingOver"},
	{"a holder is being started", func(HotFacts) bool { return true }, nil, kubevirt.VolumeBound, "Starting"},
}
