// Package disk has the table of the kinds of volumes that a machine can have: one row for each field of VolumeSource, with the claim that the
// volume is in, and how its disk moves when the guest does.
//
// It knows neither pods nor clusters: what is known about one disk at a time is internal/controller/diskstate, what is mounted for it
// internal/render, and how QEMU opens it internal/launcher.
package disk

import (
	"slices"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/state"
)

// Moves says how the disk of a volume gets to another node with its guest.
type Moves string

// The ways. A disk can still be kept where it is by what is going on with it: while it is filled, copied, added or removed.
const (
	WithClaim Moves = "WithClaim" // both launchers open its claim if two nodes can have it; if not, the disk is sent into another claim
	Sent      Moves = "Sent"      // the source sends it
	MadeAgain Moves = "MadeAgain" // the target's pod has the same small disk, made of the same objects
	BothOpen  Moves = "BothOpen"  // both launchers open it at its server
	Never     Moves = "Never"     // Kind.Cause says why
	Refused   Moves = "Refused"   // no guest has such a volume: admission refuses it
	Replaced  Moves = "Replaced"  // an instance has the disk that the container made instead
)

// Kind is a kind of volume.
type Kind struct {
	Field string // as the API spells it; "network" for all fields of NetworkSource
	Moves Moves
	Cause state.FixedCause // of a kind that never moves
	is    func(kubevirt.VolumeSource) bool
	claim func(kubevirt.VolumeSource) (name string, readOnly bool) // nil: it is in no claim
}

var kinds = []Kind{
	{Field: "dataVolume", Moves: WithClaim, is: func(s kubevirt.VolumeSource) bool { return s.DataVolume != nil },
		claim: func(s kubevirt.VolumeSource) (string, bool) { return s.DataVolume.Name, false }},
	{Field: "persistentVolumeClaim", Moves: WithClaim, is: func(s kubevirt.VolumeSource) bool { return s.PersistentVolumeClaim != nil },
		claim: func(s kubevirt.VolumeSource) (string, bool) {
			return s.PersistentVolumeClaim.Claim(), s.PersistentVolumeClaim.ReadOnly
		}},
	{Field: "ephemeral", Moves: WithClaim, is: func(s kubevirt.VolumeSource) bool { return s.Ephemeral != nil }, claim: ephemeralClaim},
	{Field: "containerDisk", Moves: Sent, is: func(s kubevirt.VolumeSource) bool { return s.ContainerDisk != nil }},
	{Field: "emptyDisk", Moves: Sent, is: func(s kubevirt.VolumeSource) bool { return s.EmptyDisk != nil }},
	{Field: "hostDisk", Moves: Never, Cause: state.CauseHostDisk, is: func(s kubevirt.VolumeSource) bool { return s.HostDisk != nil }},
	{Field: "containerImage", Moves: Never, Cause: state.CauseImage, is: func(s kubevirt.VolumeSource) bool { return s.ContainerImage != nil }},
	{Field: "cloudInitNoCloud", Moves: MadeAgain, is: func(s kubevirt.VolumeSource) bool { return s.CloudInitNoCloud != nil }},
	{Field: "cloudInitConfigDrive", Moves: MadeAgain, is: func(s kubevirt.VolumeSource) bool { return s.CloudInitConfigDrive != nil }},
	{Field: "configMap", Moves: MadeAgain, is: func(s kubevirt.VolumeSource) bool { return s.ConfigMap != nil }},
	{Field: "secret", Moves: MadeAgain, is: func(s kubevirt.VolumeSource) bool { return s.Secret != nil }},
	{Field: "downwardAPI", Moves: MadeAgain, is: func(s kubevirt.VolumeSource) bool { return s.DownwardAPI != nil }},
	{Field: "sysprep", Moves: MadeAgain, is: func(s kubevirt.VolumeSource) bool { return s.Sysprep != nil }},
	{Field: "network", Moves: BothOpen, is: func(s kubevirt.VolumeSource) bool { return (&kubevirt.Volume{VolumeSource: s}).Networked() }},
	{Field: "container", Moves: Replaced, is: func(s kubevirt.VolumeSource) bool { return s.Container != nil }},
	{Field: "serviceAccount", Moves: Refused, is: func(s kubevirt.VolumeSource) bool { return s.ServiceAccount != nil }},
	{Field: "memoryDump", Moves: Refused, is: func(s kubevirt.VolumeSource) bool { return s.MemoryDump != nil }},
	{Field: "downwardMetrics", Moves: Refused, is: func(s kubevirt.VolumeSource) bool { return s.DownwardMetrics != nil }},
	{Field: "containerPath", Moves: Refused, is: func(s kubevirt.VolumeSource) bool { return s.ContainerPath != nil }},
}

func ephemeralClaim(s kubevirt.VolumeSource) (string, bool) {
	if s.Ephemeral.PersistentVolumeClaim == nil {
		return "", false
	}
	return s.Ephemeral.PersistentVolumeClaim.ClaimName, true
}

// Of returns the kind of a volume; the zero Kind if its source is empty.
func Of(s kubevirt.VolumeSource) Kind {
	if at := slices.IndexFunc(kinds, func(k Kind) bool { return k.is(s) }); at >= 0 {
		return kinds[at]
	}
	return Kind{}
}

// Claim returns the claim that a volume is in, and whether it may only be read: a master is. It is empty for volumes that need none.
func Claim(v kubevirt.Volume) (name string, readOnly bool) {
	k := Of(v.VolumeSource)
	if k.claim == nil {
		return "", false
	}
	name, readOnly = k.claim(v.VolumeSource)
	return name, name != "" && (readOnly || v.Copied() != nil)
}
