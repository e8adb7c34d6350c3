package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// VirtualMachineInstance is one run of a machine: it is made when the machine starts and gone when it has stopped.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmi;vmis,categories=all
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="IP",type=string,JSONPath=`.status.interfaces[0].ipAddress`
// +kubebuilder:printcolumn:name="NodeName",type=string,JSONPath=`.status.nodeName`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
type VirtualMachineInstance struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:validation:XValidation:rule="!has(self.domain.devices.disks) || self.domain.devices.disks.all(d, !has(d.source) && !has(d.copy) && !has(d.access__dash__mode))",message="an instance names what is in a disk in volumes; source, access-mode and copy of a disk are for a VirtualMachine"
	// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || self.volumes.all(v, !has(v.container))",message="an instance has the disk that a container made; container is for a VirtualMachine"
	// +kubebuilder:validation:XValidation:rule="!has(self.volumes) || self.volumes.all(v, !has(v.bootEarly) || !v.bootEarly)",message="bootEarly says how a machine's DataVolume is made; it is for a VirtualMachine"
	Spec   VirtualMachineInstanceSpec   `json:"spec"`
	Status VirtualMachineInstanceStatus `json:"status,omitempty"`
}

// VirtualMachineInstanceList is a list of instances.
//
// +kubebuilder:object:root=true
type VirtualMachineInstanceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineInstance `json:"items"`
}

// VirtualMachineInstanceSpec describes the guest and the nodes that it may run on.
//
// +kubebuilder:validation:XValidation:rule="!has(self.startStrategy) || !has(self.livenessProbe)",message="a machine with a livenessProbe cannot start paused: its guest would not answer the probe"
type VirtualMachineInstanceSpec struct {
	Domain DomainSpec `json:"domain"`
	// NodeSelector are labels that the machine's node must have.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	Affinity     *corev1.Affinity  `json:"affinity,omitempty"`
	// SchedulerName is the scheduler that places the machine.
	SchedulerName string `json:"schedulerName,omitempty"`
	// Tolerations let the machine run on nodes with these taints.
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// TopologySpreadConstraints spread machines over nodes or zones.
	TopologySpreadConstraints []corev1.TopologySpreadConstraint `json:"topologySpreadConstraints,omitempty"`
	// PriorityClassName is the priority of the machine's pod.
	PriorityClassName string `json:"priorityClassName,omitempty"`
	// TerminationGracePeriodSeconds is how long the guest may take to shut down before it is switched off; 30 if unset.
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
	// StartStrategy is Paused for a guest whose processors stand still until it is unpaused; it runs at once if unset.
	StartStrategy *StartStrategy `json:"startStrategy,omitempty"`
	// EvictionStrategy says what happens to the guest when its node is drained. The default is in the KubeVirt object's configuration.
	EvictionStrategy *EvictionStrategy `json:"evictionStrategy,omitempty"`
	// Volumes that the machine's disks are.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Volumes []Volume `json:"volumes,omitempty"`
	// Networks that interfaces are connected to.
	//
	// +listType=map
	// +listMapKey=name
	Networks       []Network `json:"networks,omitempty"`
	LivenessProbe  *Probe    `json:"livenessProbe,omitempty"`
	ReadinessProbe *Probe    `json:"readinessProbe,omitempty"`
	// Hostname is the guest's name; the machine's if empty.
	Hostname string `json:"hostname,omitempty"`
	// Subdomain is the Service that gives the machine a name in the cluster's DNS.
	Subdomain string `json:"subdomain,omitempty"`
	// Architecture of the guest; only amd64.
	//
	// +kubebuilder:validation:Enum=amd64;""
	Architecture string `json:"architecture,omitempty"`
	// DNSPolicy is how the guest's names are looked up; ClusterFirst if unset.
	//
	// +kubebuilder:validation:Enum=ClusterFirstWithHostNet;ClusterFirst;Default;None
	DNSPolicy corev1.DNSPolicy `json:"dnsPolicy,omitempty"`
	// DNSConfig are name servers, domains and options besides those of the policy.
	DNSConfig *corev1.PodDNSConfig `json:"dnsConfig,omitempty"`
	// AccessCredentials are public keys and passwords that open the guest.
	//
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=256
	AccessCredentials []AccessCredential `json:"accessCredentials,omitempty"`
	// ServiceAccountName has no effect: the guest's pod has no token of the API server.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
	// ResourceClaims are refused: devices of the node are not given to a guest.
	//
	// +listType=atomic
	ResourceClaims []ResourceClaim `json:"resourceClaims,omitempty"`
	// UtilityVolumes are refused: Berth has no use for them.
	//
	// +listType=atomic
	UtilityVolumes []UtilityVolume `json:"utilityVolumes,omitempty"`
}

// StartStrategy is how a guest begins.
//
// +kubebuilder:validation:Enum=Paused
type StartStrategy string

// StartPaused starts the guest with its processors stopped until a user resumes it.
const StartPaused StartStrategy = "Paused"

// StartsPaused reports whether the guest starts with its processors stopped until a user resumes it.
func (s *VirtualMachineInstanceSpec) StartsPaused() bool {
	return s.StartStrategy != nil && *s.StartStrategy == StartPaused
}

// Probe asks the guest whether it is well, one way. Ports are numbers: a guest has no named ones.
//
// +kubebuilder:validation:XValidation:rule="[has(self.tcpSocket), has(self.httpGet), has(self.exec), has(self.guestAgentPing)].exists_one(x, x)",message="a probe asks in one way: set one of tcpSocket, httpGet, exec and guestAgentPing"
// +kubebuilder:validation:XValidation:rule="!has(self.tcpSocket) || type(self.tcpSocket.port) == int",message="tcpSocket.port must be a number: a guest has no named ports"
// +kubebuilder:validation:XValidation:rule="!has(self.httpGet) || type(self.httpGet.port) == int",message="httpGet.port must be a number: a guest has no named ports"
type Probe struct {
	TCPSocket *corev1.TCPSocketAction `json:"tcpSocket,omitempty"`
	HTTPGet   *corev1.HTTPGetAction   `json:"httpGet,omitempty"`
	// Exec runs a command in the guest through its guest agent; it is well if the command ends with 0.
	Exec *corev1.ExecAction `json:"exec,omitempty"`
	// GuestAgentPing asks whether the guest agent answers.
	GuestAgentPing *GuestAgentPing `json:"guestAgentPing,omitempty"`
	// InitialDelaySeconds is the time from the start to the first probe.
	InitialDelaySeconds int32 `json:"initialDelaySeconds,omitempty"`
	// TimeoutSeconds is the longest time that an answer may take.
	TimeoutSeconds int32 `json:"timeoutSeconds,omitempty"`
	// PeriodSeconds is the time from one probe to the next.
	PeriodSeconds int32 `json:"periodSeconds,omitempty"`
	// SuccessThreshold is the number of consecutive probes that must succeed.
	SuccessThreshold int32 `json:"successThreshold,omitempty"`
	// FailureThreshold is the number of consecutive probes that must fail.
	FailureThreshold int32 `json:"failureThreshold,omitempty"`
}

// GuestAgentPing has no settings.
type GuestAgentPing struct{}

// Network is a network that an interface can be connected to.
type Network struct {
	// Name is the name that interfaces refer to.
	Name string      `json:"name"`
	Pod  *PodNetwork `json:"pod,omitempty"`
	// Multus is another network than the pod's. It is refused.
	Multus *MultusNetwork `json:"multus,omitempty"`
	// ResourceClaim is a network device of the node. It is refused.
	ResourceClaim *ClaimRequest `json:"resourceClaim,omitempty"`
}

// PodNetwork is the network of the pod the guest runs in.
type PodNetwork struct {
	// VMNetworkCIDR are the addresses between pod and guest; 10.0.2.0/24 if unset.
	VMNetworkCIDR string `json:"vmNetworkCIDR,omitempty"`
	// VMIPv6NetworkCIDR has no effect: between pod and guest there is IPv4 alone.
	VMIPv6NetworkCIDR string `json:"vmIPv6NetworkCIDR,omitempty"`
}

// Phase is the progress of an instance.
type Phase string

// The phases.
const (
	PhasePending    Phase = "Pending"
	PhaseScheduling Phase = "Scheduling"
	PhaseScheduled  Phase = "Scheduled"
	PhaseRunning    Phase = "Running"
	PhaseSucceeded  Phase = "Succeeded"
	PhaseFailed     Phase = "Failed"
	PhaseUnknown    Phase = "Unknown"
)

// VirtualMachineInstanceStatus reports the state of the instance.
type VirtualMachineInstanceStatus struct {
	// NodeName is the node that the machine runs on.
	NodeName string `json:"nodeName,omitempty"`
	// Reason is one word for why the machine is in its phase.
	Reason string `json:"reason,omitempty"`
	Phase  Phase  `json:"phase,omitempty"`
	// PhaseTransitionTimestamps are the phases that the machine went through, and when.
	//
	// +listType=atomic
	PhaseTransitionTimestamps []PhaseTransition `json:"phaseTransitionTimestamps,omitempty"`
	// Conditions say what is true of the machine, since when and why.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// Interfaces are the guest's network interfaces with their addresses.
	Interfaces []NetworkInterface `json:"interfaces,omitempty"`
	// ActivePods are the machine's launchers: the UID of each with its node.
	ActivePods map[types.UID]string `json:"activePods,omitempty"`
	// VolumeStatus is the state of each volume.
	//
	// +listType=map
	// +listMapKey=name
	VolumeStatus []VolumeStatus      `json:"volumeStatus,omitempty"`
	QOSClass     *corev1.PodQOSClass `json:"qosClass,omitempty"`
	// ChangedBlockTracking says that backups of the machine can be incremental.
	ChangedBlockTracking *ChangedBlockTrackingStatus `json:"changedBlockTracking,omitempty"`
	// EvacuationNodeName is the node that the guest is to leave, while it is there.
	EvacuationNodeName string `json:"evacuationNodeName,omitempty"`
	// MigrationState is the last migration of the instance.
	MigrationState *MigrationState `json:"migrationState,omitempty"`
	// MigrationMethod is BlockMigration if some of its disks are copied, LiveMigration if none is.
	MigrationMethod string `json:"migrationMethod,omitempty"`
	// MigratedVolumes are the volumes whose disks are being sent into other claims.
	//
	// +listType=atomic
	MigratedVolumes []MigratedVolume `json:"migratedVolumes,omitempty"`
	// GuestOSInfo is the operating system as the guest agent reports it, while the agent answers.
	GuestOSInfo *GuestOS `json:"guestOSInfo,omitempty"`
	// LauncherContainerImageVersion is the image that the machine runs in.
	LauncherContainerImageVersion string `json:"launcherContainerImageVersion,omitempty"`
	// Machine is the board that the guest runs on.
	Machine *Machine      `json:"machine,omitempty"`
	Memory  *MemoryStatus `json:"memory,omitempty"`
}

// MemoryStatus is the guest's memory.
type MemoryStatus struct {
	// GuestAtBoot is how much memory the guest was started with.
	GuestAtBoot *Quantity `json:"guestAtBoot,omitempty"`
	// GuestCurrent is how much it has.
	GuestCurrent *Quantity `json:"guestCurrent,omitempty"`
	// GuestRequested is how much the machine asks for.
	GuestRequested *Quantity `json:"guestRequested,omitempty"`
}

// MigratedVolume is a volume whose disk is being sent into another claim.
type MigratedVolume struct {
	// VolumeName is the volume.
	VolumeName string `json:"volumeName"`
	// SourcePVCInfo is the claim that the disk is in, DestinationPVCInfo the one that it is to be in.
	SourcePVCInfo      *ClaimInfo `json:"sourcePVCInfo,omitempty"`
	DestinationPVCInfo *ClaimInfo `json:"destinationPVCInfo,omitempty"`
}

// PhaseTransition is when a phase began.
type PhaseTransition struct {
	Phase Phase `json:"phase,omitempty"`
	// PhaseTransitionTimestamp is when the phase began.
	PhaseTransitionTimestamp metav1.Time `json:"phaseTransitionTimestamp,omitempty"`
}

// NetworkInterface is an interface as the guest has it.
type NetworkInterface struct {
	// Name of the network.
	Name string `json:"name,omitempty"`
	// MAC is its hardware address.
	MAC string `json:"mac,omitempty"`
	// IP is its first address.
	IP string `json:"ipAddress,omitempty"`
	// IPs are all its addresses.
	IPs []string `json:"ipAddresses,omitempty"`
	// InfoSource names the source of the information: domain.
	InfoSource string `json:"infoSource,omitempty"`
}

// VolumeStatus is a volume as the guest has it.
type VolumeStatus struct {
	// Name of the volume.
	Name string `json:"name"`
	// Target is the device's name in the domain.
	Target string `json:"target"` // the device's name in the domain
	// Phase of a disk that is added or removed while the machine runs.
	Phase string `json:"phase,omitempty"`
	// Reason is one word for what is the matter with it.
	Reason string `json:"reason,omitempty"`
	// Message says what is waited for, or what went wrong.
	Message string `json:"message,omitempty"`
	// Size of the disk in bytes.
	Size int64 `json:"size,omitempty"`

	PersistentVolumeClaimInfo *ClaimInfo `json:"persistentVolumeClaimInfo,omitempty"`
	// HotplugVolume is set for a volume that was added while the guest ran.
	HotplugVolume *HotplugVolumeStatus `json:"hotplugVolume,omitempty"`
	// Copy is set for a volume that the guest has a copy of.
	Copy *CopyStatus `json:"copy,omitempty"`
}

// CopyStatus is the copy of a volume as the guest has it.
type CopyStatus struct {
	Mode CopyMode `json:"mode"`
	// Medium is the StorageClass of its claim, or "node".
	Medium string `json:"medium"`
	// Stored is the space that the volume takes there.
	Stored *Quantity `json:"stored,omitempty"`
	// Progress is how much of its master it has, such as "45%"; only for modes that bring in all of it.
	Progress string `json:"progress,omitempty"`
	// Reason is OnMaster, Filling, Cloning or Independent.
	Reason string `json:"reason,omitempty"`
	// Keep is set while the copy is to be kept, and after.
	Keep *KeepStatus `json:"keep,omitempty"`
}

// The reasons of a copy that is to be kept in a claim.
const (
	KeepClaimMissing = "ClaimMissing"
	KeepNotForIt     = "ClaimNotForIt" // the claim was not made for this copy
	KeepClaimLeaving = "ClaimLeaving"
	KeepStarting     = "Starting" // the claim is brought to the guest
	KeepUnderWay     = "Writing"
	KeepDone         = "Kept"
	KeepFailed       = "Failed"
)

// KeepStatus is a claim that a copy is kept in.
type KeepStatus struct {
	// ClaimName is the claim that gets the copy.
	ClaimName string `json:"claimName"`
	// Reason is ClaimMissing, ClaimNotForIt, ClaimLeaving, Starting, Writing, Kept or Failed.
	Reason string `json:"reason"`
	// Message says what is waited for, or what went wrong.
	Message string `json:"message,omitempty"`
	// Progress is how much is written, such as "45%".
	Progress string `json:"progress,omitempty"`
}

// ClaimInfo describes a volume's claim.
type ClaimInfo struct {
	// ClaimName is the claim's name.
	ClaimName string `json:"claimName,omitempty"`
	// AccessModes that the claim has.
	AccessModes []corev1.PersistentVolumeAccessMode `json:"accessModes,omitempty"`
	VolumeMode  *corev1.PersistentVolumeMode        `json:"volumeMode,omitempty"`
	Capacity    corev1.ResourceList                 `json:"capacity,omitempty"`
	Requests    corev1.ResourceList                 `json:"requests,omitempty"`
}

// Quantity is a shorthand of this package.
type Quantity = resource.Quantity
