package v1

import (
	corev1 "k8s.io/api/core/v1"
)

// Volume is the source of a disk's content.
//
// +kubebuilder:validation:XValidation:rule="!has(self.http) || (has(self.accessMode) && self.accessMode == 'read-shared') || (has(self.copy) && self.copy.mode != 'none')",message="a disk at a URL can only be read: set accessMode to read-shared, or copy.mode to copy-on-write"
// +kubebuilder:validation:XValidation:rule="!has(self.copy) || has(self.persistentVolumeClaim) || has(self.dataVolume) || has(self.containerDisk) || has(self.ephemeral) || has(self.iscsi) || has(self.rbd) || has(self.nbd) || has(self.gluster) || has(self.http) || has(self.container) || has(self.containerImage)",message="copy is for volumes that have a master: claims, DataVolumes, container disks, container images and network disks"
// +kubebuilder:validation:XValidation:rule="!has(self.copy) || self.copy.mode != 'none' || !(has(self.containerDisk) || has(self.containerImage) || has(self.ephemeral))",message="a container disk, a container image and an ephemeral volume cannot be written to: copy.mode cannot be none"
// +kubebuilder:validation:XValidation:rule="!has(self.copy) || self.copy.mode == 'none' || !(has(self.persistentVolumeClaim) && has(self.persistentVolumeClaim.hotpluggable) && self.persistentVolumeClaim.hotpluggable || has(self.dataVolume) && has(self.dataVolume.hotpluggable) && self.dataVolume.hotpluggable)",message="a copy is made when the machine starts: a volume with a copy cannot be hotpluggable"
// +kubebuilder:validation:XValidation:rule="!has(self.hotpluggable) || !self.hotpluggable || ((has(self.iscsi) || has(self.rbd) || has(self.nbd) || has(self.gluster) || has(self.http)) && (!has(self.copy) || self.copy.mode == 'none'))",message="hotpluggable is for network disks without a copy; claims and DataVolumes have a field of their own for it"
// +kubebuilder:validation:XValidation:rule="!has(self.rbd) || !has(self.rbd.snapshot) || size(self.rbd.snapshot) == 0 || (has(self.accessMode) && self.accessMode == 'read-shared') || (has(self.copy) && self.copy.mode != 'none')",message="a snapshot can only be read: set accessMode to read-shared, or copy.mode to copy-on-write"
// +kubebuilder:validation:XValidation:rule="!has(self.keepAs) || size(self.keepAs) == 0 || (has(self.copy) && self.copy.mode != 'none') || has(self.containerDisk) || has(self.ephemeral)",message="keepAs is for volumes that the guest has a copy of"
// +kubebuilder:validation:XValidation:rule="!has(self.keepAs) || size(self.keepAs) == 0 || !has(self.containerImage)",message="a machine from a container image cannot be kept: its disk needs the kernel that it was started with"
// +kubebuilder:validation:XValidation:rule="!has(self.bootEarly) || !self.bootEarly || (has(self.dataVolume) && (!has(self.copy) || self.copy.mode == 'none'))",message="bootEarly is for the volume of a DataVolume without a copy: a copy is made of a disk that is full"
type Volume struct {
	// Name is the name that disks refer to.
	Name         string `json:"name"`
	VolumeSource `json:",inline"`
	// AccessMode says which other users may have the disk at the same time; write-exclusive if unset, read-shared if the source is
	// read-only.
	// +kubebuilder:validation:Enum=write-exclusive;write-shared;read-shared
	AccessMode AccessMode `json:"accessMode,omitempty"`
	// Hotpluggable network disks may be removed while the guest runs; claims and DataVolumes say it themselves.
	Hotpluggable bool `json:"hotpluggable,omitempty"`
	// Copy gives the guest a disk of its own that begins as the volume and is gone with the instance.
	Copy *DiskCopy `json:"copy,omitempty"`
	// KeepAs has the guest's copy written to a claim while the guest runs. The claim must have been made for it: its annotation
	// berth.dev/kept-from names this instance by its UID, and this volume.
	// +kubebuilder:validation:MaxLength=253
	KeepAs string `json:"keepAs,omitempty"`
	// BootEarly lets the machine start while the disk is imported or cloned: the DataVolume is made with the annotation
	// berth.dev/boot-early. It is for volumes of the machine's own dataVolumeTemplates, and counts when they are made.
	BootEarly bool `json:"bootEarly,omitempty"`
}

// VolumeSource is where a volume comes from. Exactly one field is set.
type VolumeSource struct {
	PersistentVolumeClaim *ClaimSource           `json:"persistentVolumeClaim,omitempty"`
	DataVolume            *DataVolumeSource      `json:"dataVolume,omitempty"`
	ContainerDisk         *ContainerDiskSource   `json:"containerDisk,omitempty"`
	Ephemeral             *EphemeralSource       `json:"ephemeral,omitempty"`
	EmptyDisk             *EmptyDiskSource       `json:"emptyDisk,omitempty"`
	HostDisk              *HostDisk              `json:"hostDisk,omitempty"`
	CloudInitNoCloud      *CloudInitSource       `json:"cloudInitNoCloud,omitempty"`
	CloudInitConfigDrive  *CloudInitSource       `json:"cloudInitConfigDrive,omitempty"`
	ConfigMap             *ConfigMapVolumeSource `json:"configMap,omitempty"`
	Secret                *SecretVolumeSource    `json:"secret,omitempty"`
	// DownwardAPI is a read-only disk with fields of the machine's instance.
	DownwardAPI *DownwardAPIVolumeSource `json:"downwardAPI,omitempty"`
	// ServiceAccount is a read-only disk with a token of a ServiceAccount.
	ServiceAccount *ServiceAccountVolumeSource `json:"serviceAccount,omitempty"`
	// Sysprep is a read-only disk with the answers for Windows' setup.
	Sysprep *SysprepSource `json:"sysprep,omitempty"`
	// MemoryDump is a claim that the guest's memory is written to.
	MemoryDump *MemoryDumpVolumeSource `json:"memoryDump,omitempty"`
	// DownwardMetrics is refused: the guest gets no metrics of the node.
	DownwardMetrics *DownwardMetricsVolumeSource `json:"downwardMetrics,omitempty"`
	// ContainerPath is refused: directories are not shared with a guest.
	ContainerPath  *ContainerPathVolumeSource `json:"containerPath,omitempty"`
	NetworkSource  `json:",inline"`
	Container      *ContainerSource      `json:"container,omitempty"`
	ContainerImage *ContainerImageSource `json:"containerImage,omitempty"`
}

// DiskSource is the source of a disk, written in the disk itself. A VirtualMachine may have it there instead of in a volume; its
// instance always has the volume.
//
// +kubebuilder:validation:XValidation:rule="[has(self.iscsi), has(self.rbd), has(self.nbd), has(self.gluster), has(self.http), has(self.pvc), has(self.container)].exists_one(x, x)",message="a disk has one source: set one of iscsi, rbd, nbd, gluster, http, pvc and container"
type DiskSource struct {
	MadeSource `json:",inline"`
	Container  *ContainerSource `json:"container,omitempty"`
}

// NetworkSource is a disk at a server: the machine's own QEMU speaks to the server, so that nothing is mounted and the node needs no privilege
// for it. At most one field is set. Each field is a protocol, and internal/netdisk has a row for each.
type NetworkSource struct {
	ISCSI   *ISCSISource   `json:"iscsi,omitempty"`
	RBD     *RBDSource     `json:"rbd,omitempty"`
	NBD     *NBDSource     `json:"nbd,omitempty"`
	Gluster *GlusterSource `json:"gluster,omitempty"`
	HTTP    *HTTPSource    `json:"http,omitempty"`
}

// traits are the properties of a network disk that the rules of this package need.
type traits struct {
	hosts  []*NetworkHost // the servers that have a port in a field of their own
	format DiskFormat
	// readOnly: the source cannot be written to. shared: its server cannot hold the disk for one client.
	readOnly, shared bool
}

func (s *ISCSISource) traits() traits {
	return traits{hosts: []*NetworkHost{&s.Host}, format: s.Format}
}
func (s *RBDSource) traits() traits  { return traits{format: s.Format, readOnly: s.Snapshot != ""} }
func (s *NBDSource) traits() traits  { return traits{hosts: []*NetworkHost{&s.Host}, format: s.Format} }
func (s *HTTPSource) traits() traits { return traits{format: s.Format, readOnly: true, shared: true} }
func (s *GlusterSource) traits() traits {
	t := traits{format: s.Format}
	for i := range s.Hosts {
		t.hosts = append(t.hosts, &s.Hosts[i])
	}
	return t
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
	// CertConfigMap names a ConfigMap with certificates that are trusted in addition to the usual ones.
	CertConfigMap string     `json:"certConfigMap,omitempty"`
	Format        DiskFormat `json:"format,omitempty"`
}

// ClaimSource is a PersistentVolumeClaim in the machine's namespace. In a VirtualMachine it may also be the name of one
// of its volumeClaimTemplates.
//
// +kubebuilder:validation:XValidation:rule="has(self.claimName) != has(self.name)",message="exactly one of claimName and name is required"
type ClaimSource struct {
	// ClaimName is a claim in the machine's namespace.
	ClaimName string `json:"claimName,omitempty"`
	// Name is another spelling of ClaimName.
	Name string `json:"name,omitempty"`
	// ReadOnly keeps the guest from writing.
	ReadOnly bool `json:"readOnly,omitempty"`
	// Hotpluggable volumes may be removed while the guest runs.
	Hotpluggable bool `json:"hotpluggable,omitempty"`
	// Direct says whether QEMU opens the network disk behind the claim itself, without a mount. Unset is yes where the claim's
	// volume is a network block device and its administrator allows it.
	Direct *bool `json:"direct,omitempty"`
}

// DataVolumeSource is a DataVolume in the machine's namespace.
type DataVolumeSource struct {
	// Name of a DataVolume in the machine's namespace.
	Name string `json:"name"`
	// Hotpluggable says that it may be removed while the machine runs.
	Hotpluggable bool `json:"hotpluggable,omitempty"`
	// Direct is the Direct of ClaimSource.
	Direct *bool `json:"direct,omitempty"`
}

// ContainerDiskSource is a disk in a container image; what the guest writes is lost when it stops.
type ContainerDiskSource struct {
	// Image is the container image that has the disk.
	Image string `json:"image"`
	// ImagePullSecret is the Secret to pull the image with.
	ImagePullSecret string `json:"imagePullSecret,omitempty"`
	// Path is the disk's file in the image; the only file in /disk if empty.
	Path            string            `json:"path,omitempty"`
	ImagePullPolicy corev1.PullPolicy `json:"imagePullPolicy,omitempty"`
}

// EphemeralSource is a claim that is only read; what the guest writes is lost when it stops.
type EphemeralSource struct {
	PersistentVolumeClaim *corev1.PersistentVolumeClaimVolumeSource `json:"persistentVolumeClaim,omitempty"`
}

// EmptyDiskSource is an empty disk that is lost when the guest stops.
type EmptyDiskSource struct {
	// Capacity is the size of the disk.
	Capacity Quantity `json:"capacity"`
}

// HostDisk is a file on the node.
type HostDisk struct {
	// Path is the file on the node.
	Path string `json:"path"`
	// Type is Disk for a file that is there, DiskOrCreate for one that is made.
	//
	// +kubebuilder:validation:Enum=Disk;DiskOrCreate
	Type string `json:"type"`
	// Capacity is the size of a disk that is made.
	Capacity Quantity `json:"capacity,omitempty"`
	// Shared allows other machines to use it at the same time.
	Shared *bool `json:"shared,omitempty"`
}

// CloudInitSource is the data that cloud-init in the guest reads.
type CloudInitSource struct {
	UserDataSecretRef *corev1.LocalObjectReference `json:"secretRef,omitempty"`
	// UserDataBase64 is the user data, base64-encoded.
	UserDataBase64 string `json:"userDataBase64,omitempty"`
	// UserData is the user data as it is.
	UserData             string                       `json:"userData,omitempty"`
	NetworkDataSecretRef *corev1.LocalObjectReference `json:"networkDataSecretRef,omitempty"`
	// NetworkDataBase64 is the network data, base64-encoded.
	NetworkDataBase64 string `json:"networkDataBase64,omitempty"`
	// NetworkData is the network data as it is.
	NetworkData string `json:"networkData,omitempty"`
}

// ConfigMapVolumeSource is a config map as a read-only disk.
type ConfigMapVolumeSource struct {
	corev1.LocalObjectReference `json:",inline"`
	// Optional lets the machine start without the ConfigMap.
	Optional *bool `json:"optional,omitempty"`
	// VolumeLabel is the label of the file system that the guest sees.
	VolumeLabel string `json:"volumeLabel,omitempty"`
}

// SecretVolumeSource is a secret as a read-only disk.
type SecretVolumeSource struct {
	// SecretName is a Secret in the machine's namespace.
	SecretName string `json:"secretName,omitempty"`
	// Optional lets the machine start without the Secret.
	Optional *bool `json:"optional,omitempty"`
	// VolumeLabel is the label of the file system that the guest sees.
	VolumeLabel string `json:"volumeLabel,omitempty"`
}
