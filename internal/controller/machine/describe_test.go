package machine

import (
	"errors"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/controller/diskstate"
	"github.com/berth-vm/berth/internal/controller/observed"
	"github.com/berth-vm/berth/internal/controller/report"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// TestDescribe: AgentConnected, the operating system and the device names are those that the launcher reports, and stay unchanged
// while it does not answer.
func TestDescribe(t *testing.T) {
	long := strings.Repeat("x", 1000)
	debian := kubevirt.GuestOS{ID: "debian"}
	before := kubevirt.VirtualMachineInstanceStatus{GuestOSInfo: &debian, VolumeStatus: []kubevirt.VolumeStatus{{Name: "root", Target: "vda"}},
		Conditions: []kubevirt.Condition{{Type: report.AgentConnected, Status: corev1.ConditionTrue}}}
	for name, c := range map[string]struct {
		before    kubevirt.VirtualMachineInstanceStatus
		says      launcherapi.Returns
		err       error
		connected bool
		os        kubevirt.GuestOS
		target    string
	}{
		"an agent that answers":         {says: launcherapi.Returns{Agent: &debian, Targets: map[string]string{"root": "vda"}}, connected: true, os: debian, target: "vda"},
		"no agent":                      {before: before, says: launcherapi.Returns{Targets: map[string]string{"root": "vdb"}}, target: "vdb"},
		"no answer":                     {before: before, err: errors.New("away"), connected: true, os: debian, target: "vda"},
		"no answer, and nothing before": {err: errors.New("away")},
		"an agent without a system":     {before: before, says: launcherapi.Returns{Agent: &kubevirt.GuestOS{}}, connected: true},
		"a launcher that lies": {says: launcherapi.Returns{Agent: &kubevirt.GuestOS{Name: long}, Targets: map[string]string{"root": long}},
			connected: true, os: kubevirt.GuestOS{Name: long[:256]}},
	} {
		s := upOnly(c.before)
		r := &observed.Reader{Ask: func(*corev1.Pod) (launcherapi.Returns, error) { return c.says, c.err }}
		r.AskGuest(t.Context(), s)
		var next kubevirt.VirtualMachineInstanceStatus
		report.Describe(s, &next)
		volumes := []kubevirt.VolumeStatus{{Name: "root"}, {Name: "more"}}
		report.DescribeVolumes(s, volumes)
		connected := false
		for _, condition := range report.Shared(s) {
			connected = connected || condition.Type == report.AgentConnected
		}
		if connected != c.connected || ptr.Deref(next.GuestOSInfo, kubevirt.GuestOS{}) != c.os || next.GuestOSInfo != nil && c.os == (kubevirt.GuestOS{}) || volumes[0].Target != c.target {
			t.Errorf("%s: connected %t, %+v, %+v", name, connected, next.GuestOSInfo, volumes[0])
		}
		if v := volumes[1]; v.Phase != kubevirt.VolumeReady || v.HotplugVolume == nil || v.HotplugVolume.AttachPodName != "virt-launcher-vm" || volumes[0].Phase != "" {
			t.Errorf("%s: volumes are %+v", name, volumes)
		}
		if next.Machine == nil || next.Machine.Type != "q35" || next.LauncherContainerImageVersion != "launcher:v1" || next.Interfaces[0].InfoSource != "domain" {
			t.Errorf("%s: it says %+v", name, next)
		}
	}
}

// upOnly is an instance with a status whose guest runs.
func upOnly(before kubevirt.VirtualMachineInstanceStatus) *observed.Instance {
	owner := metav1.OwnerReference{UID: "u", Controller: new(true)}
	s := &observed.Instance{Run: diskstate.Run{
		Object: &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: "vm", UID: "u"}, Status: before},
		Launcher: &corev1.Pod{ObjectMeta: metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner}}, Status: corev1.PodStatus{
			Phase: corev1.PodRunning, PodIP: "10.0.0.1", Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}}},
	}}
	s.Launcher.Name, s.Launcher.Spec.NodeName = "virt-launcher-vm", "n"
	s.Launcher.Spec.Containers = []corev1.Container{{Name: launcherapi.Container, Image: "launcher:v1"}}
	s.Object.Spec.Volumes = []kubevirt.Volume{
		{Name: "root", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "root"}}},
		{Name: "more", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "more", Hotpluggable: true}}},
	}
	return s
}

// TestAccessCredentials: the condition is the one that the launcher reports, and stays unchanged while it does not answer.
func TestAccessCredentials(t *testing.T) {
	was := kubevirt.VirtualMachineInstanceStatus{Conditions: []kubevirt.Condition{{Type: report.CredentialsSet, Status: corev1.ConditionTrue}}}
	for name, c := range map[string]struct {
		before kubevirt.VirtualMachineInstanceStatus
		says   *string
		err    error
		want   []kubevirt.Condition
	}{
		"nothing to set":         {before: was},
		"all is set":             {says: ptr.To(""), want: was.Conditions},
		"not all is set":         {before: was, says: ptr.To("user a: none"), want: []kubevirt.Condition{{Type: report.CredentialsSet, Status: corev1.ConditionFalse, Message: "user a: none"}}},
		"a launcher that lies":   {says: ptr.To(strings.Repeat("x", 1000)), want: []kubevirt.Condition{{Type: report.CredentialsSet, Status: corev1.ConditionFalse, Message: strings.Repeat("x", 256)}}},
		"no answer":              {before: was, err: errors.New("away"), want: was.Conditions},
		"no answer, none before": {err: errors.New("away")},
	} {
		s := upOnly(c.before)
		r := &observed.Reader{Ask: func(*corev1.Pod) (launcherapi.Returns, error) { return launcherapi.Returns{Access: c.says}, c.err }}
		r.AskGuest(t.Context(), s)
		if got := report.AccessSet(s); !slices.Equal(got, c.want) {
			t.Errorf("%s: %+v, want %+v", name, got, c.want)
		}
	}
}
