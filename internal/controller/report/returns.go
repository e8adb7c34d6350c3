package report

import (
	"slices"
	"time"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/state"
)

// returnsAgain is how often a launcher is polled while the guest waits for a disk, because a launcher cannot send events.
// answerAfter is the time of the first answer, if there is one.
const (
	ReturnsAgain = 5 * time.Second
	AnswerAfter  = time.Second
)

// networked: some of its disks are at servers, or were when it was started.
func networked(s *observed.Instance) bool {
	return slices.ContainsFunc(s.Object.Spec.Volumes, func(v kubevirt.Volume) bool { return v.Networked() }) ||
		slices.ContainsFunc(s.Disks, func(d diskstate.Disk) bool { return d.Direct != nil }) ||
		s.Launcher != nil && len(s.LastOrders().Network) > 0 || mayBeEarly(s)
}

// LookAgain returns when to ask the launcher next; 0 if there is no need.
func LookAgain(s *observed.Instance) time.Duration {
	if s.Asked || s.LogInAwaited() && observed.Situation(s.Launcher) == machine.Placed {
		return AnswerAfter
	}
	if keepsOn(s) {
		return keepAgain
	}
	if up := observed.Situation(s.Launcher) == machine.Up; up && pauseUnsettled(s) {
		return AnswerAfter
	} else if up && (networked(s) || s.Returns.Paused) {
		return ReturnsAgain
	}
	if again := copiesAgain(s); again > 0 {
		return again
	}
	if len(AwaitedVolumes(s)) > 0 || len(s.Surplus) > 0 || slices.ContainsFunc(s.Added, (*observed.Added).Awaited) {
		return ReturnsAgain
	}
	if observed.Situation(s.Launcher) == machine.Up {
		return DescribeAgain
	}
	return 0
}

// AwaitedVolumes are the volumes that the machine was started with and that the guest has not given back.
func AwaitedVolumes(s *observed.Instance) []string {
	return slices.DeleteFunc(slices.Clone(s.Removed), func(name string) bool { return slices.Contains(s.Returns.Given, name) })
}

// AwaitedStatus returns the status of a volume whose data is awaited.
func AwaitedStatus(s *observed.Instance, name string) kubevirt.VolumeStatus {
	plan := machine.Hotplug(machine.HotFacts{Holder: machine.Up, Kept: s.Returns.Kept[name] != "", BackedUp: s.Returns.BackedUp})
	v := kubevirt.VolumeStatus{Name: name, Phase: plan.Phase, Reason: plan.Reason, Message: s.Returns.Kept[name]}
	if plan.Reason == machine.BackupHoldsDisks {
		v.Message = state.BackupHoldsDisks
	}
	return v
}
