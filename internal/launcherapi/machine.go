// Package launcherapi is the contract between the machine controller and the launcher: the orders that a launcher gets, the paths in its pod, and
// the report that it leaves when its guest has ended.
//
// It does not know libvirt or QEMU, which internal/launcher does, and it has no Kubernetes client, so that both sides can import it.
package launcherapi

import (
	"fmt"
	"maps"
	"slices"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/reach"
)

// The paths in the launcher's pod. The render package mounts volumes there.
const (
	TaskDir   = "/etc/berth/machine" // the files below, projected from the pod's own annotations
	TaskFile  = "machine.json"
	GoFile    = "go"         // contains "yes" when every disk is filled
	DisksFile = "disks.json" // a Disks: the disks that were added and removed since the guest started
	AgentFile = "agent"      // contains NoAgent if no agent runs on the node; it is written together with the "yes"

	FilesDir  = "/run/berth/volumes"
	BlockDir  = "/dev/berth"
	SetsDir   = "/dev/fdset"       // QEMU opens a path in it as a set of file descriptors
	StateDir  = "/run/berth/state" // overlays, generated images, sockets: lost with the pod
	OwnDir    = "/run/berth/launcher"
	KernelDir = StateDir + "/kernel" // the kernel of a kernelBoot container
	// OwnKernel and OwnInitrd are in the launcher's image: what machines from container images boot.
	OwnKernel = "/usr/share/berth/kernel/vmlinuz"
	OwnInitrd = "/usr/share/berth/kernel/initrd"
	// MountDir has ConfigMaps, Secrets and the disks of container images, in one directory for each volume.
	MountDir = "/run/berth/mounts"
	// MeetDir has the socket where a pod waits until the node's agent introduces it to another pod. The agent finds the volume by its name.
	MeetDir    = "/run/berth/meet"
	MeetVolume = "berth-meet"
)

// NoAgent is the content of AgentFile on a node without an agent, where the launcher is not introduced to other pods.
const NoAgent = "none"

// The directories, below the mount of a cloud-init volume, with the Secrets that the volume refers to.
const (
	UserDataMount    = "userdata"
	NetworkDataMount = "networkdata"
)

// AccessMount is the directory in MountDir, and the name of the volume, with the Secret of a machine's nth access credential.
func AccessMount(n int) string { return fmt.Sprintf("berth-access-%d", n) }

// EnvPrefix and EnvFromPrefix begin the names of those of the launcher's environment variables that are for the program of a container image: the
// variables that the machine lists, and those of whole ConfigMaps and Secrets.
const (
	EnvPrefix     = "BERTH_ENTRY_"
	EnvFromPrefix = "BERTH_ENTRIES_"
)

// ReadOnly and ReadWrite tell a holder how to open its disk.
const (
	ReadOnly  = "read-only"
	ReadWrite = "read-write"
)

// ReadyPort is the port of the readiness probe.
const ReadyPort = 8081

// ConsoleSocket is the socket where `launcher console` connects to the launcher of its pod.
const ConsoleSocket = OwnDir + "/console.sock"

// ProbeSocket is the socket where `launcher probe` connects to the launcher of its pod.
const ProbeSocket = OwnDir + "/probe.sock"

// Machine is the order that a launcher starts with: the instance's spec, and what only the controller knows.
type Machine struct {
	Namespace string                              `json:"namespace"`
	Name      string                              `json:"name"`
	UID       string                              `json:"uid"`
	Spec      kubevirt.VirtualMachineInstanceSpec `json:"spec"`
	// Emulate allows a guest without hardware virtualisation.
	Emulate bool `json:"emulate,omitempty"`
	// Block lists the volumes whose claims are devices; the other claims are directories with a disk.img.
	Block []string `json:"block,omitempty"`
	// Empty has the sizes of the disks to make on claims that have none, by volume.
	Empty map[string]int64 `json:"empty,omitempty"`
	// Sizes has the least sizes of disks in files on claims, by volume: a claim may have grown.
	Sizes map[string]int64 `json:"sizes,omitempty"`
	// Rooms has how many bytes the guest may write to copies whose size was not known when the machine was made, by volume. To other
	// copies it may write all that their disk has.
	Rooms map[string]int64 `json:"rooms,omitempty"`
	// Media has the storage classes of the claims with copies, by volume. Other copies are in directories of the node.
	Media map[string]string `json:"media,omitempty"`
	// Reach has the administrator's rules for the servers of network disks.
	Reach reach.Rules `json:"reach,omitempty"`
	// Plain lists the volumes whose images are in registries that the administrator allows to use without TLS.
	Plain []string `json:"plain,omitempty"`
	// Mirrored has the mirrors that images of volumes are read from, by volume.
	Mirrored map[string]string `json:"mirrored,omitempty"`
	// NoAgent says that no agent runs on the node, which would introduce the launcher to the node's cache of layers. It is read from AgentFile.
	NoAgent bool `json:"-"`
	// LogIn orders the launcher to log in at the servers of the network disks that the machine names before GoFile says yes, and to report
	// their addresses (Returns.Servers). Launchers of earlier versions did not do that.
	LogIn bool `json:"logIn,omitempty"`
	// Direct has the network disks behind claims that are not mounted, by volume.
	Direct map[string]netdisk.Direct `json:"direct,omitempty"`
	// Incoming is the ID of the move that brings the guest from another launcher; empty if the guest is started here.
	Incoming string `json:"incoming,omitempty"`
	// Sent lists the volumes whose claims are new and empty: their disks are sent with the guest.
	Sent []string `json:"sent,omitempty"`
	// Whole has the sizes of copies that have all of their masters, by volume. The guest brings them along; Spec does not say what they were copied from.
	Whole map[string]int64 `json:"whole,omitempty"`
	// Opened lists the volumes whose copies are in claims that the launcher which the guest comes from has too: they are opened as they are.
	Opened []string `json:"opened,omitempty"`
	// Updated lists those of Sent whose new claims the user chose, with the claim that each disk was on before. Old data on such a claim is
	// overwritten.
	Updated map[string]string `json:"updated,omitempty"`
}

// Resolve replaces the volumes with claims that are not mounted by their network disks.
func (m *Machine) Resolve() {
	for i, v := range m.Spec.Volumes {
		if d, ok := m.Direct[v.Name]; ok {
			m.Spec.Volumes[i] = d.Volume(v)
		}
	}
}

// Disks orders how a running machine's disks differ from those that it was started with.
type Disks struct {
	// Added lists the disks that pods beside the launcher's hand over.
	Added []kubevirt.Disk `json:"added,omitempty"`
	// Network has those of Added that are network disks, by volume. Their pods hand over the login.
	Network map[string]Added `json:"network,omitempty"`
	// Removed lists disks that the machine was started with and should no longer have.
	Removed []string `json:"removed,omitempty"`
	// Sizes has those of Machine.Sizes that have changed since, and the sizes of Added, by volume.
	Sizes map[string]int64 `json:"sizes,omitempty"`
	// Keeps has the claims that get copies, by the name that their holders hand them over under.
	Keeps map[string]KeepOrder `json:"keeps,omitempty"`
	// Serial increases by one with every change.
	Serial int `json:"serial,omitempty"`
}

// Added is a network disk that a running machine gets.
type Added struct {
	Volume kubevirt.Volume `json:"volume"`
	// Direct is set if the disk is behind a claim.
	Direct *netdisk.Direct `json:"direct,omitempty"`
}

// Machine returns the machine with the disk among its volumes.
func (a Added) Machine(m Machine) Machine {
	m.Spec.Volumes = append(slices.Clone(m.Spec.Volumes), a.Volume)
	if a.Direct != nil {
		m.Direct = maps.Clone(m.Direct)
		if m.Direct == nil {
			m.Direct = map[string]netdisk.Direct{}
		}
		m.Direct[a.Volume.Name] = *a.Direct
	}
	return m
}

// HoldLogin in place of a size tells a holder to hand over the login of a network disk, and no disk.
const HoldLogin = "login"

// Container is the name of the container that the machine runs in.
const Container = "compute"

// ReturnsPath is the path on ReadyPort where a launcher answers with Returns.
const ReturnsPath = "/returns"

// Returns is the status that a launcher reports while its guest runs.
type Returns struct {
	// Kept has the volumes whose disks the guest was asked to release and has not released for some time, with a message for each.
	Kept map[string]string `json:"kept,omitempty"`
	// Given lists the volumes that the guest was started with and has released. For a disk that was added, its holder reports that.
	Given []string `json:"given,omitempty"`
	// Waits describes what the guest waits for; empty while its disks answer.
	Waits string `json:"waits,omitempty"`
	// Cause is the fault that it waits for, if there is a name for it.
	Cause Fault `json:"cause,omitempty"`
	// Has lists the volumes that were added and whose disks the guest has.
	Has []string `json:"has,omitempty"`
	// Copies is the progress of the copies of volumes, by volume.
	Copies map[string]Copy `json:"copies,omitempty"`
	// Keeps is the progress of the claims that get copies, by the claim's UID.
	Keeps map[string]Keep `json:"keeps,omitempty"`
	// Serial is the serial of the orders that the launcher follows.
	Serial int `json:"serial,omitempty"`
	// BackedUp says that the disks are held for a backup: until it has read them, none is added, removed or resized.
	BackedUp bool `json:"backedUp,omitempty"`
	// Paused says that a user has paused the guest.
	Paused bool `json:"paused,omitempty"`
	// Early lists the volumes that were still being filled when the guest was started.
	Early []string `json:"early,omitempty"`
	// Servers has the addresses where the launcher has logged in for the network disks that the machine names, by volume; nil until it has
	// logged in for all of them.
	Servers map[string][]string `json:"servers,omitempty"`
	// Agent is the guest's operating system, as its agent reports it; nil if the agent does not answer.
	Agent *kubevirt.GuestOS `json:"agent,omitempty"`
	// Access is why the guest agent has not set all of the keys and passwords of accessCredentials; empty if it has; nil if there are none for
	// the agent, or if no agent answers.
	Access *string `json:"access,omitempty"`
	// Targets has the device names of the disks in the domain, such as vda, by volume.
	Targets map[string]string `json:"targets,omitempty"`
	// Move is the state of the guest's move; nil if there was none.
	Move *Moving `json:"move,omitempty"`
}

// CPUs returns the number of processors of the guest.
func CPUs(c *kubevirt.CPU) uint {
	if c == nil {
		return 1
	}
	return uint(max(c.Sockets, 1)) * uint(max(c.Cores, 1)) * uint(max(c.Threads, 1))
}

// Memory returns the memory of the guest; zero if the machine does not set it.
func Memory(d kubevirt.DomainSpec) *kubevirt.Quantity {
	if d.Memory != nil && d.Memory.Guest != nil {
		return d.Memory.Guest
	}
	return d.Resources.Requests.Memory()
}

// Board returns QEMU's name of the machine type.
func Board(m *kubevirt.Machine) string {
	if m == nil || m.Type == "" {
		return "q35"
	}
	return m.Type
}
