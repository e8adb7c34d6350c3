package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualMachineClone makes a machine from another one, or from a snapshot of one, with disks of its own.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmclone;vmclones,categories=all
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="SourceVirtualMachine",type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name="TargetVirtualMachine",type=string,JSONPath=`.status.targetName`
// +kubebuilder:printcolumn:name="Why",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].message`
type VirtualMachineClone struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="VirtualMachineClone spec is immutable"
	Spec   VirtualMachineCloneSpec   `json:"spec"`
	Status VirtualMachineCloneStatus `json:"status,omitempty"`
}

// VirtualMachineCloneList is a list of clones.
//
// +kubebuilder:object:root=true
type VirtualMachineCloneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineClone `json:"items"`
}

// Filter chooses keys of labels or annotations, as upstream does: it is a regular expression that is found anywhere in a key, and * alone is every
// key. With a ! before it, it chooses keys that are left out whatever other filters say.
//
// +kubebuilder:validation:MaxLength=320
// +kubebuilder:validation:Pattern=`^!?[^!*]*\*?$`
type Filter string

// TemplateFilters choose labels and annotations of the machine's template.
type TemplateFilters struct {
	// AnnotationFilters choose annotations that the target's template has too; none chooses all.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	AnnotationFilters []Filter `json:"annotationFilters,omitempty"`
	// LabelFilters choose labels that the target's template has too; none chooses all.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	LabelFilters []Filter `json:"labelFilters,omitempty"`
}

// VolumeNamePolicy says how the claims of the target are named. It is optional: the default is names made from the target's name.
//
// +kubebuilder:validation:Enum=RandomizeNames;PrefixTargetName
type VolumeNamePolicy string

// VirtualMachineCloneSpec names the source and the target of the clone, and the differences between them.
//
// +kubebuilder:validation:XValidation:rule="has(self.source.apiGroup) && (self.source.kind == 'VirtualMachine' && self.source.apiGroup == 'kubevirt.io' || self.source.kind == 'VirtualMachineSnapshot' && self.source.apiGroup == 'snapshot.kubevirt.io')",message="Source kind is not supported: it is a VirtualMachine of kubevirt.io or a VirtualMachineSnapshot of snapshot.kubevirt.io"
// +kubebuilder:validation:XValidation:rule="size(self.source.name) > 0",message="Source's name cannot be empty"
// +kubebuilder:validation:XValidation:rule="!has(self.target) || self.target.kind == 'VirtualMachine' && has(self.target.apiGroup) && self.target.apiGroup == 'kubevirt.io'",message="Target kind is not supported: it is a VirtualMachine of kubevirt.io"
// +kubebuilder:validation:XValidation:rule="!has(self.target) || self.source.kind != 'VirtualMachine' || self.target.name != self.source.name",message="Target name cannot be equal to source name when both are VirtualMachines"
type VirtualMachineCloneSpec struct {
	// Source is a VirtualMachine or a VirtualMachineSnapshot of the same namespace.
	Source corev1.TypedLocalObjectReference `json:"source"`
	// Target is a VirtualMachine of the same namespace that does not exist. Without a name it gets one; status.targetName has it.
	Target *corev1.TypedLocalObjectReference `json:"target,omitempty"`
	// AnnotationFilters choose annotations that the target has too; none chooses all.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	AnnotationFilters []Filter `json:"annotationFilters,omitempty"`
	// LabelFilters choose labels that the target has too; none chooses all.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	LabelFilters []Filter `json:"labelFilters,omitempty"`
	// Template has filters for the machine's template.
	Template TemplateFilters `json:"template,omitempty"`
	// NewMacAddresses are addresses of the target's interfaces, by their names. An interface that is not there gets one of its own.
	// +kubebuilder:validation:MaxProperties=64
	NewMacAddresses map[string]string `json:"newMacAddresses,omitempty"`
	// NewSMBiosSerial is the target's serial number; without it there is none.
	// +kubebuilder:validation:MaxLength=256
	NewSMBiosSerial *string `json:"newSMBiosSerial,omitempty"`
	// Patches are operations of a JSON patch, one each, on the target's spec, labels and annotations.
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=4096
	Patches []string `json:"patches,omitempty"`
	// VolumeNamePolicy has no effect: the target's claims are named after it.
	VolumeNamePolicy *VolumeNamePolicy `json:"volumeNamePolicy,omitempty"`
}

// Phase is the progress of a clone.
type Phase string

// The phases, in their order.
const (
	SnapshotInProgress Phase = "SnapshotInProgress"
	RestoreInProgress  Phase = "RestoreInProgress"
	CreatingTargetVM   Phase = "CreatingTargetVM"
	Succeeded          Phase = "Succeeded"
	Failed             Phase = "Failed"
)

// VirtualMachineCloneStatus is the progress of the clone.
type VirtualMachineCloneStatus struct {
	// CreationTime is when the target was created.
	CreationTime *metav1.Time `json:"creationTime,omitempty"`
	// Phase is SnapshotInProgress, RestoreInProgress, CreatingTargetVM, Succeeded or Failed; empty while its source does not exist.
	Phase Phase `json:"phase,omitempty"`
	// Conditions say what is true of the clone, since when and why.
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
	// SnapshotName is the snapshot that the target is made from, until it is there.
	SnapshotName *string `json:"snapshotName,omitempty"`
	// RestoreName is the restore that makes the target, until it is there.
	RestoreName *string `json:"restoreName,omitempty"`
	// TargetName is the machine that is made.
	TargetName *string `json:"targetName,omitempty"`
}

// The conditions.
const (
	ConditionReady       = "Ready"
	ConditionProgressing = "Progressing"
)

// Condition describes one aspect of the state of a clone.
type Condition struct {
	// Type is Ready or Progressing.
	Type string `json:"type"`
	// Status is True or False.
	Status corev1.ConditionStatus `json:"status"`
	// LastProbeTime is not written.
	LastProbeTime *metav1.Time `json:"lastProbeTime,omitempty"`
	// LastTransitionTime is when the status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is one word, or upstream's words.
	Reason string `json:"reason,omitempty"`
	// Message says what the clone waits for, or why it failed.
	Message string `json:"message,omitempty"`
}
