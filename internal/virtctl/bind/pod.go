// Package bind makes a claim that waits for its first consumer find a volume: it starts a pod that uses the claim where
// the user wants the volume to be, waits until the claim is bound, and removes the pod, also when it is interrupted.
//
// The pod is never meant to run. Kubernetes binds a pod's claims before it gives the pod to a node, so nothing has to
// be fetched or started; the package does not know what the volume will be filled with.
package bind

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/render"
)

// Place selects the node of a volume. Its zero value selects any node.
type Place struct {
	Node string // the node of that name
	// Like is a machine: the volume should be on a node that can run it, beside the volumes it has already.
	Like *Machine
}

// Machine has the fields that decide where a machine can run.
type Machine struct {
	Name   string
	Spec   kubevirt.VirtualMachineInstanceSpec
	Claims []string            // those that are bound: their volumes may be on one node only
	KVM    corev1.ResourceName // what a node with working KVM offers; empty if no node does
}

// image is never pulled; a node that happens to have it runs it for the moment the pod exists.
const image = "registry.k8s.io/pause:3.10"

const (
	user = 107 // QEMU's, as every pod that touches a disk
	// lifetime ends a pod whose virtctl was killed before it could.
	lifetime = 600
)

// Pod returns the consumer of a claim. It meets the restricted Pod Security standard and belongs to the claim, so that it goes
// with it at the latest.
func Pod(claim *corev1.PersistentVolumeClaim, at Place) (*corev1.Pod, error) {
	spec := corev1.PodSpec{}
	room := corev1.ResourceRequirements{}
	if at.Like != nil {
		var err error
		if spec, room, err = like(at.Like); err != nil {
			return nil, err
		}
	}
	if room.Requests == nil {
		small := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1m"), corev1.ResourceMemory: resource.MustParse("8Mi")}
		room = corev1.ResourceRequirements{Requests: small, Limits: small} // a quota may insist on limits
	}
	if at.Node != "" {
		spec.Affinity = onNode(at.Node)
	}
	container := corev1.Container{
		Name: "consumer", Image: image, ImagePullPolicy: corev1.PullNever, Resources: room,
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
	add(&spec, &container, "volume", claim.Name, claim.Spec.VolumeMode)
	spec.Containers = []corev1.Container{container}
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.AutomountServiceAccountToken, spec.EnableServiceLinks = ptr.To(false), ptr.To(false)
	spec.TerminationGracePeriodSeconds, spec.ActiveDeadlineSeconds = ptr.To[int64](1), ptr.To[int64](lifetime)
	spec.SecurityContext = &corev1.PodSecurityContext{
		RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](user), RunAsGroup: ptr.To[int64](user),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
	}
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			GenerateName: "consumer-" + claim.Name[:min(len(claim.Name), 40)] + "-", Namespace: claim.Namespace,
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "virtctl"},
			Annotations: map[string]string{render.AnnConsumer: "true"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "v1", Kind: "PersistentVolumeClaim", Name: claim.Name, UID: claim.UID,
			}},
		},
		Spec: spec,
	}, nil
}

// add lets the pod use a claim; a claim without a volume mode is a filesystem.
func add(spec *corev1.PodSpec, c *corev1.Container, name, claim string, mode *corev1.PersistentVolumeMode) {
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: name, VolumeSource: corev1.VolumeSource{
		PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	if ptr.Deref(mode, corev1.PersistentVolumeFilesystem) == corev1.PersistentVolumeBlock {
		c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: name, DevicePath: "/dev/" + name})
		return
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: "/" + name})
}

func onNode(name string) *corev1.Affinity {
	return &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: []corev1.NodeSelectorTerm{{
			MatchFields: []corev1.NodeSelectorRequirement{{
				Key: metav1.ObjectNameField, Operator: corev1.NodeSelectorOpIn, Values: []string{name},
			}},
		}}},
	}}
}

// like returns what the scheduler looks at in a machine's own pods: rendered by the same function as they are, so that what fits
// the consumer fits the machine.
func like(m *Machine) (corev1.PodSpec, corev1.ResourceRequirements, error) {
	instance := &kubevirt.VirtualMachineInstance{ObjectMeta: metav1.ObjectMeta{Name: m.Name}, Spec: *m.Spec.DeepCopy()}
	pod, err := render.Machine{Instance: instance, KVM: m.KVM}.Pod(render.Consumer)
	if err != nil {
		return corev1.PodSpec{}, corev1.ResourceRequirements{}, fmt.Errorf("place like VM %s: %w", m.Name, err)
	}
	spec := corev1.PodSpec{
		NodeSelector: pod.Spec.NodeSelector, Affinity: pod.Spec.Affinity, SchedulerName: pod.Spec.SchedulerName,
		Tolerations: pod.Spec.Tolerations, TopologySpreadConstraints: pod.Spec.TopologySpreadConstraints,
		PriorityClassName: pod.Spec.PriorityClassName,
	}
	for i, claim := range m.Claims { // no container uses them: that they are the pod's is enough for the scheduler
		spec.Volumes = append(spec.Volumes, corev1.Volume{Name: fmt.Sprintf("beside-%d", i), VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}})
	}
	return spec, pod.Spec.Containers[0].Resources, nil
}
