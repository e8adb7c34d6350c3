package machine

import (
	"encoding/json"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	accessv1 "github.com/berth-vm/berth/api/access/v1alpha1"
	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/identity"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/state"
)

// TestFaultIsTheReason: what a disk's server was at fault for is the reason of the machine and of its instance, whatever the
// run strategy does next.
func TestFaultIsTheReason(t *testing.T) {
	for _, fault := range []launcherapi.Fault{launcherapi.DiskUnreachable, launcherapi.DiskDenied, launcherapi.DiskAbsent, launcherapi.DiskRefused, launcherapi.DiskReadOnly, launcherapi.DiskUnsupported} {
		words, err := json.Marshal(launcherapi.Report{End: launcherapi.Refused, Fault: fault, Detail: "the server's own words"})
		if err != nil {
			t.Fatal(err)
		}
		s := &observed.Instance{Run: diskstate.Run{Object: &kubevirt.VirtualMachineInstance{}, Launcher: &corev1.Pod{Status: corev1.PodStatus{
			ContainerStatuses: []corev1.ContainerStatus{{State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Message: string(words)}}}}}}}}
		for from, status := range map[state.MachineReason]kubevirt.PrintableStatus{
			state.GuestFailed: kubevirt.StatusStopped, state.CrashLoop: kubevirt.StatusCrashLoopBackOff} {
			row := report.Row(s, from)
			if string(row.Reason) != string(fault) || row.Status != status || !row.Warn || row.Instance != kubevirt.PhaseFailed ||
				!strings.HasSuffix(row.Message, "the server's own words") {
				t.Errorf("%s after %s: %+v", fault, from, row)
			}
		}
	}
}

// TestWaitingGuest: a guest that runs and waits for a disk is said to be paused, and what it waits for.
func TestWaitingGuest(t *testing.T) {
	s := &observed.Instance{Run: diskstate.Run{Object: &kubevirt.VirtualMachineInstance{}, Launcher: &corev1.Pod{Status: corev1.PodStatus{
		Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}}}}
	if row := report.Row(s, state.GuestRunning); row.Reason != state.GuestRunning || !row.Ready {
		t.Errorf("it waits for nothing: %+v", row)
	}
	s.Returns = launcherapi.Returns{Waits: "volume root: connect to iscsi server a:1: refused"}
	row := report.Row(s, state.GuestRunning)
	if row.Reason != state.GuestPaused || row.Ready || row.Status != kubevirt.StatusPaused || row.Instance != kubevirt.PhaseRunning ||
		!strings.Contains(row.Message, s.Returns.Waits) {
		t.Errorf("it waits: %+v", row)
	}
	for _, cause := range []launcherapi.Fault{launcherapi.DiskFull, launcherapi.DiskStalled, launcherapi.DiskCondemned, launcherapi.DiskSourceAway} {
		s.Returns.Cause = cause
		if row := report.Row(s, state.GuestRunning); string(row.Reason) != string(cause) || row.Ready || row.Status != kubevirt.StatusPaused ||
			row.Instance != kubevirt.PhaseRunning || !strings.Contains(row.Message, s.Returns.Waits) {
			t.Errorf("it waits, %s: %+v", cause, row)
		}
	}
}

// TestNetworkDiskAccess: each network disk has the identity of what it is, and the mode its volume says.
func TestNetworkDiskAccess(t *testing.T) {
	iscsi := kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{Portal: "iqn.2017-01.io.kubevirt:sn.42", LUN: 2, Host: kubevirt.NetworkHost{Name: "a"}}}}
	other := *iscsi.DeepCopy()
	other.ISCSI.Host.Name = "another name of it"
	one, err := identity.Network(iscsi.NetworkSource)
	if err != nil {
		t.Fatal(err)
	}
	if two, err := identity.Network(other.NetworkSource); err != nil || one != two {
		t.Errorf("%s and %s are one LUN (%v)", one, two, err)
	}
	for want, v := range map[accessv1.Mode]kubevirt.Volume{
		accessv1.WriteExclusive: {VolumeSource: iscsi},
		accessv1.WriteShared:    {VolumeSource: iscsi, AccessMode: kubevirt.WriteShared},
		accessv1.ReadShared:     {VolumeSource: iscsi, Copy: &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite}},
	} {
		if got := diskstate.Mode(v, kubevirt.Disk{}); got != want {
			t.Errorf("%+v is wanted %s", v, got)
		}
	}
	for _, v := range []kubevirt.Volume{{VolumeSource: iscsi, AccessMode: kubevirt.ReadShared}, {VolumeSource: kubevirt.VolumeSource{NetworkSource: kubevirt.NetworkSource{HTTP: &kubevirt.HTTPSource{}}}}} {
		if got := diskstate.Mode(v, kubevirt.Disk{}); got != accessv1.ReadShared {
			t.Errorf("%+v is wanted %s", v, got)
		}
	}
}
