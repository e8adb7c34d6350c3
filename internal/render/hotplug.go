package render

import (
	"path"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/launcherapi"
)

// Labels of the pods of a volume that is added to a running machine.
const (
	HotplugDisk   = "hotplug-disk"       // value of LabelMachine on them
	LabelInstance = "berth.dev/instance" // the name of the instance they are for
	LabelVolume   = "berth.dev/volume"   // the name of the volume in it
)

// keepPrefix begins the name of the volume of a claim that a copy is kept in. No volume of a machine can be called so: the name of
// one in a pod has no dot.
const keepPrefix = "keep."

// KeepName is the volume of the claim that the copy of a volume is kept in.
func KeepName(volume string) string { return fit(keepPrefix + volume) }

// IsKeep says that a name is one of those.
func IsKeep(name string) bool { return strings.HasPrefix(name, keepPrefix) }

// Hot is a volume that is added to a running machine.
type Hot struct {
	Machine  Machine
	Launcher *corev1.Pod // where the guest runs
	Volume   kubevirt.Volume
	Block    bool               // its claim is a device
	ReadOnly bool               // the guest may only read it
	Empty    int64              // the size of the disk to make in the claim if it has none; 0: none is made
	Network  *launcherapi.Added // the disk is at a server, whether it is a claim's or not; nil: it is mounted
}

// PodName is the name of the volume's pod; it says which launcher it is for, so that the next one never meets it.
func (h Hot) PodName(p Payload) string {
	uid := string(h.Launcher.UID)
	name := "hp-volume-" + h.Volume.Name + "-" + uid[:min(5, len(uid))]
	if p == Consumer {
		name += "-consumer"
	}
	return fit(name)
}

// Pod is the pod that hands the disk to the launcher, or the first consumer of its claim. It belongs to the launcher and is placed
// on the same node; if its claim cannot be used there it stays unschedulable, and the scheduler says why.
func (h Hot) Pod(p Payload) *corev1.Pod {
	claim, readOnly := ClaimOf(h.Volume)
	mode := launcherapi.ReadWrite
	if readOnly || h.ReadOnly {
		mode = launcherapi.ReadOnly
	}
	small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5m"), corev1.ResourceMemory: resource.MustParse("32Mi")} // more than it uses: the kubelet evicts others first
	c := corev1.Container{
		Name: "hotplug-disk", Image: h.Machine.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:                  []string{"/usr/bin/launcher", "hold", h.Volume.Name, mode, strconv.FormatInt(h.Empty, 10)},
		Resources:                corev1.ResourceRequirements{Requests: small},
		SecurityContext:          h.Machine.container().SecurityContext,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: h.PodName(p), Namespace: h.Launcher.Namespace,
			Labels: map[string]string{LabelMachine: HotplugDisk, LabelInstance: h.Machine.Instance.Name, LabelVolume: h.Volume.Name,
				LabelCreatedBy: string(h.Machine.Instance.UID)},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(h.Launcher, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyOnFailure, // with the kubelet's own pauses between tries
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(atOnce),
			Tolerations:                   h.Machine.Instance.Spec.Tolerations,
			PriorityClassName:             h.Machine.Instance.Spec.PriorityClassName,
			Affinity:                      onNode(h.Launcher.Spec.NodeName),
		},
	}
	if claim != "" {
		pod.Spec.Volumes = []corev1.Volume{{Name: "disk", VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim, ReadOnly: readOnly}}}}
	}
	m := h.Machine
	m.Block = nil
	if h.Block && h.Network == nil {
		m.Block = []string{h.Volume.Name}
	}
	h.give(pod, &c)
	pod.Spec.SecurityContext = m.security()
	if p == Consumer {
		pod.Annotations = map[string]string{AnnConsumer: "true"}
		c.Command = []string{"/usr/bin/launcher", "consume"}
	} else {
		pod.Finalizers = []string{LauncherEnd}
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: launcherapi.MeetVolume, VolumeSource: corev1.VolumeSource{
			EmptyDir: &corev1.EmptyDirVolumeSource{}}})
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: launcherapi.MeetVolume, MountPath: launcherapi.MeetDir})
		c.StartupProbe, c.ReadinessProbe = started(), ready(nil)
	}
	pod.Spec.Containers = []corev1.Container{c}
	return pod
}

// give lets the container have the disk, or what is needed to log in where it is.
func (h Hot) give(pod *corev1.Pod, c *corev1.Container) {
	switch {
	case h.Network != nil:
		c.Command[len(c.Command)-1] = launcherapi.HoldLogin
		for _, s := range networkMounts(h.Network.Volume) {
			pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: s.name, VolumeSource: s.source})
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: s.name, ReadOnly: true,
				MountPath: path.Join(launcherapi.MountDir, h.Volume.Name, s.dir)})
		}
	case h.Block:
		c.VolumeDevices = []corev1.VolumeDevice{{Name: "disk", DevicePath: path.Join(launcherapi.BlockDir, h.Volume.Name)}}
	default:
		c.VolumeMounts = []corev1.VolumeMount{{Name: "disk", MountPath: path.Join(launcherapi.FilesDir, h.Volume.Name)}}
	}
}

// most is more volumes than a machine can have.
const most = 1000

// Budget keeps a drain from removing the pods of a running guest's disks before the guest itself: QEMU would keep writing to a
// disk without a holder. It is deleted with the launcher, as are the pods.
func (h Hot) Budget() *policyv1.PodDisruptionBudget {
	uid := string(h.Launcher.UID)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{
			Name: fit("hp-volumes-" + h.Machine.Instance.Name + "-" + uid[:min(5, len(uid))]), Namespace: h.Launcher.Namespace,
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(h.Launcher, corev1.SchemeGroupVersion.WithKind("Pod"))},
		},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: ptr.To(intstr.FromInt32(most)),
			Selector: &metav1.LabelSelector{MatchLabels: map[string]string{
				LabelMachine: HotplugDisk, LabelCreatedBy: string(h.Machine.Instance.UID)}},
		},
	}
}

// onNode leaves the scheduler one node. A pod that named the node itself would pass the scheduler by, and with it the
// binding of its claim.
func onNode(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
		NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{
			{Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name}}}}}}}}
}
