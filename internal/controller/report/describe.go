package report

import (
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
)

// DescribeAgain is how often the launcher of a running guest is asked for its description if there is no other reason to ask.
const DescribeAgain = 30 * time.Second

// AgentConnected is the condition that the guest agent answers.
const AgentConnected = "AgentConnected"

// Describe sets the fields of an instance's status about the launcher and the guest that only people and inventories read; no
// decision depends on them.
func Describe(s *observed.Instance, next *kubevirt.VirtualMachineInstanceStatus) {
	p := s.Launcher
	if p.Status.PodIP != "" {
		next.Interfaces = []kubevirt.NetworkInterface{{Name: "default", IP: p.Status.PodIP, IPs: []string{p.Status.PodIP}, InfoSource: "domain"}}
	}
	if at := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == launcherapi.Container }); at >= 0 {
		next.LauncherContainerImageVersion = p.Spec.Containers[at].Image
	}
	_, next.GuestOSInfo = guestAgent(s)
	if observed.Situation(p) != machine.Up {
		return
	}
	had := launcherpod.Machine(p).Spec.Domain
	next.Machine = &kubevirt.Machine{Type: launcherapi.Board(had.Machine)}
	if m := launcherapi.Memory(had); !m.IsZero() {
		next.Memory = &kubevirt.MemoryStatus{GuestAtBoot: m, GuestCurrent: m, GuestRequested: launcherapi.Memory(s.Object.Spec.Domain)}
	}
}

// guestAgent reports whether the guest agent answers, and the operating system that it names; nil if it names none. While the launcher does
// not answer, both are as they were.
func guestAgent(s *observed.Instance) (connected bool, os *kubevirt.GuestOS) {
	switch {
	case observed.Situation(s.Launcher) != machine.Up:
		return false, nil
	case s.Heard:
		return s.Returns.Agent != nil, short(s.Returns.Agent)
	}
	connected = slices.ContainsFunc(s.Object.Status.Conditions, func(c kubevirt.Condition) bool { return c.Type == AgentConnected })
	return connected, s.Object.Status.GuestOSInfo
}

// short truncates a guest's report about itself to a length that fits into a status; nil if there is none.
func short(os *kubevirt.GuestOS) *kubevirt.GuestOS {
	if os == nil || *os == (kubevirt.GuestOS{}) {
		return nil
	}
	cut := func(s string) string { return s[:min(len(s), 256)] }
	return &kubevirt.GuestOS{Name: cut(os.Name), KernelRelease: cut(os.KernelRelease), Version: cut(os.Version), PrettyName: cut(os.PrettyName),
		VersionID: cut(os.VersionID), KernelVersion: cut(os.KernelVersion), Machine: cut(os.Machine), ID: cut(os.ID)}
}

// CredentialsSet is the condition that the guest agent has set the keys and passwords of accessCredentials.
const CredentialsSet = "AccessCredentialsSynchronized"

// AccessSet is the condition about accessCredentials; none without any for the agent. While the launcher does not answer, it is as it was.
func AccessSet(s *observed.Instance) []kubevirt.Condition {
	switch {
	case observed.Situation(s.Launcher) != machine.Up || s.Heard && s.Returns.Access == nil:
		return nil
	case !s.Heard:
		at := slices.IndexFunc(s.Object.Status.Conditions, func(c kubevirt.Condition) bool { return c.Type == CredentialsSet })
		if at < 0 {
			return nil
		}
		return s.Object.Status.Conditions[at : at+1]
	case *s.Returns.Access != "":
		why := *s.Returns.Access
		return []kubevirt.Condition{{Type: CredentialsSet, Status: corev1.ConditionFalse, Message: why[:min(len(why), 256)]}}
	}
	return []kubevirt.Condition{{Type: CredentialsSet, Status: corev1.ConditionTrue}}
}

// device is a device name in a domain: a launcher's answer is untrusted input.
var device = regexp.MustCompile(`^(vd|sd|hd|fd)[a-z]{1,2}$`)

// DescribeVolumes adds the device names, and that volumes with which the machine was started can be removed while it runs.
func DescribeVolumes(s *observed.Instance, all []kubevirt.VolumeStatus) {
	for n := range all {
		v := &all[n]
		v.Target = target(s, v.Name)
		at := slices.IndexFunc(s.Object.Spec.Volumes, func(x kubevirt.Volume) bool { return x.Name == v.Name })
		if v.Phase == "" && at >= 0 && s.Object.Spec.Volumes[at].CanBeRemoved() && observed.Situation(s.Launcher) == machine.Up {
			v.Phase, v.HotplugVolume = kubevirt.VolumeReady, &kubevirt.HotplugVolumeStatus{AttachPodName: s.Launcher.Name, AttachPodUID: s.Launcher.UID}
		}
	}
}

// target is the device name of a volume's disk. While the launcher does not answer, it is as it was.
func target(s *observed.Instance, volume string) string {
	if observed.Situation(s.Launcher) != machine.Up {
		return ""
	}
	if s.Heard {
		if name := s.Returns.Targets[volume]; device.MatchString(name) {
			return name
		}
		return ""
	}
	at := slices.IndexFunc(s.Object.Status.VolumeStatus, func(v kubevirt.VolumeStatus) bool { return v.Name == volume })
	if at < 0 {
		return ""
	}
	return s.Object.Status.VolumeStatus[at].Target
}

// Shared are the conditions of an instance that its machine has too.
func Shared(s *observed.Instance) []kubevirt.Condition {
	out := slices.Concat([]kubevirt.Condition{volumesReady(s)}, independent(s), movable(s))
	if connected, _ := guestAgent(s); connected {
		out = append(out, kubevirt.Condition{Type: AgentConnected, Status: corev1.ConditionTrue})
	}
	return append(out, AccessSet(s)...)
}
