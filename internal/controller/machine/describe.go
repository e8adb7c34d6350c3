package machine

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/cluster"
	"github.com/berth-vm/berth/internal/decide/machine"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/launcherpod"
	"github.com/berth-vm/berth/internal/render"
)

// describeAgain is how often the launcher of a running guest is asked for its description if nothing else is waited for.
const describeAgain = 30 * time.Second

const agentConnected = "AgentConnected"

// describe writes down the launcher and its guest: what the status of an instance has for people and inventories, and nothing here depends on.
func (s *run) describe(next *kubevirt.VirtualMachineInstanceStatus) {
	p := s.launcher
	if p.Status.PodIP != "" {
		next.Interfaces = []kubevirt.NetworkInterface{{Name: "default", IP: p.Status.PodIP, IPs: []string{p.Status.PodIP}, InfoSource: "domain"}}
	}
	if at := slices.IndexFunc(p.Spec.Containers, func(c corev1.Container) bool { return c.Name == launcherapi.Container }); at >= 0 {
		next.LauncherContainerImageVersion = p.Spec.Containers[at].Image
	}
	_, next.GuestOSInfo = s.guestAgent()
	if situation(p) != machine.Up {
		return
	}
	had := launcherpod.Machine(p).Spec.Domain
	next.Machine = &kubevirt.Machine{Type: launcherapi.Board(had.Machine)}
	if m := launcherapi.Memory(had); !m.IsZero() {
		next.Memory = &kubevirt.MemoryStatus{GuestAtBoot: m, GuestCurrent: m, GuestRequested: launcherapi.Memory(s.instance.Spec.Domain)}
	}
}

// guestAgent reports whether the guest agent answers, and the operating system that it names; nil if it names none. While the launcher does
// not answer, both are as they were.
func (s *run) guestAgent() (connected bool, os *kubevirt.GuestOS) {
	switch {
	case situation(s.launcher) != machine.Up:
		return false, nil
	case s.heard:
		return s.returns.Agent != nil, short(s.returns.Agent)
	}
	connected = slices.ContainsFunc(s.instance.Status.Conditions, func(c kubevirt.Condition) bool { return c.Type == agentConnected })
	return connected, s.instance.Status.GuestOSInfo
}

// short cuts what a guest says about itself to a length that a status may have; nil if it says nothing.
func short(os *kubevirt.GuestOS) *kubevirt.GuestOS {
	if os == nil || *os == (kubevirt.GuestOS{}) {
		return nil
	}
	cut := func(s string) string { return s[:min(len(s), 256)] }
	return &kubevirt.GuestOS{Name: cut(os.Name), KernelRelease: cut(os.KernelRelease), Version: cut(os.Version), PrettyName: cut(os.PrettyName),
		VersionID: cut(os.VersionID), KernelVersion: cut(os.KernelVersion), Machine: cut(os.Machine), ID: cut(os.ID)}
}

// credentialsSet is the condition that the guest agent has set the keys and passwords of accessCredentials.
const credentialsSet = "AccessCredentialsSynchronized"

// accessSet is the condition about accessCredentials; none without any for the agent. While the launcher does not answer, it is as it was.
func (s *run) accessSet() []kubevirt.Condition {
	switch {
	case situation(s.launcher) != machine.Up || s.heard && s.returns.Access == nil:
		return nil
	case !s.heard:
		at := slices.IndexFunc(s.instance.Status.Conditions, func(c kubevirt.Condition) bool { return c.Type == credentialsSet })
		if at < 0 {
			return nil
		}
		return s.instance.Status.Conditions[at : at+1]
	case *s.returns.Access != "":
		why := *s.returns.Access
		return []kubevirt.Condition{{Type: credentialsSet, Status: corev1.ConditionFalse, Message: why[:min(len(why), 256)]}}
	}
	return []kubevirt.Condition{{Type: credentialsSet, Status: corev1.ConditionTrue}}
}

// device is a device name in a domain: a launcher's answer is untrusted input.
var device = regexp.MustCompile(`^(vd|sd|hd|fd)[a-z]{1,2}$`)

// describeVolumes adds the device names, and that volumes with which the machine was started can be removed while it runs.
func (s *run) describeVolumes(all []kubevirt.VolumeStatus) {
	for n := range all {
		v := &all[n]
		v.Target = s.target(v.Name)
		at := slices.IndexFunc(s.instance.Spec.Volumes, func(x kubevirt.Volume) bool { return x.Name == v.Name })
		if v.Phase == "" && at >= 0 && s.instance.Spec.Volumes[at].CanBeRemoved() && situation(s.launcher) == machine.Up {
			v.Phase, v.HotplugVolume = kubevirt.VolumeReady, &kubevirt.HotplugVolumeStatus{AttachPodName: s.launcher.Name, AttachPodUID: s.launcher.UID}
		}
	}
}

// target is the device name of a volume's disk. While the launcher does not answer, it is as it was.
func (s *run) target(volume string) string {
	if situation(s.launcher) != machine.Up {
		return ""
	}
	if s.heard {
		if name := s.returns.Targets[volume]; device.MatchString(name) {
			return name
		}
		return ""
	}
	at := slices.IndexFunc(s.instance.Status.VolumeStatus, func(v kubevirt.VolumeStatus) bool { return v.Name == volume })
	if at < 0 {
		return ""
	}
	return s.instance.Status.VolumeStatus[at].Target
}

// shared are the conditions of an instance that its machine has too.
func (s *run) shared() []kubevirt.Condition {
	out := slices.Concat([]kubevirt.Condition{s.volumesReady()}, s.independent(), s.movable())
	if connected, _ := s.guestAgent(); connected {
		out = append(out, kubevirt.Condition{Type: agentConnected, Status: corev1.ConditionTrue})
	}
	return append(out, s.accessSet()...)
}

// sharedConditions are those of the machine's instance; none without one.
func (w *whole) sharedConditions() []kubevirt.Condition {
	if w.run == nil || w.instances() == machine.Stranger {
		return nil
	}
	return w.run.shared()
}

// observeSnapshots finds which volumes a snapshot of the machine has: those whose class has a VolumeSnapshotClass.
func (r *Reconciler) observeSnapshots(ctx context.Context, w *whole) error {
	for _, v := range w.vm.Spec.Template.Spec.Volumes {
		s := kubevirt.VolumeSnapshotStatus{Name: v.Name, Reason: fmt.Sprintf("Snapshot is not supported for this volumeSource type [%s]", v.Name)}
		if name, _ := render.ClaimOf(v); name != "" && v.Copied() == nil {
			var err error
			if s.Enabled, s.Reason, err = r.snapshottable(ctx, w.vm.Namespace, name, v.Name); err != nil {
				return err
			}
		}
		w.snapshots = append(w.snapshots, s)
	}
	return nil
}

// snapshottable reports whether a claim's class can take snapshots, and why not.
func (r *Reconciler) snapshottable(ctx context.Context, namespace, name, volume string) (can bool, why string, err error) {
	c, err := cluster.Get[corev1.PersistentVolumeClaim](ctx, r.reader, namespace, name)
	if err != nil {
		return false, "", err
	}
	if c == nil {
		return false, "PVC not found", nil
	}
	if c.Spec.StorageClassName == nil || *c.Spec.StorageClassName == "" {
		return false, fmt.Sprintf("Volume snapshots are not configured for this StorageClass [] [%s]", volume), nil
	}
	profile, err := cluster.Get[cdiv1.StorageProfile](ctx, r.reader, "", *c.Spec.StorageClassName)
	if err != nil {
		return false, "", err
	}
	if profile == nil || profile.Status.SnapshotClass == nil || *profile.Status.SnapshotClass == "" {
		return false, fmt.Sprintf("No VolumeSnapshotClass: Volume snapshots are not configured for this StorageClass [%s] [%s]", *c.Spec.StorageClassName, volume), nil
	}
	return true, "", nil
}
