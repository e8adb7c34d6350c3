package v1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Network disks: the machine's own QEMU speaks to the server. Nothing is mounted and the node needs no privilege for it.

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

// ISCSISource is a LUN of an iSCSI target.
type ISCSISource struct {
	Host NetworkHost `json:"host"`
	// Portal is the target's name, such as iqn.2017-01.io.kubevirt:sn.42.
	// +kubebuilder:validation:MaxLength=223
	// +kubebuilder:validation:Pattern=`^(iqn|eui|naa)\.[A-Za-z0-9.:_-]+$`
	Portal string `json:"portal"`
	// LUN is the number of the disk at the target.
	//
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=16383
	LUN int32 `json:"lun"`
	// Initiator is the name the machine logs in with; made from the machine's own if unset.
	// +kubebuilder:validation:MaxLength=223
	// +kubebuilder:validation:Pattern=`^((iqn|eui|naa)\.[A-Za-z0-9.:_-]+)?$`
	Initiator string `json:"initiator,omitempty"`
	// SecretRef is a Secret for CHAP with the keys of type kubernetes.io/iscsi-chap: node.session.auth.username and
	// node.session.auth.password.
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
	Format    DiskFormat                   `json:"format,omitempty"`
}

// RBDSource is an image in a Ceph cluster.
type RBDSource struct {
	// Monitors are names or addresses of the cluster's monitors, each with its port if that is not 6789.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:items:MaxLength=260
	// +kubebuilder:validation:items:Pattern=`^(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?)(:[0-9]{1,5})?$`
	// +listType=atomic
	Monitors []string `json:"monitors"`
	// Pool that the image is in.
	//
	// +kubebuilder:validation:Pattern=`^[^/@:=,;\s\\]+$`
	Pool string `json:"pool"`
	// Namespace of the image in its pool.
	//
	// +kubebuilder:validation:Pattern=`^[^/@:=,;\s\\]*$`
	Namespace string `json:"namespace,omitempty"`
	// Image is the disk's name in its pool.
	//
	// +kubebuilder:validation:Pattern=`^[^/@:=,;\s\\]+$`
	Image string `json:"image"`
	// Snapshot of the image, which can only be read.
	// +kubebuilder:validation:Pattern=`^[^/@:=,;\s\\]*$`
	Snapshot string `json:"snapshot,omitempty"`
	// User is the part after "client."; admin if unset.
	// +kubebuilder:validation:Pattern=`^[^/@:=,;\s\\]*$`
	User string `json:"user,omitempty"`
	// SecretRef is a Secret with the user's key under key, as of type kubernetes.io/rbd, or under userKey, as of ceph-csi.
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
	Format    DiskFormat                   `json:"format,omitempty"`
}

// NBDSource is an export of an NBD server.
type NBDSource struct {
	Host NetworkHost `json:"host"`
	// Export is the disk's name at the server.
	//
	// +kubebuilder:validation:MaxLength=4096
	Export string     `json:"export,omitempty"`
	TLS    *NBDTLS    `json:"tls,omitempty"`
	Format DiskFormat `json:"format,omitempty"`
}

// NBDTLS encrypts the connection and lets each side prove who it is.
type NBDTLS struct {
	// SecretRef is a Secret with ca.crt, which the server's certificate is checked with, and tls.crt and tls.key if the
	// server asks for the client's.
	SecretRef corev1.LocalObjectReference `json:"secretRef"`
	// Hostname is the name in the server's certificate; the host's if unset.
	Hostname string `json:"hostname,omitempty"`
}

// GlusterSource is a file in a Gluster volume.
type GlusterSource struct {
	// Hosts are servers of the volume; the first that answers is asked where the others are.
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	Hosts []NetworkHost `json:"hosts"`
	// Volume is the Gluster volume.
	//
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9_-]+$`
	Volume string `json:"volume"`
	// Path is the disk's file in the volume.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	Path   string     `json:"path"`
	Format DiskFormat `json:"format,omitempty"`
}

// HTTPSource is a disk at a URL. It can only be read.
type HTTPSource struct {
	// URL of the disk.
	//
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:Pattern=`^[Hh][Tt][Tt][Pp][Ss]?://[^/@\s]+(/\S*)?$`
	URL string `json:"url"`
	// SecretRef is a Secret with a user under accessKeyId and a password under secretKey, as in a DataVolume.
	SecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
	// SecretHeaders are Secrets whose every value is a header, such as "Authorization: Bearer ...".
	// +kubebuilder:validation:MaxItems=16
	// +listType=atomic
	SecretHeaders []corev1.LocalObjectReference `json:"secretHeaders,omitempty"`
	// CertConfigMap is a ConfigMap of certificates to trust besides those everybody does.
	CertConfigMap string     `json:"certConfigMap,omitempty"`
	Format        DiskFormat `json:"format,omitempty"`
}

// AccessMode is who else may have a disk while a machine has it.
type AccessMode string

// The modes. ReadOnly is another word for ReadShared, in a VirtualMachine's disks alone.
const (
	WriteExclusive AccessMode = "write-exclusive"
	WriteShared    AccessMode = "write-shared"
	ReadShared     AccessMode = "read-shared"
	ReadOnly       AccessMode = "read-only"
)

// DiskSource is what is in a drive, said where the drive is. A VirtualMachine may say it there instead of in a volume; its
// instance always has the volume.
//
// +kubebuilder:validation:XValidation:rule="[has(self.iscsi), has(self.rbd), has(self.nbd), has(self.gluster), has(self.http), has(self.pvc), has(self.container)].exists_one(x, x)",message="a disk has one source: set one of iscsi, rbd, nbd, gluster, http, pvc and container"
type DiskSource struct {
	MadeSource `json:",inline"`
	Container  *ContainerSource `json:"container,omitempty"`
}

// DiskClaim is a PersistentVolumeClaim in the machine's namespace.
type DiskClaim struct {
	// ClaimName is a claim in the machine's namespace.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$`
	ClaimName string `json:"claimname"`
}
