package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	kubevirt "github.com/berth-vm/berth/api/kubevirt/v1"
)

// ContainerVolume is the record of a volume that a container makes for a machine. It is made before the container is first
// asked, and goes when the container has said that it deleted what it made: whatever dies meanwhile, it says what may exist and
// who can delete it. Tenants may only read it.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:path=containervolumes
// +kubebuilder:printcolumn:name="Machine",type=string,JSONPath=`.spec.machine`
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.volume`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Message",type=string,JSONPath=`.status.message`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ContainerVolume struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              ContainerVolumeSpec   `json:"spec"`
	Status            ContainerVolumeStatus `json:"status,omitempty"`
}

// ContainerVolumeList is a list of them.
//
// +kubebuilder:object:root=true
type ContainerVolumeList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ContainerVolume `json:"items"`
}

// ContainerVolumeSpec describes the volume and the container that makes it.
type ContainerVolumeSpec struct {
	// Machine and MachineUID are those of the VirtualMachine, Volume is the name of its volume.
	Machine    string    `json:"machine"`
	MachineUID types.UID `json:"machineUID"`
	// Volume is the name of the machine's volume.
	Volume string `json:"volume"`
	// Container is the container to run. It is kept here for the time when the machine no longer has the volume.
	Container kubevirt.ContainerSource `json:"container"`
	// Keys are the certificates the container has.
	Keys *ContainerKeys `json:"keys,omitempty"`
	// Asked: the container may have been asked to make the volume, so there may be one.
	Asked bool `json:"asked,omitempty"`
	// Source is the container's answer.
	Source *kubevirt.MadeSource `json:"source,omitempty"`
	// AnsweredBy is the UID of the pod that gave it.
	AnsweredBy types.UID `json:"answeredBy,omitempty"`
	// Deleted: the container said that there is no volume any more.
	Deleted bool `json:"deleted,omitempty"`
}

// ContainerKeys are certificates in a Secret, which we may write and not read.
type ContainerKeys struct {
	// Trusted is a digest of the authorities that the container trusts.
	Trusted string `json:"trusted"`
	// Until is when the container's certificate expires.
	Until metav1.Time `json:"until"`
}

// ContainerVolumeStatus reports the state of the volume.
type ContainerVolumeStatus struct {
	// Reason is one word for what is the matter.
	Reason string `json:"reason,omitempty"`
	// Message says what is waited for, or what went wrong.
	Message string `json:"message,omitempty"`
	// Since when that is so.
	Since *metav1.Time `json:"since,omitempty"`
}
