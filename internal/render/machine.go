package render

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/disk"
	"github.com/berth-vm/berth/internal/launcherapi"
	"github.com/berth-vm/berth/internal/names"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/reach"
)

// Labels and annotations of a machine's pods. Clients read those of kubevirt.io.
const (
	LabelMachine   = "kubevirt.io"            // virt-launcher on consumers and launchers alike
	LabelCreatedBy = "kubevirt.io/created-by" // the instance's UID
	LabelDomain    = "kubevirt.io/domain"     // the instance's name

	// AnnConsumer marks a pod that is only there to be the first consumer of a machine's claims.
	AnnConsumer = "kubevirt.io/ephemeral-provisioning"
	AnnDomain   = "kubevirt.io/domain"
	AnnMachine  = "berth.dev/machine"  // what the launcher is to run
	AnnGo       = "berth.dev/go"       // "yes" once every disk is filled
	AnnDisks    = "berth.dev/disks"    // launcherapi.Disks: what was added and removed since
	AnnAgent    = "berth.dev/agent"    // launcherapi.NoAgent if the launcher's node has no agent; said with the word to go
	AnnMove     = "berth.dev/move"     // launcherapi.Move: where its guest is to go, or that it has come
	AnnServers  = "berth.dev/servers"  // launcherapi.Returns.Servers: where the launcher has logged in
	AnnReceives = "berth.dev/receives" // on a claim that a disk is being sent into, until all of it is there
	AnnFrom     = "berth.dev/from"     // of a pod that a guest is to come to: the pod and the node that it comes from

	// LauncherEnd is the finalizer that keeps a launcher or a holder until its containers have certainly ended, however it
	// is deleted: until then its disks are in use.
	LauncherEnd = "berth.dev/launcher-end"
)

// atOnce is the grace period of a pod that needs no shutdown. Zero would be a forced delete, which does not wait for the pod's end.
const atOnce int64 = 1

// Payload is the purpose of a machine's pod. All fields that the scheduler reads are the same for both.
type Payload int

// The payloads.
const (
	Consumer Payload = iota
	Launcher
)

// Machine holds all inputs of the pods of one instance.
type Machine struct {
	Instance *kubevirt.VirtualMachineInstance
	Block    []string         // names of the volumes whose claims are devices
	Empty    map[string]int64 // sizes of the disks to make where there is none, by volume
	Sizes    map[string]int64 // sizes that disks are to have at least, by volume
	Copies   []Copy           // where the copies of its volumes are
	Image    string
	Emulate  bool
	Reach    reach.Rules               // for the servers of network disks
	Plain    []string                  // names of the volumes whose images are in registries without TLS
	Mirrored map[string]string         // where images are read from that are named elsewhere, by volume
	Direct   map[string]netdisk.Direct // network disks behind claims that are not mounted, by volume
	KVM      corev1.ResourceName       // what a node offers if its KVM works; empty where emulation will do
	// Incoming is the migration that its guest comes with, From the pod and the node that it comes from; empty: it is started. Away is the node
	// that it must not be on.
	Incoming types.UID
	From     string
	Away     string
	// Servers is AnnServers of the launcher that the guest comes from.
	Servers string
	// Replaced are the claims that take the place of those that the guest leaves behind, by volume.
	Replaced map[string]string
	// Whole are the sizes of copies that have all of their masters, by volume. The pod has no use for those.
	Whole map[string]int64
	// Updated are the volumes that its owner changed to other claims while the guest ran, with the claim that each was in before.
	Updated map[string]string
}

// PodName is the name of an instance's pod: from its UID, so that a restarted machine never meets its predecessor's.
func (m Machine) PodName(p Payload) string {
	uid := string(m.Instance.UID)
	name := "virt-launcher-" + m.Instance.Name + "-" + uid[:min(5, len(uid))]
	switch {
	case p == Consumer:
		name += "-consumer"
	case m.Incoming != "":
		name += "-" + string(m.Incoming[:min(8, len(m.Incoming))])
	}
	return fit(name)
}

// Pod is the consumer or the launcher of an instance.
func (m Machine) Pod(p Payload) (*corev1.Pod, error) {
	doc, err := json.Marshal(launcherapi.Machine{
		Namespace: m.Instance.Namespace, Name: m.Instance.Name, UID: string(m.Instance.UID), Spec: m.Instance.Spec,
		Emulate: m.Emulate, Block: m.Block, Empty: m.Empty, Sizes: m.Sizes, Reach: m.Reach, Plain: m.Plain, Mirrored: m.Mirrored, LogIn: m.logsIn(), Media: m.media(), Rooms: m.rooms(), Direct: m.Direct,
		Incoming: string(m.Incoming), Sent: m.sent(), Whole: m.Whole, Opened: m.opened(), Updated: m.Updated,
	})
	if err != nil {
		return nil, fmt.Errorf("write the machine %s: %w", m.Instance.Name, err)
	}
	spec := m.Instance.Spec
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: m.PodName(p), Namespace: m.Instance.Namespace,
			Labels:      labelsOf(m.Instance),
			Annotations: map[string]string{AnnDomain: m.Instance.Name},
			OwnerReferences: []metav1.OwnerReference{
				*metav1.NewControllerRef(m.Instance, kubevirt.GroupVersion.WithKind("VirtualMachineInstance"))},
		},
		Spec: corev1.PodSpec{
			RestartPolicy:                 corev1.RestartPolicyNever,
			AutomountServiceAccountToken:  ptr.To(false),
			EnableServiceLinks:            ptr.To(false),
			TerminationGracePeriodSeconds: ptr.To(GracePeriod(spec)),
			NodeSelector:                  spec.NodeSelector,
			Affinity:                      elsewhere(spec.Affinity, m.Away),
			SchedulerName:                 spec.SchedulerName,
			Tolerations:                   spec.Tolerations,
			TopologySpreadConstraints:     spec.TopologySpreadConstraints,
			PriorityClassName:             spec.PriorityClassName,
			Hostname:                      spec.Hostname,
			Subdomain:                     spec.Subdomain,
			DNSPolicy:                     spec.DNSPolicy,
			DNSConfig:                     spec.DNSConfig,
			SecurityContext:               m.security(),
			Volumes:                       append(m.claimVolumes(), m.copyVolumes()...),
			Containers:                    []corev1.Container{m.container()},
		},
	}
	if p == Consumer {
		pod.Annotations[AnnConsumer] = "true"
		pod.Spec.Containers[0].Command = []string{"/usr/bin/launcher", "consume"}
		pod.Spec.TerminationGracePeriodSeconds = ptr.To(atOnce)
		return pod, nil
	}
	pod.Finalizers = []string{LauncherEnd}
	pod.Annotations[AnnMachine] = string(doc)
	backupHooks(pod, m.Instance)
	if m.Incoming != "" {
		pod.Annotations[AnnFrom] = m.From
		if m.Servers != "" {
			pod.Annotations[AnnServers] = m.Servers
		}
	}
	m.payload(pod)
	return pod, nil
}

// logsIn reports whether the launcher logs in at servers that the machine names before it is told to start. A guest that moves
// here has its disks open already.
func (m Machine) logsIn() bool {
	return m.Incoming == "" && slices.ContainsFunc(m.Instance.Spec.Volumes, func(v kubevirt.Volume) bool { return v.AtServer() })
}

// labelsOf are the instance's labels, and ours. Keys of berth.dev on a pod are Berth's word, so an instance gives its pods none of them. An
// instance is left out of backups and its pods are not: their annotations say how a guest is frozen for one.
func labelsOf(i *kubevirt.VirtualMachineInstance) map[string]string {
	labels := map[string]string{}
	for k, v := range i.Labels {
		if !strings.HasPrefix(k, "berth.dev/") && k != names.NoBackup {
			labels[k] = v
		}
	}
	labels[LabelMachine], labels[LabelCreatedBy] = "virt-launcher", string(i.UID)
	labels[LabelDomain] = i.Name
	return labels
}

// GracePeriod leaves the launcher some time after the guest's own; a guest that is given none is switched off
// at once.
func GracePeriod(spec kubevirt.VirtualMachineInstanceSpec) int64 {
	g := ptr.Deref(spec.TerminationGracePeriodSeconds, 30)
	if g <= 0 {
		return atOnce
	}
	return g + 15
}

func (m Machine) security() *corev1.PodSecurityContext {
	s := &corev1.PodSecurityContext{
		RunAsNonRoot:        ptr.To(true),
		RunAsUser:           ptr.To[int64](guestUser),
		RunAsGroup:          ptr.To[int64](guestUser),
		FSGroup:             ptr.To[int64](guestUser),
		SeccompProfile:      &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
		FSGroupChangePolicy: ptr.To(corev1.FSGroupChangeOnRootMismatch),
	}
	if len(m.Block) > 0 {
		s.SupplementalGroups = []int64{diskGroup}
	}
	return s
}

// container returns the one container of both payloads: the scheduler places the machine by its resources.
func (m Machine) container() corev1.Container {
	c := corev1.Container{
		Name: launcherapi.Container, Image: m.Image, ImagePullPolicy: corev1.PullIfNotPresent,
		Command:   []string{"/usr/bin/launcher", "run"},
		Resources: m.resources(),
		SecurityContext: &corev1.SecurityContext{
			AllowPrivilegeEscalation: ptr.To(false), RunAsNonRoot: ptr.To(true),
			Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
		TerminationMessagePolicy: corev1.TerminationMessageReadFile,
	}
	for _, v := range m.Instance.Spec.Volumes {
		_, direct := m.Direct[v.Name]
		switch name, _ := ClaimOf(v); {
		case name == "", direct: // the pod names the claim, which keeps it, and mounts nothing
		case slices.Contains(m.Block, v.Name):
			c.VolumeDevices = append(c.VolumeDevices, corev1.VolumeDevice{Name: v.Name, DevicePath: path.Join(launcherapi.BlockDir, v.Name)})
		default:
			c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: v.Name, MountPath: path.Join(launcherapi.FilesDir, v.Name)})
		}
	}
	c.VolumeMounts = append(c.VolumeMounts, m.copyMounts()...)
	return c
}

// overhead is the memory that QEMU and libvirt need besides the guest's.
var overhead = resource.MustParse("256Mi")

// perCPU is the CPU request for each virtual processor if the machine does not set one: guests idle most of the time.
var perCPU = resource.MustParse("100m")

func (m Machine) resources() corev1.ResourceRequirements {
	d := m.Instance.Spec.Domain
	r := corev1.ResourceRequirements{Requests: d.Resources.Requests.DeepCopy(), Limits: d.Resources.Limits.DeepCopy()}
	if r.Requests == nil {
		r.Requests = corev1.ResourceList{}
	}
	memory := r.Requests.Memory().DeepCopy()
	if d.Memory != nil && d.Memory.Guest != nil && memory.IsZero() {
		memory = d.Memory.Guest.DeepCopy()
	}
	if d.Memory != nil && d.Memory.ReservedOverhead != nil && d.Memory.ReservedOverhead.AddedOverhead != nil {
		memory.Add(*d.Memory.ReservedOverhead.AddedOverhead)
	}
	if !d.Resources.OvercommitGuestOverhead {
		memory.Add(overhead)
	}
	r.Requests[corev1.ResourceMemory] = memory
	if limit, ok := r.Limits[corev1.ResourceMemory]; ok {
		limit.Add(overhead)
		r.Limits[corev1.ResourceMemory] = limit
	}
	if _, ok := r.Requests[corev1.ResourceCPU]; !ok {
		cpu := perCPU.DeepCopy()
		cpu.Mul(int64(launcherapi.CPUs(d.CPU)))
		r.Requests[corev1.ResourceCPU] = cpu
	}
	if n := m.copyRequest(); n > 0 {
		room := r.Requests.StorageEphemeral().DeepCopy()
		room.Add(*resource.NewQuantity(n, resource.BinarySI))
		r.Requests[corev1.ResourceEphemeralStorage] = room
	}
	if m.KVM != "" {
		one := resource.MustParse("1")
		r.Requests[m.KVM] = one
		if r.Limits == nil {
			r.Limits = corev1.ResourceList{}
		}
		r.Limits[m.KVM] = one
	}
	return r
}

// ClaimOf returns the claim that a volume is in, and whether it may only be read.
func ClaimOf(v kubevirt.Volume) (name string, readOnly bool) { return disk.Claim(v) }

// sent are the volumes whose disks come with the guest into other claims.
func (m Machine) sent() []string {
	return slices.Sorted(maps.Keys(both(m.Replaced, m.Updated)))
}

func both(a, b map[string]string) map[string]string {
	out := maps.Clone(a)
	if out == nil {
		out = map[string]string{}
	}
	maps.Copy(out, b)
	return out
}

func (m Machine) claimVolumes() []corev1.Volume {
	var out []corev1.Volume
	for _, v := range m.Instance.Spec.Volumes {
		if name, readOnly := ClaimOf(v); name != "" {
			if other, ok := m.Replaced[v.Name]; ok {
				name = other
			}
			out = append(out, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: name, ReadOnly: readOnly},
			}})
		}
	}
	return out
}

// ready is the readiness probe of the guest; the machine's own probe, if it has one, checks the guest.
func ready(p *kubevirt.Probe) *corev1.Probe {
	if p == nil {
		return &corev1.Probe{PeriodSeconds: 1, FailureThreshold: 1, ProbeHandler: corev1.ProbeHandler{
			HTTPGet: &corev1.HTTPGetAction{Path: "/ready", Port: intstr.FromInt32(launcherapi.ReadyPort)}}}
	}
	return probe("readiness", p)
}

// started is the startup probe: the kubelet learns from it, once, that the guest runs or that the disk is open. One late answer to
// a readiness probe makes a pod unready; a container that has started stays so until it ends. The machine's own probes, which
// check its guest, begin after it.
func started() *corev1.Probe {
	p := ready(nil)
	p.FailureThreshold = math.MaxInt32
	return p
}

// probe is a machine's probe as its pod has it. What asks the guest agent is carried out by the launcher.
func probe(which string, p *kubevirt.Probe) *corev1.Probe {
	if p == nil {
		return nil
	}
	out := &corev1.Probe{
		ProbeHandler:        corev1.ProbeHandler{TCPSocket: p.TCPSocket, HTTPGet: p.HTTPGet},
		InitialDelaySeconds: p.InitialDelaySeconds, TimeoutSeconds: p.TimeoutSeconds, PeriodSeconds: p.PeriodSeconds,
		SuccessThreshold: p.SuccessThreshold, FailureThreshold: p.FailureThreshold,
	}
	if p.Exec != nil || p.GuestAgentPing != nil {
		out.Exec = &corev1.ExecAction{Command: []string{"/usr/bin/launcher", "probe", which}}
	}
	return out
}
