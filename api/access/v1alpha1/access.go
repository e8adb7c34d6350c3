package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DiskAccess lists the pods of Berth that have one disk: the launchers of machines, and the workers that fill, clone or export it.
// It is named after the disk's identity, so there is one for each disk, however many claims, volumes and machines name it. A guest
// or a worker starts only after its pod is among the holders, and the pod leaves them only when it has certainly ended.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=diskaccesses,shortName=disks
// +kubebuilder:printcolumn:name="Disk",type=string,JSONPath=`.spec.disk`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.holders[*].mode`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.holders[*].namespace`
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.spec.holders[*].machine`
// +kubebuilder:printcolumn:name="Use",type=string,JSONPath=`.spec.holders[*].use`
// +kubebuilder:printcolumn:name="Node",type=string,JSONPath=`.spec.holders[*].node`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DiskAccess struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              DiskAccessSpec `json:"spec"`
}

// DiskAccessList is a list of them.
//
// +kubebuilder:object:root=true
type DiskAccessList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DiskAccess `json:"items"`
}

// DiskAccessSpec is a disk and those who have it.
type DiskAccessSpec struct {
	// Disk is the identity in words, for people to read. The object's name is the identity that programs compare.
	Disk string `json:"disk"`
	// Holders are the pods that have the disk.
	//
	// +listType=map
	// +listMapKey=podUID
	Holders []Holder `json:"holders,omitempty"`
}

// Holder is a pod that has the disk.
type Holder struct {
	// Namespace is the namespace of the pod.
	Namespace string `json:"namespace"`
	// Machine is the name of the machine that a launcher runs; empty for a worker.
	Machine string `json:"machine,omitempty"`
	// UID is the UID of the VirtualMachineInstance that a launcher runs, or of the claim, volume or export that a worker works for.
	UID types.UID `json:"uid"`
	// Use says what a worker does with the disk; empty for a launcher.
	Use Use `json:"use,omitempty"`
	// Pod is the name of the pod.
	Pod string `json:"pod"`
	// PodUID tells the pod from an earlier or later one of the same name.
	PodUID types.UID `json:"podUID"`
	// Node is the node that the pod runs on; BootID is the node's boot ID when the disk was taken. If the node has another boot ID,
	// everything that ran there then has ended.
	Node string `json:"node"`
	// BootID is the boot of the node that the pod runs on, as the node's status says it.
	BootID string `json:"bootID,omitempty"`
	Mode   Mode   `json:"mode"`
	// ClaimUID is the UID of the claim that the pod has the disk through; empty if it has it by its address.
	ClaimUID types.UID `json:"claimUID,omitempty"`
	// Servers are the addresses of the disk's servers, if it is a network disk: those where the pod has logged in, or those that the
	// PersistentVolume names. Empty: they are not known.
	//
	// +listType=atomic
	Servers []string `json:"servers,omitempty"`
	// Early says of a worker that it serves the disk to a guest while it fills it, and of a launcher that it was started with a disk
	// that is served so: both may have it through the same claim.
	Early bool `json:"early,omitempty"`
}

// Use says what a worker does with a disk.
//
// +kubebuilder:validation:Enum=fill;clone;export;backup;backup-source
type Use string

// The uses.
const (
	UseFill   Use = "fill"   // an import, an upload or a clone is written to it
	UseClone  Use = "clone"  // a clone is made of it
	UseExport Use = "export" // it is downloaded
	UseBackup Use = "backup" // a backup is written to it
	// UseBackUp: it is backed up.
	UseBackUp Use = "backup-source"
)

// Mode says whether a holder writes to the disk, and which other holders may have it at the same time.
//
// +kubebuilder:validation:Enum=write-exclusive;write-shared;read-shared
type Mode string

// The modes.
const (
	WriteExclusive Mode = "write-exclusive" // it writes, and nobody else has the disk
	WriteShared    Mode = "write-shared"    // it writes, and others who say the same may write too: the guests agree among themselves
	ReadShared     Mode = "read-shared"     // it reads, and others may read too
)
