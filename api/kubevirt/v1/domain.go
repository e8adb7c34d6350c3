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
	Devices   Devices              `json:"devices"`
}

// ResourceRequirements is what the pod asks of its node; without it, the guest's CPU and memory and what QEMU needs.
type ResourceRequirements struct {
	Requests corev1.ResourceList `json:"requests,omitempty"`
	Limits   corev1.ResourceList `json:"limits,omitempty"`
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
}

// Memory is the guest's memory.
type Memory struct {
	// Guest is how much memory the guest sees.
	Guest *Quantity `json:"guest,omitempty"`
}

// Machine is the kind of board.
type Machine struct {
	// Type is QEMU's name of the machine, such as q35.
	//
	// +kubebuilder:validation:Pattern=`^(q35|pc-q35-[0-9.]+|)$`
	Type string `json:"type"`
}

// Firmware is what runs before the guest.
type Firmware struct {
	UUID types.UID `json:"uuid,omitempty"`
	// Serial is the machine's serial number, as the guest reads it from its firmware.
	Serial     string      `json:"serial,omitempty"`
	Bootloader *Bootloader `json:"bootloader,omitempty"`
	KernelBoot *KernelBoot `json:"kernelBoot,omitempty"`
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

// Devices are what is attached to the board.
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
}

// Rng is a source of random numbers.
type Rng struct{}

// Disk is a disk drive of the guest; the volume of the same name is in it. A VirtualMachine may say what is in it here, with
// source, access-mode and copy.
//
// +kubebuilder:validation:XValidation:rule="has(self.source) || !has(self.copy) && !has(self.access__dash__mode)",message="copy and access-mode of a disk belong to its source; a volume has accessMode and copy of its own"
// +kubebuilder:validation:XValidation:rule="!has(self.source) || !has(self.source.http) || (has(self.access__dash__mode) && self.access__dash__mode in ['read-shared', 'read-only']) || (has(self.copy) && self.copy.mode != 'none')",message="a disk at a URL can only be read: set access-mode to read-shared, or copy.mode to copy-on-write"
// +kubebuilder:validation:XValidation:rule="!has(self.copy) || !has(self.copy.usage__dash__type) || size(self.copy.usage__dash__type) == 0 || has(self.copy.capacity) || has(self.copy.size) || !has(self.source) || has(self.source.pvc)",message="the size of a network disk is known when its machine starts: copy.usage-type needs copy.capacity or copy.size"
type Disk struct {
	// Name is that of the volume. A machine with one disk that has a source may leave it out.
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
	Source      *DiskSource  `json:"source,omitempty"`
	// +kubebuilder:validation:Enum=write-exclusive;write-shared;read-shared;read-only
	AccessMode AccessMode `json:"access-mode,omitempty"`
	Copy       *DriveCopy `json:"copy,omitempty"`
}

// ReadsOnly says that the guest may not write to the drive. A CD drive is read unless it says otherwise.
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

// DiskDevice is what kind of drive it is; a disk if none is set.
type DiskDevice struct {
	Disk  *DiskTarget  `json:"disk,omitempty"`
	LUN   *LunTarget   `json:"lun,omitempty"`
	CDRom *CDRomTarget `json:"cdrom,omitempty"`
}

// DiskBus is what a drive is attached to.
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
}

// LunTarget is a disk that takes the guest's SCSI commands itself.
type LunTarget struct {
	Bus DiskBus `json:"bus,omitempty"`
	// ReadOnly keeps the guest from writing.
	ReadOnly bool `json:"readonly,omitempty"`
}

// CDRomTarget is a CD drive.
type CDRomTarget struct {
	Bus DiskBus `json:"bus,omitempty"`
	// ReadOnly keeps the guest from writing. True unless set.
	ReadOnly *bool `json:"readonly,omitempty"`
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

// ErrorPolicy is what becomes of the guest when its disk fails.
//
// +kubebuilder:validation:Enum=stop;ignore;report;enospace
type ErrorPolicy string

// Interface is a network card.
type Interface struct {
	// Name is that of the network it is connected to.
	Name string `json:"name"`
	// Model of the network card; virtio unless set.
	//
	// +kubebuilder:validation:Enum=virtio;e1000;e1000e;rtl8139;""
	Model string `json:"model,omitempty"`
	// MacAddress of the interface; made from the machine's name if empty.
	MacAddress string `json:"macAddress,omitempty"`
	// BootOrder is its place among what the firmware tries to boot from: 1 is first.
	BootOrder  *uint       `json:"bootOrder,omitempty"`
	Masquerade *Masquerade `json:"masquerade,omitempty"`
	Passt      *Passt      `json:"passtBinding,omitempty"`
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
