package v1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VolumeClaimTemplate is a claim to be made for a machine: it is named after both, owned by the machine, and stays what
// it is while the machine stops and starts.
type VolumeClaimTemplate struct {
	// ObjectMeta has the template's name, which the machine's volumes use, and what the claim is labelled with.
	// +kubebuilder:pruning:PreserveUnknownFields
	ObjectMeta metav1.ObjectMeta `json:"metadata"`
	// Spec may leave out the class, the modes and, for a clone, the size.
	Spec corev1.PersistentVolumeClaimSpec `json:"spec,omitempty"`
}

// ClaimName returns the name of the claim that is made from a template of a machine: known before the claim is, and the same each
// time the machine is applied.
func ClaimName(machine, template string) string { return machine + "-" + template }

// Claim returns the name of the claim, however the volume spells it.
func (s *ClaimSource) Claim() string {
	if s.ClaimName != "" {
		return s.ClaimName
	}
	return s.Name
}

// InstancetypeMatcher names the instance type a machine gets its processors and memory from.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) || has(self.inferFromVolume)",message="name or inferFromVolume is required"
type InstancetypeMatcher struct {
	// Name of the instance type.
	Name string `json:"name,omitempty"`
	// Kind is VirtualMachineClusterInstancetype if unset.
	Kind string `json:"kind,omitempty"`
	// RevisionName is a ControllerRevision to use instead of the object as it is now.
	RevisionName string `json:"revisionName,omitempty"`
	// InferFromVolume is a volume of the machine whose claim or source says which instance type suits it.
	InferFromVolume string `json:"inferFromVolume,omitempty"`
	// InferFromVolumeFailurePolicy says what to do if it does not say; Reject if unset.
	InferFromVolumeFailurePolicy *InferFromVolumeFailurePolicy `json:"inferFromVolumeFailurePolicy,omitempty"`
}

// PreferenceMatcher names the preference a machine gets what it does not say from.
//
// +kubebuilder:validation:XValidation:rule="has(self.name) || has(self.inferFromVolume)",message="name or inferFromVolume is required"
type PreferenceMatcher struct {
	// Name of the preference.
	Name string `json:"name,omitempty"`
	// Kind is VirtualMachineClusterPreference if unset.
	Kind string `json:"kind,omitempty"`
	// RevisionName is the ControllerRevision with the preference as it was first used.
	RevisionName string `json:"revisionName,omitempty"`
	// InferFromVolume is the volume whose labels name the preference.
	InferFromVolume              string                        `json:"inferFromVolume,omitempty"`
	InferFromVolumeFailurePolicy *InferFromVolumeFailurePolicy `json:"inferFromVolumeFailurePolicy,omitempty"`
}

// InferFromVolumeFailurePolicy says what happens if a volume has no labels to infer an instance type or a preference from.
//
// +kubebuilder:validation:Enum=Reject;Ignore
type InferFromVolumeFailurePolicy string

// The policies.
const (
	RejectInferFromVolumeFailure InferFromVolumeFailurePolicy = "Reject"
	IgnoreInferFromVolumeFailure InferFromVolumeFailurePolicy = "Ignore"
)

// InstancetypeStatusRef is the instance type or preference a machine was last started with.
type InstancetypeStatusRef struct {
	// Name of the object.
	Name string `json:"name,omitempty"`
	// Kind of the object.
	Kind                  string                 `json:"kind,omitempty"`
	ControllerRevisionRef *ControllerRevisionRef `json:"controllerRevisionRef,omitempty"`
	// InferFromVolume is the volume whose labels named it.
	InferFromVolume              string                        `json:"inferFromVolume,omitempty"`
	InferFromVolumeFailurePolicy *InferFromVolumeFailurePolicy `json:"inferFromVolumeFailurePolicy,omitempty"`
}

// ControllerRevisionRef is the copy that was made of it then.
type ControllerRevisionRef struct {
	// Name of the ControllerRevision.
	Name string `json:"name,omitempty"`
}
