// Package launcherapi is what the machine controller and the launcher agree on: what a launcher is given, where things are in
// its pod, and what it leaves when its guest has ended.
//
// It knows nothing of libvirt or QEMU (internal/launcher does) and nothing of Kubernetes clients, so that both sides
// can hold it.
package launcherapi

import (
	"fmt"
	"maps"
	"slices"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
	"github.com/berth-vm/berth/internal/netdisk"
	"github.com/berth-vm/berth/internal/reach"
)

// Where things are in the launcher pod. The render package mounts them there.
const (
	TaskDir   = "/etc/berth/machine" // the files below, projected from the pod's own annotations
	TaskFile  = "machine.json"
	GoFile    = "go"         // says "yes" once every disk is filled
	DisksFile = "disks.json" // Disks: what was added and removed since the guest started
	AgentFile = "agent"      // says NoAgent if the node has no agent that runs; it is there together with a yes

	FilesDir  = "/run/berth/volumes"
	BlockDir  = "/dev/berth"
	SetsDir   = "/dev/fdset"       // QEMU's own word: a name in it is a set of files that it was handed
	StateDir  = "/run/berth/state" // overlays, generated images, sockets: lost with the pod
	OwnDir    = "/run/berth/launcher"
	KernelDir = StateDir + "/kernel" // the kernel of a kernelBoot container
	// OwnKernel and OwnInitrd are in the launcher's image: what machines from container images boot.
	OwnKernel = "/usr/share/berth/kernel/vmlinuz"
	OwnInitrd = "/usr/share/berth/kernel/initrd"
	// MountDir is where config maps, secrets and the disks of container images are, one directory a volume.
	MountDir = "/run/berth/mounts"
	// MeetDir is where a pod waits to be introduced to another by the node's agent, in a volume that the agent finds by name.
	MeetDir    = "/run/berth/meet"
	MeetVolume = "berth-meet"
)

// NoAgent is what AgentFile says where nobody introduces the launcher to anybody.
const NoAgent = "none"

// Directories under a cloud-init volume's mount where the secrets it refers to are.
const (
	UserDataMount    = "userdata"
	NetworkDataMount = "networkdata"
)

// AccessMount is the directory in MountDir, and the name of the volume, with the Secret of a machine's nth access credential.
func AccessMount(n int) string { return fmt.Sprintf("berth-access-%d", n) }

// EnvPrefix and EnvFromPrefix are before the names of the launcher's own variables that are meant for the program of a container image: those
// that the machine names, and those of whole ConfigMaps and Secrets.
const (
	EnvPrefix     = "BERTH_ENTRY_"
	EnvFromPrefix = "BERTH_ENTRIES_"
)

// ReadOnly and ReadWrite are how a holder opens its disk.
const (
	ReadOnly  = "read-only"
	ReadWrite = "read-write"
)

// ReadyPort is the port the readiness probe asks.
const ReadyPort = 8081

// ConsoleSocket is where `launcher console` reaches the launcher of its pod.
const ConsoleSocket = OwnDir + "/console.sock"

// ProbeSocket is where `launcher probe` reaches the launcher of its pod.
const ProbeSocket = OwnDir + "/probe.sock"

// Machine is what a launcher is given: the instance's own spec and what only the controller knows.
type Machine struct {
	Namespace string                              `json:"namespace"`
	Name      string                              `json:"name"`
	UID       string                              `json:"uid"`
	Spec      kubevirt.VirtualMachineInstanceSpec `json:"spec"`
	// Emulate allows a guest without hardware virtualisation.
	Emulate bool `json:"emulate,omitempty"`
	// Block names the volumes whose claims are devices; the others are directories with a disk.img.
	Block []string `json:"block,omitempty"`
	// Empty are the sizes of the disks to make in volumes that have none, by volume.
	Empty map[string]int64 `json:"empty,omitempty"`
	// Sizes are how large the disks in claims are to be at least, by volume: a claim may have grown. Those of devices are not among them.
	Sizes map[string]int64 `json:"sizes,omitempty"`
	// Rooms are how much the guest may write to each of the copies whose size was not known when the machine was planned, by volume. Of
	// the others it may write all.
	Rooms map[string]int64 `json:"rooms,omitempty"`
	// Media are the classes of the claims that copies are in, by volume; the others are in directories of the node.
	Media map[string]string `json:"media,omitempty"`
	// Reach are the administrator's rules for the servers of network disks.
	Reach reach.Rules `json:"reach,omitempty"`
	// Plain names the volumes whose images are in registries that the administrator lets be spoken to without TLS.
	Plain []string `json:"plain,omitempty"`
	// Mirrored are where images of volumes are read from that are named elsewhere, by volume.
	Mirrored map[string]string `json:"mirrored,omitempty"`
	// NoAgent: the node has no agent that would introduce the launcher to the node's cache of layers. It comes with the word to go.
	NoAgent bool `json:"-"`
	// LogIn: before it is told to go, the launcher logs in at the servers of the network disks that the machine names, and says where that
	// was (Returns.Servers). Launchers of earlier versions did not.
	LogIn bool `json:"logIn,omitempty"`
	// Direct are the network disks behind claims that are not mounted, by volume.
	Direct map[string]netdisk.Direct `json:"direct,omitempty"`
	// Incoming is the move that the guest comes with from another launcher; empty: it is started here.
	Incoming string `json:"incoming,omitempty"`
	// Sent are the volumes whose claims are new and empty: their disks come with the guest.
	Sent []string `json:"sent,omitempty"`
	// Updated are those of Sent whose claims their owner named, with the claim that each disk was in before. Whatever such a claim has goes.
	Updated map[string]string `json:"updated,omitempty"`
}

// Resolve makes network disks of the volumes that are not mounted.
func (m *Machine) Resolve() {
	for i, v := range m.Spec.Volumes {
		if d, ok := m.Direct[v.Name]; ok {
			m.Spec.Volumes[i] = d.Volume(v)
		}
	}
}

// Disks is how a running machine's disks should differ from the ones it was started with.
type Disks struct {
	// Added are in volumes of pods beside the launcher's, which hand them over.
	Added []kubevirt.Disk `json:"added,omitempty"`
	// Network are those of them that are at servers, by volume. Their pods hand over what is needed to log in.
	Network map[string]Added `json:"network,omitempty"`
	// Removed are names of disks the machine was started with and is to give up.
	Removed []string `json:"removed,omitempty"`
	// Sizes are those of Machine that have changed since, and those of Added, by volume.
	Sizes map[string]int64 `json:"sizes,omitempty"`
	// Keeps are the claims that copies are to be kept in, by the volume that their holders hand over.
	Keeps map[string]KeepOrder `json:"keeps,omitempty"`
	// Serial is one more with every change.
	Serial int `json:"serial,omitempty"`
}

// Added is a network disk that a running machine gets.
type Added struct {
	Volume kubevirt.Volume `json:"volume"`
	// Direct is set if it is behind a claim.
	Direct *netdisk.Direct `json:"direct,omitempty"`
}

// Machine is the machine with the disk among its volumes.
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

// HoldLogin instead of a size has a holder hand over what a network disk's login needs, and no disk.
const HoldLogin = "login"

// Container is the name of the container that the machine runs in.
const Container = "compute"

// ReturnsPath is where a launcher answers with Returns, on ReadyPort.
const ReturnsPath = "/returns"

// Returns is what became of the disks that a guest was asked to give back.
type Returns struct {
	// Kept are the volumes whose disks it has had for too long since, and what there is to say about each.
	Kept map[string]string `json:"kept,omitempty"`
	// Given are the volumes it was started with and has no longer. Of one that was added, its holder tells.
	Given []string `json:"given,omitempty"`
	// Waits is what the guest waits for, in words; empty while its disks answer.
	Waits string `json:"waits,omitempty"`
	// Cause is why it waits, if that has a name.
	Cause Fault `json:"cause,omitempty"`
	// Has are the added volumes whose disks it has.
	Has []string `json:"has,omitempty"`
	// Copies is how far the copies of its volumes are.
	Copies map[string]Copy `json:"copies,omitempty"`
	// Keeps is how far the claims are that copies are kept in, by the claim's UID.
	Keeps map[string]Keep `json:"keeps,omitempty"`
	// Serial is that of the orders it follows.
	Serial int `json:"serial,omitempty"`
	// Paused: a person has stopped the guest's processors.
	Paused bool `json:"paused,omitempty"`
	// Early are the volumes that it was started with before they were full.
	Early []string `json:"early,omitempty"`
	// Servers are the addresses where it has logged in for the network disks that the machine names, by volume; nil before it has logged in
	// everywhere.
	Servers map[string][]string `json:"servers,omitempty"`
	// Agent is the guest's operating system as the guest agent says; nil: the agent does not answer.
	Agent *kubevirt.GuestOS `json:"agent,omitempty"`
	// Access is why the guest agent has not set all keys and passwords of accessCredentials that are its to set; empty: it has; nil: there are
	// none, or no agent answers.
	Access *string `json:"access,omitempty"`
	// Targets are the device names of the disks in the domain, such as vda, by volume.
	Targets map[string]string `json:"targets,omitempty"`
	// Move is how far the move of its guest is; nil: there was none.
	Move *Moving `json:"move,omitempty"`
}

// CPUs is how many processors the guest has.
func CPUs(c *kubevirt.CPU) uint {
	if c == nil {
		return 1
	}
	return uint(max(c.Sockets, 1)) * uint(max(c.Cores, 1)) * uint(max(c.Threads, 1))
}

// Memory is how much memory the guest has; zero if the machine does not say.
func Memory(d kubevirt.DomainSpec) *kubevirt.Quantity {
	if d.Memory != nil && d.Memory.Guest != nil {
		return d.Memory.Guest
	}
	return d.Resources.Requests.Memory()
}

// Board is QEMU's name of the machine type that the guest has.
func Board(m *kubevirt.Machine) string {
	if m == nil || m.Type == "" {
		return "q35"
	}
	return m.Type
}
