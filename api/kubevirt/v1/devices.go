package v1

import corev1 "k8s.io/api/core/v1"

// Input is a tablet or a keyboard.
type Input struct {
	// Bus is usb or virtio; usb if unset.
	//
	// +kubebuilder:validation:Enum=usb;virtio;""
	Bus InputBus `json:"bus,omitempty"`
	// Type is tablet or keyboard.
	//
	// +kubebuilder:validation:Enum=tablet;keyboard
	Type InputType `json:"type"`
	// Name of the device.
	Name string `json:"name"`
}

// InputBus is the bus of an input device.
type InputBus string

// InputType is the kind of an input device.
type InputType string

// The buses and the kinds.
const (
	InputUSB      InputBus  = "usb"
	InputVirtio   InputBus  = "virtio"
	InputTablet   InputType = "tablet"
	InputKeyboard InputType = "keyboard"
)

// Watchdog takes an action if the guest no longer resets the timer.
type Watchdog struct {
	// Name of the device.
	Name           string `json:"name"`
	WatchdogDevice `json:",inline"`
}

// WatchdogDevice is the kind of watchdog.
type WatchdogDevice struct {
	// I6300ESB is a PCI device.
	I6300ESB *WatchdogTimer `json:"i6300esb,omitempty"`
	// Diag288 is refused: it is for another architecture.
	Diag288 *WatchdogTimer `json:"diag288,omitempty"`
}

// WatchdogTimer sets the action that is taken if the guest does not reset the timer in time.
type WatchdogTimer struct {
	// Action is reset, poweroff or shutdown; reset if unset.
	//
	// +kubebuilder:validation:Enum=reset;poweroff;shutdown;""
	Action string `json:"action,omitempty"`
}

// PanicDevice tells of a guest that has crashed.
type PanicDevice struct {
	// Model of the device. Each machine has one of the model isa.
	Model *PanicDeviceModel `json:"model,omitempty"`
}

// PanicDeviceModel is a model of panic device.
type PanicDeviceModel string

// SoundDevice is a sound card.
type SoundDevice struct {
	// Name of the device.
	Name string `json:"name"`
	// Model of the sound card.
	Model string `json:"model,omitempty"`
}

// TPMDevice is a trusted platform module.
type TPMDevice struct {
	// Enabled switches it on or off. True unless set.
	Enabled *bool `json:"enabled,omitempty"`
	// Persistent keeps what it holds from one start to the next.
	Persistent *bool `json:"persistent,omitempty"`
}

// VideoDevice is the guest's graphics card.
type VideoDevice struct {
	// Type of the card; vga if unset.
	Type string `json:"type,omitempty"`
}

// BlockSize is the size of a disk's blocks, as the guest sees them.
type BlockSize struct {
	Custom *CustomBlockSize `json:"custom,omitempty"`
	// MatchVolume takes them from what the disk is on.
	MatchVolume *FeatureState `json:"matchVolume,omitempty"`
}

// CustomBlockSize is the size of a disk's blocks.
type CustomBlockSize struct {
	// Logical block size in bytes: the least that the guest reads or writes.
	Logical uint `json:"logical,omitempty"`
	// Physical block size in bytes: the least that is written at once.
	Physical uint `json:"physical,omitempty"`
	// DiscardGranularity is the least that the guest gives back, in bytes.
	DiscardGranularity *uint `json:"discardGranularity,omitempty"`
}

// TrayState is whether the tray of a CD drive is open.
type TrayState string

// TrayOpen is a tray that is open when the guest starts.
const TrayOpen TrayState = "open"

// InterfaceState is the state of an interface.
type InterfaceState string

// The states. Unset is InterfaceUp.
const (
	InterfaceUp     InterfaceState = "up"
	InterfaceDown   InterfaceState = "down"
	InterfaceAbsent InterfaceState = "absent"
)

// Slirp is Masquerade, by QEMU itself.
type Slirp struct{}

// Bridge is Masquerade here: the guest does not have the pod's own address.
type Bridge struct{}

// PortRange is a range of the guest's ports that are reachable at the pod's address.
type PortRange struct {
	// Protocol is TCP or UDP.
	//
	// +kubebuilder:validation:Enum=TCP;UDP
	Protocol string `json:"protocol"`
	// Start is the first port.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Start int32 `json:"start"`
	// End is the last port.
	//
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	End int32 `json:"end"`
}

// DHCPOptions are the options that the guest gets by DHCP besides its address.
type DHCPOptions struct {
	// BootFileName is the file that a guest boots over the network.
	BootFileName string `json:"bootFileName,omitempty"`
	// TFTPServerName is the server that has the file.
	TFTPServerName string `json:"tftpServerName,omitempty"`
	// NTPServers are servers of the time.
	NTPServers []string `json:"ntpServers,omitempty"`
	// PrivateOptions are numbered options.
	PrivateOptions []DHCPPrivateOptions `json:"privateOptions,omitempty"`
}

// DHCPPrivateOptions is a numbered option.
type DHCPPrivateOptions struct {
	// Option is its number, 224 to 254.
	Option int `json:"option"`
	// Value of the option.
	Value string `json:"value"`
}

// DownwardAPIVolumeSource is a read-only disk with what the guest's pod knows of itself.
type DownwardAPIVolumeSource struct {
	// Fields are the files of the disk.
	Fields []corev1.DownwardAPIVolumeFile `json:"fields,omitempty"`
	// VolumeLabel is the label of the file system that the guest sees.
	VolumeLabel string `json:"volumeLabel,omitempty"`
}

// ServiceAccountVolumeSource is a read-only disk with a token of a ServiceAccount.
type ServiceAccountVolumeSource struct {
	// ServiceAccountName is a ServiceAccount in the machine's namespace.
	ServiceAccountName string `json:"serviceAccountName,omitempty"`
}

// SysprepSource is a read-only disk with the answers for Windows' setup.
type SysprepSource struct {
	// Secret that has the answers.
	Secret *corev1.LocalObjectReference `json:"secret,omitempty"`
	// ConfigMap that has the answers.
	ConfigMap *corev1.LocalObjectReference `json:"configMap,omitempty"`
}

// MemoryDumpVolumeSource is a claim that the guest's memory is written to.
type MemoryDumpVolumeSource struct {
	// ClaimName is a claim in the machine's namespace.
	ClaimName string `json:"claimName"`
	// ReadOnly has no effect.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Hotpluggable volumes may be removed while the guest runs.
	Hotpluggable bool `json:"hotpluggable,omitempty"`
}

// DataVolumeTemplateStatus is empty.
type DataVolumeTemplateStatus struct{}
