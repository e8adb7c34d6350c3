package report

import (
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/replacedclaim"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/pods"
	"github.com/berth-vm/berth/internal/state"
)

// details has the text for a row's {detail}; the pod and its node for reasons that are not listed.
var details = map[state.MachineReason]func(*observed.Instance) string{
	state.DiskMissing:         disksText,
	state.DiskFailed:          disksText,
	state.DiskRetrying:        disksText,
	state.DiskForbidden:       disksText,
	state.FieldsRefused:       func(s *observed.Instance) string { return s.Unsupported },
	state.UsageTypeMissing:    disksText,
	state.DirectForbidden:     disksText,
	state.DirectImpossible:    disksText,
	state.DisksFilling:        disksText,
	state.DiskInUse:           disksText,
	state.ConsumerPlacing:     disksText,
	state.ConsumerUnplaceable: func(s *observed.Instance) string { return observed.Unschedulable(s.Consumer) + besideText(s) },
	state.LauncherUnplaceable: func(s *observed.Instance) string {
		return observed.Unschedulable(s.Launcher) + s.Misplaced + besideText(s)
	},
	state.LauncherStarting: startText,
	state.NodeLost:         func(s *observed.Instance) string { return s.Lost },
	state.Cloning:          cloning,
	state.Keeping:          holdText,
	state.PausedByUser:     func(*observed.Instance) string { return "" },
	state.GuestEnded:       func(s *observed.Instance) string { return s.LastWords().Detail },
	state.GuestFailed:      func(s *observed.Instance) string { return s.LastWords().Detail },
	state.CrashLoop:        func(s *observed.Instance) string { return s.LastWords().Detail },
}

func detailOf(s *observed.Instance, r state.MachineReason) string {
	if text := details[r]; text != nil {
		return text(s)
	}
	return podText(s)
}

func disksText(s *observed.Instance) string {
	var disks []string
	for _, d := range s.Disks {
		if d.Why != "" {
			disks = append(disks, d.Why)
		}
	}
	return strings.Join(disks, "; ")
}

// startText describes what a launcher does before its guest runs.
func startText(s *observed.Instance) string {
	for _, d := range s.Disks {
		if d.Access == machine.LogsIn {
			return d.Why + "; " + podText(s)
		}
	}
	return podText(s)
}

func podText(s *observed.Instance) string {
	pod := s.Launcher
	if pod == nil {
		pod = s.Consumer
	}
	switch {
	case pod == nil:
		return ""
	case pod.Spec.NodeName == "":
		return "pod " + pod.Name
	}
	return fmt.Sprintf("pod %s on node %s", pod.Name, pod.Spec.NodeName)
}

// showFacts returns the facts that the shown reason depends on, in addition to the decision.
func showFacts(s *observed.Instance, decided state.MachineReason) machine.ShowFacts {
	f := machine.ShowFacts{Decided: decided, NodeAway: s.Away, Ending: observed.Situation(s.Launcher) == machine.Going,
		Keeping: s.Object.DeletionTimestamp != nil && s.HoldsEnd(), Copying: cloning(s) != "",
		Paused: Paused(s), Disk: diskFailure(s), Server: state.MachineReason(s.LastWords().Fault), Lost: s.Lost != "",
		Unoffered: slices.ContainsFunc(s.Disks, func(d diskstate.Disk) bool { return d.Unoffered })}
	switch {
	case s.Arrives() && !launcherpod.Up(s.Launcher):
		f.Guest = machine.Arriving
	case s.Launcher != nil && s.Object.Spec.ReadinessProbe != nil && !pods.Ready(s.Launcher):
		f.Guest = machine.Unready
	}
	switch {
	case s.Returns.Waits != "" && slices.Contains(pauses, s.Returns.Cause):
		f.Stuck = state.MachineReason(s.Returns.Cause)
	case s.Returns.Waits != "":
		f.Stuck = state.GuestPaused
	}
	return f
}

// Row returns the row of the state table for a decision.
func Row(s *observed.Instance, decided state.MachineReason) state.MachineRow {
	f := showFacts(s, decided)
	shown := machine.Show(f)
	row, detail := state.OfMachine(shown.Reason), detailOf(s, shown.Reason)
	was := state.OfMachine(decided)
	switch shown.Base {
	case machine.Own:
		if shown.Reason == f.Stuck {
			detail = s.Returns.Waits
		}
	case machine.DecidedStatus:
		row.Status, detail = was.Status, detailOf(s, decided)
	case machine.DecidedRow:
		was.Reason, was.Warn, was.Message = row.Reason, row.Warn, row.Message
		row = was
	}
	row.Message = row.Text(s.Object.Name, detail)
	return row
}

// pauses are the causes of a guest's pause that have a row of their own.
var pauses = []launcherapi.Fault{launcherapi.DiskFull, launcherapi.DiskStalled, launcherapi.DiskCondemned, launcherapi.DiskSourceAway}

// diskFailure is the reason of the first disk that has one of its own; empty: none has.
func diskFailure(s *observed.Instance) state.MachineReason {
	for _, d := range s.Disks {
		if d.State == machine.Failed && d.Reason != "" {
			return d.Reason
		}
	}
	return ""
}

func volumesReady(s *observed.Instance) kubevirt.Condition {
	c := kubevirt.Condition{Type: "DataVolumesReady", Status: corev1.ConditionTrue, Reason: "AllDVsReady", Message: "all of its volumes are filled"}
	early := slices.ContainsFunc(s.Disks, func(d diskstate.Disk) bool { return d.Early })
	if s.Worst() != machine.Ready || early {
		c.Status, c.Reason, c.Message = corev1.ConditionFalse, "NotAllDVsReady", disksText(s)
	}
	return c
}

// DiskStatus returns the status of the volume that a disk is of.
func DiskStatus(d diskstate.Disk) kubevirt.VolumeStatus {
	v := kubevirt.VolumeStatus{Name: d.Name, Message: d.Why}
	if d.Claim != nil {
		name := d.Claim.Name
		if d.PV != nil { // the launcher mounts a replacement, and the claim that people know has the same volume
			if moved, ok := replacedclaim.Read(d.PV); ok {
				name = moved.Record.Claim
			}
		}
		v.PersistentVolumeClaimInfo = &kubevirt.ClaimInfo{
			ClaimName: name, AccessModes: d.Claim.Spec.AccessModes, VolumeMode: d.Claim.Spec.VolumeMode,
			Capacity: d.Claim.Status.Capacity, Requests: d.Claim.Spec.Resources.Requests,
		}
	}
	return v
}

// besideText says for which claims a pod that has no node is kept to some nodes.
func besideText(s *observed.Instance) string {
	var text strings.Builder
	for _, d := range s.Disks {
		if d.BesideWhy != "" {
			text.WriteString("; " + d.BesideWhy)
		}
	}
	return text.String()
}
