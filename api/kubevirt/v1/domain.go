package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DomainSpec is the guest's hardware.
type DomainSpec struct {
	Resources ResourceRequirements `json:"resources,omitempty"`
	CPU       *CPU                 `json:"cpu,omitempty"`
	Memory    *Memory              `json:"memory,omitempty"`
	Machine   *Machine             `json:"machine,omitempty"`
	Firmware  *Firmware            `json:"firmware,omitempty"`
	Clock     *Clock               `json:"clock,omitempty"`
	Features  *Features            `json:"features,omitempty"`
	Devices   Devices              `json:"devices"`
	// IOThreadsPolicy has no effect: exports and backups of a running machine do not work with I/O threads.
	IOThreadsPolicy *IOThreadsPolicy `json:"ioThreadsPolicy,omitempty"`
	// IOThreads has no effect, as IOThreadsPolicy.
	IOThreads *DiskIOThreads `json:"ioThreads,omitempty"`
	// Chassis describes the guest's case, as the guest reads it from SMBIOS.
	Chassis *Chassis `json:"chassis,omitempty"`
	// LaunchSecurity is refused: the memory of guests is not encrypted.
	LaunchSecurity *LaunchSecurity `json:"launchSecurity,omitempty"`
	// RebootPolicy is Reboot for a guest that starts again in its launcher when it reboots, and Terminate for one whose instance ends
	// then; Reboot if unset.
	//
	// +kubebuilder:validation:Enum=Reboot;Terminate
	RebootPolicy *RebootPolicy `json:"rebootPolicy,omitempty"`
}

// ResourceRequirements are the resources that the pod requests from its node. The default is the guest's CPU and memory, and the
// overhead of QEMU.
type ResourceRequirements struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
	// OvercommitGuestOverhead does not ask the node for what QEMU needs besides the guest's memory.
	OvercommitGuestOverhead bool `json:"overcommitGuestOverhead,omitempty"`
}

// CPU is the guest's processors: the product of the three, 1 if none is set.
type CPU struct {
	// Cores in each socket.
	//
	// +kubebuilder:validation:Maximum=512
	Cores uint32 `json:"cores,omitempty"`
	// Sockets of the machine.
	//
	// +kubebuilder:validation:Maximum=64
	Sockets uint32 `json:"sockets,omitempty"`
	// Threads in each core.
	//
	// +kubebuilder:validation:Maximum=64
	Threads uint32 `json:"threads,omitempty"`
	// Model is a libvirt CPU model, host-model or host-passthrough.
	Model string `json:"model,omitempty"`
	// Features of the processor that the guest is to have, or is not to have.
	//
	// +listType=atomic
	Features []CPUFeature `json:"features,omitempty"`
	// MaxSockets has no effect: processors are not added to a running guest.
	MaxSockets uint32 `json:"maxSockets,omitempty"`
	// DedicatedCPUPlacement must be false: processors of the node are not reserved for a guest.
	DedicatedCPUPlacement bool `json:"dedicatedCpuPlacement,omitempty"`
	// IsolateEmulatorThread must be false, as DedicatedCPUPlacement.
	IsolateEmulatorThread bool      `json:"isolateEmulatorThread,omitempty"`
	NUMA                  *NUMA     `json:"numa,omitempty"`
	Realtime              *Realtime `json:"realtime,omitempty"`
}

// Memory is the guest's memory.
type Memory struct {
	// Guest is how much memory the guest sees.
	Guest *Quantity `json:"guest,omitempty"`
	// MaxGuest has no effect: memory is not added to a running guest.
	MaxGuest *Quantity `json:"maxGuest,omitempty"`
	// Hugepages is refused: the guest's memory is in ordinary pages.
	Hugepages *Hugepages `json:"hugepages,omitempty"`
	// ReservedOverhead is memory that the pod requests in addition to the guest's.
	ReservedOverhead *ReservedOverhead `json:"reservedOverhead,omitempty"`
}

// Machine is the kind of board.
type Machine struct {
	// Type is QEMU's name of the machine, such as q35.
	//
	// +kubebuilder:validation:Pattern=`^(q35|pc-q35-[0-9.]+|)$`
	Type string `json:"type"`
}

// Firmware sets the firmware that starts the guest.
type Firmware struct {
	UUID types.UID `json:"uuid,omitempty"`
	// Serial is the machine's serial number, as the guest reads it from its firmware.
	Serial     string      `json:"serial,omitempty"`
	Bootloader *Bootloader `json:"bootloader,omitempty"`
	KernelBoot *KernelBoot `json:"kernelBoot,omitempty"`
	// ACPI are tables for the guest's licence.
	ACPI *ACPI `json:"acpi,omitempty"`
}

// Bootloader is BIOS or EFI.
//
// +kubebuilder:validation:XValidation:rule="!(has(self.bios) && has(self.efi))",message="bios and efi are mutually exclusive: set one of them"
type Bootloader struct {
	BIOS *BIOS `json:"bios,omitempty"`
	EFI  *EFI  `json:"efi,omitempty"`
}

// BIOS is SeaBIOS.
type BIOS struct {
	// UseSerial shows the BIOS on the serial port.
	UseSerial *bool `json:"useSerial,omitempty"`
}

// EFI is OVMF.
type EFI struct {
	// SecureBoot has the firmware start only what is signed. It must be false: secure boot is not offered.
	SecureBoot *bool `json:"secureBoot,omitempty"`
	// Persistent keeps the firmware's variables from one start to the next. It must be false.
	Persistent *bool `json:"persistent,omitempty"`
}

// KernelBoot boots a kernel without a boot loader.
type KernelBoot struct {
	// KernelArgs is the kernel's command line.
	KernelArgs string               `json:"kernelArgs,omitempty"`
	Container  *KernelBootContainer `json:"container,omitempty"`
}

// KernelBootContainer is the container image that holds the kernel.
type KernelBootContainer struct {
	// Image is the container image that has the kernel.
	Image string `json:"image"`
	// ImagePullSecret is the Secret to pull the image with.
	ImagePullSecret string            `json:"imagePullSecret,omitempty"`
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
	// KernelPath is the kernel's file in the image.
	KernelPath string `json:"kernelPath,omitempty"`
	// InitrdPath is the file of the initial RAM disk in the image.
	InitrdPath string `json:"initrdPath,omitempty"`
}

// Devices lists the devices of the machine.
type Devices struct {
	// Disks of the machine. A volume without a disk here gets one by itself.
	//
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=256
	Disks []Disk `json:"disks,omitempty"`
	// Interfaces of the machine.
	//
	// +listType=map
	// +listMapKey=name
	Interfaces []Interface `json:"interfaces,omitempty"`
	// AutoattachPodInterface gives a machine without interfaces one to its pod's network. True unless set.
	AutoattachPodInterface *bool `json:"autoattachPodInterface,omitempty"`
	// AutoattachSerialConsole gives the machine a serial port, which the console needs. True unless set.
	AutoattachSerialConsole *bool `json:"autoattachSerialConsole,omitempty"`
	// LogSerialConsole writes what the guest says on its serial port to the launcher's log.
	LogSerialConsole *bool `json:"logSerialConsole,omitempty"`
	// AutoattachGraphicsDevice gives the machine a screen. True unless set.
	AutoattachGraphicsDevice *bool `json:"autoattachGraphicsDevice,omitempty"`
	Rng                      *Rng  `json:"rng,omitempty"`
	// AutoattachInputDevice gives a machine with a screen and without inputs a tablet.
	AutoattachInputDevice *bool `json:"autoattachInputDevice,omitempty"`
	// Inputs are tablets and keyboards.
	//
	// +listType=atomic
	Inputs   []Input   `json:"inputs,omitempty"`
	Watchdog *Watchdog `json:"watchdog,omitempty"`
	// BlockMultiQueue says whether virtio disks have a queue for each processor. True unless set.
	BlockMultiQueue *bool `json:"blockMultiQueue,omitempty"`
	// NetworkInterfaceMultiQueue has no effect: the pod's network is reached through one queue.
	NetworkInterfaceMultiQueue *bool `json:"networkInterfaceMultiqueue,omitempty"`
	// AutoattachMemBalloon has no effect: a guest has no memory balloon.
	AutoattachMemBalloon *bool `json:"autoattachMemBalloon,omitempty"`
	// AutoattachVSOCK must be false.
	AutoattachVSOCK *bool `json:"autoattachVSOCK,omitempty"`
	// UseVirtioTransitional gives the machine virtio devices that older guests know.
	UseVirtioTransitional *bool `json:"useVirtioTransitional,omitempty"`
	// DisableHotplug has no effect: disks can be added to every machine.
	DisableHotplug bool `json:"disableHotplug,omitempty"`
	// PanicDevices tell of a guest that has crashed. Each machine has one of the model isa.
	//
	// +listType=atomic
	PanicDevices []PanicDevice `json:"panicDevices,omitempty"`
	Sound        *SoundDevice  `json:"sound,omitempty"`
	TPM          *TPMDevice    `json:"tpm,omitempty"`
	Video        *VideoDevice  `json:"video,omitempty"`
	// GPUs are refused: devices of the node are not given to a guest.
	//
	// +listType=atomic
	GPUs []GPU `json:"gpus,omitempty"`
	// HostDevices are refused: devices of the node are not given to a guest.
	//
	// +listType=atomic
	HostDevices []HostDevice `json:"hostDevices,omitempty"`
	// Filesystems are refused: directories are not shared with a guest.
	//
	// +listType=atomic
	Filesystems []Filesystem `json:"filesystems,omitempty"`
	// ClientPassthrough has no effect: devices of a client cannot be given to a guest.
	ClientPassthrough *ClientPassthrough `json:"clientPassthrough,omitempty"`
	// DownwardMetrics is refused: the guest gets no metrics of the node.
	DownwardMetrics *DownwardMetrics `json:"downwardMetrics,omitempty"`
}

// Rng is a source of random numbers.
type Rng struct{}

// Disk is a disk drive of the guest; the volume of the same name is in it. A VirtualMachine may say what is in it here, with
// source, access-mode and copy.
//
// +kubebuilder:validation:XValidation:rule="has(self.source) || !has(self.copy) && !has(self.access__dash__mode)",message="copy and access-mode of a disk belong to its source; a volume has accessMode and copy of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.source) || !has(self.source.http) || (has(self.access__dash__mode) && self.access__dash__mode in ['read-shared', 'read-only']) || (has(self.copy) && self.copy.mode != 'none')",message="a disk at a URL can only be read: set access-mode to read-shared, or copy.mode to copy-on-write"
type Disk struct {
	// Name is the name of the volume. A machine with one disk that has a source may leave it out.
	// +kubebuilder:default=disk
	Name       string `json:"name"`
	DiskDevice `json:",inline"`
	// BootOrder is its place among what the firmware tries to boot from: 1 is first.
	//
	// +kubebuilder:validation:Minimum=1
	BootOrder *uint `json:"bootOrder,omitempty"`
	// Serial is the number by which the guest can find the disk.
	//
	// +kubebuilder:validation:MaxLength=256
	Serial string      `json:"serial,omitempty"`
	Cache  DriverCache `json:"cache,omitempty"`
	IO     DriverIO    `json:"io,omitempty"`
	// Shareable allows other machines to write to the disk at the same time.
	Shareable   *bool        `json:"shareable,omitempty"`
	ErrorPolicy *ErrorPolicy `json:"errorPolicy,omitempty"`
	// BlockSize is the size of the disk's blocks, as the guest sees them.
	BlockSize *BlockSize `json:"blockSize,omitempty"`
	// DedicatedIOThread has no effect: exports and backups of a running machine do not work with I/O threads.
	DedicatedIOThread *bool `json:"dedicatedIOThread,omitempty"`
	// Tag has no effect: the guest is not told the tags of its devices.
	Tag string `json:"tag,omitempty"`
	// ChangedBlockTracking has no effect: what changes is recorded for each VirtualMachineBackupTracker, without it.
	ChangedBlockTracking *bool       `json:"changedBlockTracking,omitempty"`
	Source               *DiskSource `json:"source,omitempty"`
	// +kubebuilder:validation:Enum=write-exclusive;write-shared;read-shared;read-only
	AccessMode AccessMode `json:"access-mode,omitempty"`
	Copy       *DriveCopy `json:"copy,omitempty"`
}

// ReadsOnly reports whether the guest may not write to the drive. A CD drive is read unless it says otherwise.
func (d Disk) ReadsOnly() bool {
	switch {
	case d.CDRom != nil:
		return d.CDRom.ReadOnly == nil || *d.CDRom.ReadOnly
	case d.LUN != nil:
		return d.LUN.ReadOnly
	case d.Disk != nil:
		return d.Disk.ReadOnly
	}
	return false
}

// DiskDevice is the type of the drive; a disk if no field is set.
type DiskDevice struct {
	Disk  *DiskTarget  `json:"disk,omitempty"`
	LUN   *LunTarget   `json:"lun,omitempty"`
	CDRom *CDRomTarget `json:"cdrom,omitempty"`
}

// DiskBus is the bus of a drive.
//
// +kubebuilder:validation:Enum=virtio;sata;scsi;usb;""
type DiskBus string

// The buses.
const (
	BusVirtio DiskBus = "virtio"
	BusSATA   DiskBus = "sata"
	BusSCSI   DiskBus = "scsi"
	BusUSB    DiskBus = "usb"
)

// DiskTarget is a disk.
type DiskTarget struct {
	Bus DiskBus `json:"bus,omitempty"`
	// ReadOnly keeps the guest from writing.
	ReadOnly bool `json:"readonly,omitempty"`
	// PciAddress has no effect: the guest's addresses are chosen for it.
	PciAddress string `json:"pciAddress,omitempty"`
}

// LunTarget is a disk that takes the guest's SCSI commands itself.
type LunTarget struct {
	Bus DiskBus `json:"bus,omitempty"`
	// ReadOnly keeps the guest from writing.
	ReadOnly bool `json:"readonly,omitempty"`
	// Reservation must be false: the guest cannot reserve the disk for itself.
	Reservation bool `json:"reservation,omitempty"`
}

// CDRomTarget is a CD drive.
type CDRomTarget struct {
	Bus DiskBus `json:"bus,omitempty"`
	// ReadOnly keeps the guest from writing. True unless set.
	ReadOnly *bool `json:"readonly,omitempty"`
	// Tray is open or closed; closed if unset.
	//
	// +kubebuilder:validation:Enum=open;closed;""
	Tray TrayState `json:"tray,omitempty"`
}

// DriverCache is how the host caches a disk.
//
// +kubebuilder:validation:Enum=none;writethrough;writeback;""
type DriverCache string

// The cache modes.
const (
	CacheNone         DriverCache = "none"
	CacheWriteThrough DriverCache = "writethrough"
	CacheWriteBack    DriverCache = "writeback"
)

// DriverIO is how QEMU does a disk's input and output.
//
// +kubebuilder:validation:Enum=native;threads;""
type DriverIO string

// ErrorPolicy says what QEMU does with the guest when its disk fails.
//
// +kubebuilder:validation:Enum=stop;ignore;report;enospace
type ErrorPolicy string

// Interface is a network card.
type Interface struct {
	// Name is the name of the network that the interface is connected to.
	Name string `json:"name"`
	// Model of the network card; virtio unless set.
	//
	// +kubebuilder:validation:Enum=virtio;e1000;e1000e;ne2k_pci;pcnet;rtl8139;""
	Model string `json:"model,omitempty"`
	// MacAddress of the interface; made from the machine's name if empty.
	MacAddress string `json:"macAddress,omitempty"`
	// BootOrder is its place among what the firmware tries to boot from: 1 is first.
	BootOrder  *uint       `json:"bootOrder,omitempty"`
	Masquerade *Masquerade `json:"masquerade,omitempty"`
	Passt      *Passt      `json:"passtBinding,omitempty"`
	// DeprecatedPasst is an older spelling of PasstBinding.
	DeprecatedPasst *Passt `json:"passt,omitempty"`
	// Slirp is a synonym of Masquerade. Every interface uses QEMU's own user-mode network.
	Slirp *Slirp `json:"slirp,omitempty"`
	// Bridge puts the guest onto the pod's network with the pod's own address. It is refused.
	Bridge *Bridge `json:"bridge,omitempty"`
	// SRIOV gives the guest a network card of the node. It is refused.
	SRIOV *SRIOV `json:"sriov,omitempty"`
	// Macvtap puts the guest onto the node's network. It is refused.
	Macvtap *Macvtap `json:"macvtap,omitempty"`
	// Binding names a plugin that connects the interface. It is refused.
	Binding *PluginBinding `json:"binding,omitempty"`
	// PortRanges are ranges of the guest's ports that the pod's address leads to.
	//
	// +listType=atomic
	PortRanges []PortRange `json:"portRanges,omitempty"`
	// PciAddress has no effect: the guest's addresses are chosen for it.
	PciAddress string `json:"pciAddress,omitempty"`
	// ACPIIndex is the number by which the guest names the interface.
	ACPIIndex   int          `json:"acpiIndex,omitempty"`
	DHCPOptions *DHCPOptions `json:"dhcpOptions,omitempty"`
	// Tag has no effect: the guest is not told the tags of its devices.
	Tag string `json:"tag,omitempty"`
	// State is the state of the interface's link, up or down; absent removes the interface. The default is up.
	//
	// +kubebuilder:validation:Enum=up;down;absent;""
	State InterfaceState `json:"state,omitempty"`
	// Ports are the guest's ports that the pod's address leads to; all if there are none.
	Ports []Port `json:"ports,omitempty"`
}

// Masquerade puts the guest behind the pod's address.
type Masquerade struct{}

// Passt is Masquerade, by the program of that name.
type Passt struct{}

// Port is a port of the guest that is reachable at the pod's address.
type Port struct {
	// Name of the port.
	Name string `json:"name,omitempty"`
	// Protocol is TCP or UDP.
	//
	// +kubebuilder:validation:Enum=TCP;UDP;""
	Protocol string `json:"protocol,omitempty"`
	// Port is the number.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port int32 `json:"port"`
}
