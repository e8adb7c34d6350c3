package v1

import "k8s.io/apimachinery/pkg/util/intstr"

// DiskFormat is how a disk's bytes are laid out. It is never guessed: a guest could write a header that says something else.
//
// +kubebuilder:validation:Enum=raw;qcow2;""
type DiskFormat string

// The formats. Unset is raw.
const (
	FormatRaw   DiskFormat = "raw"
	FormatQCOW2 DiskFormat = "qcow2"
)

// NetworkHost is a server: a name or an address, and a port.
type NetworkHost struct {
	// Name or address of the server.
	//
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9]([A-Za-z0-9.:-]*[A-Za-z0-9])?$`
	Name string `json:"name"`
	// Port is the protocol's own if unset. It may be written in quotes.
	// +kubebuilder:validation:XIntOrString
	// +kubebuilder:validation:Pattern=`^[0-9]{1,5}$`
	// +kubebuilder:validation:XValidation:rule="int(self) >= 1 && int(self) <= 65535",message="a port is a number from 1 to 65535"
	Port *intstr.IntOrString `json:"port,omitempty"`
}

// AccessMode says which other users may have a disk open at the same time as the machine.
type AccessMode string

// The modes. ReadOnly is another word for ReadShared, in a VirtualMachine's disks alone.
const (
	WriteExclusive AccessMode = "write-exclusive"
	WriteShared    AccessMode = "write-shared"
	ReadShared     AccessMode = "read-shared"
	ReadOnly       AccessMode = "read-only"
)

// DiskClaim is a PersistentVolumeClaim in the machine's namespace.
type DiskClaim struct {
	// ClaimName is a claim in the machine's namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	ClaimName string `json:"claimname"`
}
