package render

import (
	"encoding/json"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/netdisk"
)

func machine() Machine {
	i := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "web", UID: "0123456789", Labels: map[string]string{"app": "web"}}}
	s := &i.Spec
	s.Domain.CPU = &kubevirt.CPU{Cores: 2}
	s.Domain.Memory = &kubevirt.Memory{Guest: ptr.To(resource.MustParse("1Gi"))}
	s.Domain.Firmware = &kubevirt.Firmware{KernelBoot: &kubevirt.KernelBoot{
		Container: &kubevirt.KernelBootContainer{Image: "kernel", KernelPath: "/boot/vmlinuz", InitrdPath: "boot/initrd"}}}
	s.NodeSelector = map[string]string{"zone": "a"}
	s.Tolerations = []corev1.Toleration{{Key: "vm", Operator: corev1.TolerationOpExists}}
	s.PriorityClassName = "high"
	s.ReadinessProbe = &kubevirt.Probe{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(22)}, PeriodSeconds: 5}
	s.LivenessProbe = &kubevirt.Probe{GuestAgentPing: &kubevirt.GuestAgentPing{}}
	s.Volumes = []kubevirt.Volume{
		{Name: "root", VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "web-root"}}},
		{Name: "data", VolumeSource: kubevirt.VolumeSource{PersistentVolumeClaim: &kubevirt.ClaimSource{ClaimName: "web-data"}}},
		{Name: "seed", VolumeSource: kubevirt.VolumeSource{CloudInitNoCloud: &kubevirt.CloudInitSource{
			UserDataSecretRef: &corev1.LocalObjectReference{Name: "seed"}}}},
		{Name: "tools", VolumeSource: kubevirt.VolumeSource{ContainerDisk: &kubevirt.ContainerDiskSource{Image: "tools"}}},
	}
	return Machine{Instance: i, Block: []string{"data"}, Image: "launcher", KVM: "devices.kubevirt.io/kvm",
		Copies: []Copy{{Volume: "tools", Room: 1 << 30}}}
}

func TestMachinePods(t *testing.T) {
	pods := map[string]*corev1.Pod{}
	for name, p := range map[string]Payload{"consumer": Consumer, "launcher": Launcher} {
		pod, err := machine().Pod(p)
		if err != nil {
			t.Fatal(err)
		}
		sameYAML(t, name, pod)
		pods[name] = pod
	}
	for name, field := range map[string]func(corev1.PodSpec) any{
		"node selector": func(s corev1.PodSpec) any { return s.NodeSelector },
		"affinity":      func(s corev1.PodSpec) any { return s.Affinity },
		"tolerations":   func(s corev1.PodSpec) any { return s.Tolerations },
		"priority":      func(s corev1.PodSpec) any { return s.PriorityClassName },
		"resources":     func(s corev1.PodSpec) any { return s.Containers[0].Resources },
		"claims":        claimsOf,
	} {
		if diff := cmp.Diff(field(pods["consumer"].Spec), field(pods["launcher"].Spec)); diff != "" {
			t.Errorf("consumer and launcher would be placed differently, by their %s:\n%s", name, diff)
		}
	}
}

// TestTargetPod: a pod that a guest comes to is placed as the guest's own was, on any node but that one.
func TestTargetPod(t *testing.T) {
	start := machine()
	m := machine()
	m.Incoming, m.From, m.Away = "89abcdef-0000", "virt-launcher-web-01234 node1", "node1"
	pod, err := m.Pod(Launcher)
	if err != nil {
		t.Fatal(err)
	}
	first, err := start.Pod(Launcher)
	if err != nil {
		t.Fatal(err)
	}
	if pod.Name == first.Name || pod.Annotations[AnnFrom] != "virt-launcher-web-01234 node1" {
		t.Errorf("its name is %s and it comes from %q", pod.Name, pod.Annotations[AnnFrom])
	}
	terms := pod.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms
	for i, term := range terms {
		want := corev1.NodeSelectorRequirement{Key: "metadata.name", Operator: corev1.NodeSelectorOpNotIn, Values: []string{"node1"}}
		if len(term.MatchFields) != 1 || !cmp.Equal(term.MatchFields[0], want) {
			t.Errorf("term %d allows node1: %+v", i, term)
		}
		terms[i].MatchFields = nil
	}
	if first.Spec.Affinity != nil && first.Spec.Affinity.NodeAffinity != nil {
		if diff := cmp.Diff(first.Spec.Affinity, pod.Spec.Affinity); diff != "" {
			t.Errorf("the machine's own constraints are others:\n%s", diff)
		}
	}
	pod.Spec.Affinity, first.Spec.Affinity = nil, nil
	if diff := cmp.Diff(first.Spec, pod.Spec); diff != "" {
		t.Errorf("it differs in more than its place:\n%s", diff)
	}
}

// TestDirectPod: a claim that is opened directly is named by the pod and mounted by no container; its login is.
func TestDirectPod(t *testing.T) {
	m := machine()
	m.Block = nil
	m.Open("data", netdisk.Direct{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{Host: kubevirt.NetworkHost{Name: "san"},
		Portal: "iqn.2017-01.io.kubevirt:sn.42", LUN: 2, SecretRef: &corev1.LocalObjectReference{Name: LoginName(m.Instance, "data")}}}})
	pod, err := m.Pod(Launcher)
	if err != nil {
		t.Fatal(err)
	}
	sameYAML(t, "launcher-direct", pod)
}

// TestLabelsOfAMachine: a pod has the labels of its instance, but none by which Berth knows something of pods.
func TestLabelsOfAMachine(t *testing.T) {
	m := machine()
	m.Instance.Labels = map[string]string{"app": "web", "team.berth.dev/group": "a", LabelClaimUID: "forged", LabelVolume: "forged"}
	for _, p := range []Payload{Consumer, Launcher} {
		pod, err := m.Pod(p)
		if err != nil {
			t.Fatal(err)
		}
		want := map[string]string{"app": "web", "team.berth.dev/group": "a", LabelMachine: "virt-launcher", LabelCreatedBy: "0123456789", LabelDomain: "web"}
		if diff := cmp.Diff(want, pod.Labels); diff != "" {
			t.Errorf("labels (-want +got):\n%s", diff)
		}
	}
}

func claimsOf(s corev1.PodSpec) any {
	var names []string
	for _, v := range s.Volumes {
		if v.PersistentVolumeClaim != nil {
			names = append(names, v.PersistentVolumeClaim.ClaimName)
		}
	}
	return names
}

// TestMasterIsRead: the claim of a master is mounted so that nothing in the pod can write to it, and the pod requests the possible
// size of the copy if the machine sets it.
func TestMasterIsRead(t *testing.T) {
	m := machine()
	for i := range m.Instance.Spec.Volumes[:2] {
		m.Instance.Spec.Volumes[i].Copy = &kubevirt.DiskCopy{Mode: kubevirt.CopyOnWrite}
	}
	m.Copies = []Copy{{Volume: "root", Room: 1 << 30, Claimed: true}, {Volume: "data", Room: 10 << 30}, {Volume: "tools"}}
	pod, err := m.Pod(Launcher)
	if err != nil {
		t.Fatal(err)
	}
	limits := map[string]int64{}
	for _, v := range pod.Spec.Volumes {
		if v.PersistentVolumeClaim != nil && !v.PersistentVolumeClaim.ReadOnly {
			t.Errorf("claim %s can be written to", v.PersistentVolumeClaim.ClaimName)
		}
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit != nil {
			limits[v.Name] = v.EmptyDir.SizeLimit.Value()
		}
	}
	want := map[string]int64{"berth-copy-root": 1<<30 + 1<<20 + 20<<20, "berth-copy-data": 10<<30 + 10<<20 + 20<<20, "berth-copy-tools": 64<<30 + 64<<20 + 20<<20}
	if diff := cmp.Diff(want, limits); diff != "" {
		t.Errorf("size limits:\n%s", diff)
	}
	if got, want := pod.Spec.Containers[0].Resources.Requests.StorageEphemeral().Value(), int64(1<<30+1<<20+4<<20+1<<30+256<<20); got != want {
		t.Errorf("the node must have %d bytes, not %d", got, want)
	}
	var said launcherapi.Machine
	if err := json.Unmarshal([]byte(pod.Annotations[AnnMachine]), &said); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]int64{"tools": 64 << 30}, said.Rooms); diff != "" {
		t.Errorf("what the launcher is to keep to:\n%s", diff)
	}
}

func TestHotplugPods(t *testing.T) {
	m := machine()
	launcher, err := m.Pod(Launcher)
	if err != nil {
		t.Fatal(err)
	}
	launcher.UID, launcher.Spec.NodeName = "abcdefgh", "node1"
	hot := Hot{Machine: m, Launcher: launcher, Block: true, Volume: kubevirt.Volume{Name: "extra",
		VolumeSource: kubevirt.VolumeSource{DataVolume: &kubevirt.DataVolumeSource{Name: "more", Hotpluggable: true}}}}
	sameYAML(t, "hotplug-holder", hot.Pod(Launcher))
	hot.Block = false
	sameYAML(t, "hotplug-consumer", hot.Pod(Consumer))
	lun := netdisk.Direct{NetworkSource: kubevirt.NetworkSource{ISCSI: &kubevirt.ISCSISource{Host: kubevirt.NetworkHost{Name: "san"},
		Portal: "iqn.2017-01.io.kubevirt:sn.42", LUN: 2, SecretRef: &corev1.LocalObjectReference{Name: "chap"}}}}
	hot.Network = &launcherapi.Added{Volume: lun.Volume(hot.Volume), Direct: &lun}
	sameYAML(t, "hotplug-direct", hot.Pod(Launcher))
	hot.Volume = hot.Network.Volume
	hot.Network.Direct = nil
	sameYAML(t, "hotplug-network", hot.Pod(Launcher))
}

// TestImageOfAMachine: a container image is pulled with what its volume names, and the kubelet looks up its program's environment under names
// that mean nothing to the launcher.
func TestImageOfAMachine(t *testing.T) {
	m := machine()
	m.Copies = nil
	m.Instance.Spec.Volumes = []kubevirt.Volume{{Name: "root", VolumeSource: kubevirt.VolumeSource{ContainerImage: &kubevirt.ContainerImageSource{
		Image: "i", ImagePullSecret: "login", CertConfigMap: "roots",
		Env: []kubevirt.EnvVar{{Name: "LD_PRELOAD", Value: "$(x)"}, {Name: "PATH", ValueFrom: &kubevirt.EnvVarSource{
			SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}},
		EnvFrom: []kubevirt.EnvFromSource{{Prefix: "X_", ConfigMapRef: &corev1.ConfigMapEnvSource{}}},
	}}}}
	pod, err := m.Pod(Launcher)
	if err != nil {
		t.Fatal(err)
	}
	c := pod.Spec.Containers[0]
	if diff := cmp.Diff([]corev1.EnvVar{{Name: "BERTH_ENTRY_PATH", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{Key: "k"}}}}, c.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]corev1.EnvFromSource{{Prefix: "BERTH_ENTRIES_X_", ConfigMapRef: &corev1.ConfigMapEnvSource{}}}, c.EnvFrom); diff != "" {
		t.Errorf("environment of whole objects (-want +got):\n%s", diff)
	}
	mounted := map[string]string{}
	for _, v := range c.VolumeMounts {
		mounted[v.MountPath] = v.Name
	}
	for path, want := range map[string]string{"/run/berth/mounts/root": "root", "/run/berth/mounts/root/credentials": "root-secret", "/run/berth/mounts/root/ca": "root-ca"} {
		if mounted[path] != want {
			t.Errorf("%s is %q, want %q", path, mounted[path], want)
		}
	}
	room := pod.Spec.Volumes[slices.IndexFunc(pod.Spec.Volumes, func(v corev1.Volume) bool { return v.Name == "root" })].EmptyDir
	if room == nil || room.SizeLimit == nil || room.SizeLimit.Value() <= launcherapi.ImageBytes {
		t.Errorf("the layers are in %v: want a directory with a limit above what the launcher keeps to", room)
	}
	consumer, err := m.Pod(Consumer)
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range []*corev1.Pod{pod, consumer} {
		if asked := p.Spec.Containers[0].Resources.Requests.StorageEphemeral(); asked.Value() != 1<<30 {
			t.Errorf("%s asks for %s of the node's storage, want 1Gi for the layers", p.Name, asked)
		}
	}
	if c := consumer.Spec.Containers[0]; len(c.Env)+len(c.EnvFrom) > 0 {
		t.Error("a consumer has the program's environment")
	}
}
