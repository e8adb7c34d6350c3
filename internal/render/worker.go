package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"path"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"github.com/berth-vm/berth/internal/task"
)

// Where a worker finds its volumes.
const (
	TargetDir     = "/data"
	TargetDevice  = "/dev/berth-target"
	SourceDir     = "/source"
	SourceDevice  = "/dev/berth-source"
	DiskFile      = task.DiskFile
	CredentialDir = "/var/run/berth/credentials" //nolint:gosec // G101: where a Secret is mounted, not one
	CADir         = "/var/run/berth/ca"
	HeaderDir     = "/var/run/berth/headers"
	TLSDir        = "/var/run/berth/tls"
)

const (
	// guestUser is the user and group that QEMU runs as; the disk belongs to it from the start.
	guestUser = 107
	// diskGroup owns block devices on the distributions nodes run (Debian, RHEL, SUSE, Alpine: "disk", 6). A device keeps its owner
	// inside a container, so this group allows a worker without privileges to open it. Container runtimes set to
	// device_ownership_from_security_context give it to guestUser instead, and then the group does no harm.
	diskGroup = 6
)

// Disk is a claim as a worker sees it.
type Disk struct {
	Claim string
	Block bool
}

// path returns the path of the disk's bytes if the claim is mounted at dir or appears as device.
func (d Disk) path(dir, device string, content task.Content) string {
	switch {
	case d.Block:
		return device
	case content == task.Archive, content == task.Volume:
		return dir
	default:
		return path.Join(dir, DiskFile)
	}
}

// TargetPath returns the path that a worker writes d to.
func (d Disk) TargetPath(content task.Content) string {
	return d.path(TargetDir, TargetDevice, content)
}

// SourcePath returns the path that a worker reads d from.
func (d Disk) SourcePath(content task.Content) string {
	return d.path(SourceDir, SourceDevice, content)
}

// Secret is a Secret or ConfigMap that a worker reads from a directory, which its task names.
type Secret struct {
	Name      string
	Dir       string
	ConfigMap bool
}

// Worker holds all inputs of a worker pod.
type Worker struct {
	Name, Namespace string
	Role            string
	Owner           metav1.OwnerReference
	ClaimUID        types.UID
	VolumeUID       types.UID
	Attempt         int32
	Command         string // the worker's verb: what it does with its task
	Task            any    // task.Task or task.Serve
	Target          *Disk  // written
	Source          *Disk  // read
	Secrets         []Secret
	Listen          int32 // a port the worker serves on; it is ready when the port answers
	Peer            *Peer // another worker it speaks to
	Annotations     map[string]string
	Priority        string
	ServiceAccount  string
	Settings        Settings
}

// Peer is a worker's counterpart. Its certificate has this name; the pod itself resolves it, so that neither a Service nor the
// cluster's DNS is needed for one connection.
type Peer struct{ Name, IP string }

// Settings are the administrator's settings for all workers.
type Settings struct {
	Image        string
	PullPolicy   corev1.PullPolicy
	PullSecrets  []corev1.LocalObjectReference
	Resources    corev1.ResourceRequirements
	NodeSelector map[string]string
	Affinity     *corev1.Affinity
	Tolerations  []corev1.Toleration
}

// Pod is the worker's pod. It asks for no privilege at all and passes the restricted Pod Security Standard.
func (w Worker) Pod() (*corev1.Pod, error) {
	doc, err := json.Marshal(w.Task)
	if err != nil {
		return nil, fmt.Errorf("write the task of %s: %w", w.Name, err)
	}
	annotations := map[string]string{
		"sidecar.istio.io/inject": "false", "linkerd.io/inject": "disabled", // a sidecar never ends, nor would the pod
	}
	maps.Copy(annotations, w.Annotations)
	annotations[AnnTask] = string(doc)
	annotations[AnnAttempt] = strconv.Itoa(int(w.Attempt))
	labels := Labels(w.Role)
	labels[LabelClaimUID] = string(w.ClaimUID)
	labels[LabelVolumeUID] = string(w.VolumeUID)

	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: w.Name, Namespace: w.Namespace, Labels: labels, Annotations: annotations,
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                corev1.RestartPolicyNever, // retries are the controller's, with its back-off
			AutomountServiceAccountToken: ptr.To(false),
			EnableServiceLinks:           ptr.To(false),
			ServiceAccountName:           w.ServiceAccount,
			PriorityClassName:            w.Priority,
			ImagePullSecrets:             w.Settings.PullSecrets,
			NodeSelector:                 w.Settings.NodeSelector,
			Affinity:                     w.Settings.Affinity,
			Tolerations:                  w.Settings.Tolerations,
			SecurityContext:              podSecurity(w),
			Containers:                   []corev1.Container{w.container()},
			Volumes:                      w.volumes(),
		},
	}
	if w.Target != nil || w.Source != nil {
		holdsDisks(pod)
	}
	if w.Peer != nil {
		pod.Spec.HostAliases = []corev1.HostAlias{{IP: w.Peer.IP, Hostnames: []string{w.Peer.Name}}}
	}
	if w.Owner.UID != "" {
		pod.OwnerReferences = []metav1.OwnerReference{w.Owner}
	}
	return pod, nil
}

// holdsDisks makes a pod wait until it is recorded as a holder of its disks, and keeps it until it has ended.
func holdsDisks(pod *corev1.Pod) {
	pod.Finalizers = []string{WorkerEnd}
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: DiskGate}}
}

func podSecurity(w Worker) *corev1.PodSecurityContext {
	s := &corev1.PodSecurityContext{
		RunAsNonRoot:   ptr.To(true),
		RunAsUser:      ptr.To[int64](guestUser),
		RunAsGroup:     ptr.To[int64](guestUser),
		FSGroup:        ptr.To[int64](guestUser),
		SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		// Changing the owner of every file of an archive volume would take longer than the transfer.
		FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
	}
	if w.Target != nil && w.Target.Block || w.Source != nil && w.Source.Block {
		s.SupplementalGroups = []int64{diskGroup}
	}
	return s
}

func (w Worker) container() corev1.Container {
	c := corev1.Container{
		Name:            "worker",
		Image:           w.Settings.Image,
		ImagePullPolicy: w.Settings.PullPolicy,
		Command:         []string{program, w.Command},
		Resources:       w.Settings.Resources,
		Ports:           []corev1.ContainerPort{{Name: "progress", ContainerPort: task.ProgressPort}},
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false),
			ReadOnlyRootFilesystem:   ptr.To(true),
			RunAsNonRoot:             ptr.To(true),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		TerminationMessagePath:   task.ReportPath,
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
		VolumeMounts:             []corev1.VolumeMount{{Name: "task", MountPath: path.Dir(task.TaskPath), ReadOnly: true}},
	}
	if w.Listen != 0 {
		c.Ports = append(c.Ports, corev1.ContainerPort{Name: "data", ContainerPort: w.Listen})
		c.ReadinessProbe = &corev1.Probe{PeriodSeconds: 1, ProbeHandler: corev1.ProbeHandler{
			TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromInt32(w.Listen)},
		}}
	}
	attach(&c, w.Target, target, TargetDir, TargetDevice, false)
	attach(&c, w.Source, "source", SourceDir, SourceDevice, true)
	for i, s := range w.Secrets {
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{
			Name: fmt.Sprintf("secret-%d", i), MountPath: s.Dir, ReadOnly: true,
		})
	}
	return c
}

func attach(c *corev1.Container, d *Disk, name, dir, device string, readOnly bool) {
	switch {
	case d == nil:
	case d.Block:
		c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: name, DevicePath: device})
	default:
		c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: name, MountPath: dir, ReadOnly: readOnly})
	}
}
