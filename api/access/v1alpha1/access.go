package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DiskAccess says which launchers have one disk. It is named after the disk's identity, so there is one for each disk,
// however many claims, volumes and machines name it. A launcher's guest starts only after the launcher is among the
// holders, and the launcher leaves them only when it has certainly ended.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,path=diskaccesses,shortName=disks
// +kubebuilder:printcolumn:name="Disk",type=string,JSONPath=`.spec.disk`
// +kubebuilder:printcolumn:name="Mode",type=string,JSONPath=`.spec.holders[*].mode`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.holders[*].namespace`
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.spec.holders[*].machine`
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
	// Disk is the identity in words, for people. The name of the object is what counts.
	Disk string `json:"disk"`
	// Holders are the machines that have the disk.
	//
	// +listType=map
	// +listMapKey=podUID
	Holders []Holder `json:"holders,omitempty"`
}

// Holder is a launcher that has the disk.
type Holder struct {
	// Namespace, Machine and UID are those of the VirtualMachineInstance.
	Namespace string `json:"namespace"`
	// Machine is the name of the machine.
	Machine string    `json:"machine"`
	UID     types.UID `json:"uid"`
	// Pod and PodUID are those of the launcher.
	Pod    string    `json:"pod"`
	PodUID types.UID `json:"podUID"`
	// Node is where the launcher runs; BootID is the node's when the disk was taken. Whatever ran there before has ended
	// once the node has another.
	Node string `json:"node"`
	// BootID is the boot of the node that the launcher runs on, as the node's status says it.
	BootID string `json:"bootID,omitempty"`
	Mode   Mode   `json:"mode"`
}

// Mode is what a holder does with the disk, and with whom it shares it.
//
// +kubebuilder:validation:Enum=write-exclusive;write-shared;read-shared
type Mode string

// The modes.
const (
	WriteExclusive Mode = "write-exclusive" // it writes, and nobody else has the disk
	WriteShared    Mode = "write-shared"    // it writes, and others who say the same may write too: the guests agree among themselves
	ReadShared     Mode = "read-shared"     // it reads, and others may read too
)
