package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// MigrationPolicy has limits for the migrations of the instances that it selects, in place of those in the KubeVirt configuration. If several select an instance,
// the one with most labels counts, then the one with most labels of the instance, then the first by name.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=all
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type MigrationPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              MigrationPolicySpec `json:"spec"`
	// Status is always empty.
	// +nullable
	Status *MigrationPolicyStatus `json:"status,omitempty"`
}

// MigrationPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type MigrationPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []MigrationPolicy `json:"items"`
}

// MigrationPolicySpec is which instances a policy selects, and the limits of their migrations. The KubeVirt configuration applies
// to limits that are not set.
//
// +kubebuilder:validation:XValidation:rule="!has(self.allowPostCopy) || !self.allowPostCopy",message="allowPostCopy is not supported: a guest whose memory is on two nodes is lost with either of them. Use allowAutoConverge for a guest that writes too fast"
// +kubebuilder:validation:XValidation:rule="!has(self.allowWorkloadDisruption) || !self.allowWorkloadDisruption",message="allowWorkloadDisruption is not supported: a guest that cannot be sent in time goes on where it is. Use allowAutoConverge, or a larger completionTimeoutPerGiB"
// +kubebuilder:validation:XValidation:rule="!has(self.bandwidthPerMigration) || quantity(string(self.bandwidthPerMigration)).compareTo(quantity('0')) >= 0",message="bandwidthPerMigration is bytes in a second, such as 64Mi; 0 is no limit"
type MigrationPolicySpec struct {
	Selectors *Selectors `json:"selectors"`
	// AllowAutoConverge slows a guest down that writes faster than it can be sent.
	AllowAutoConverge *bool `json:"allowAutoConverge,omitempty"`
	// BandwidthPerMigration is how many bytes a second one migration sends; 0 is as many as it can.
	// +kubebuilder:validation:XIntOrString
	BandwidthPerMigration *resource.Quantity `json:"bandwidthPerMigration,omitempty"`
	// CompletionTimeoutPerGiB is the time limit of a migration, in seconds for each GiB to send.
	// +kubebuilder:validation:Minimum=1
	CompletionTimeoutPerGiB *int64 `json:"completionTimeoutPerGiB,omitempty"`
	// MaxDowntimeMs is how many milliseconds the guest may be paused while it changes nodes; 300 if unset.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=2000000
	MaxDowntimeMs *int64 `json:"maxDowntimeMs,omitempty"`
	// AllowPostCopy must be false: a guest that is on two nodes at once is lost if either of them is.
	AllowPostCopy *bool `json:"allowPostCopy,omitempty"`
	// AllowWorkloadDisruption must be false: a guest that cannot be sent in time continues where it is.
	AllowWorkloadDisruption *bool `json:"allowWorkloadDisruption,omitempty"`
}

// LabelSelector is labels that an object must all have.
//
// +kubebuilder:validation:MaxProperties=64
type LabelSelector map[string]string

// Selectors choose instances: by their own labels, by those of their namespace, or by both. Without any label a policy is for all.
type Selectors struct {
	// NamespaceSelector is labels that the namespace of an instance has.
	NamespaceSelector LabelSelector `json:"namespaceSelector,omitempty"`
	// VirtualMachineInstanceSelector is labels that an instance has.
	VirtualMachineInstanceSelector LabelSelector `json:"virtualMachineInstanceSelector,omitempty"`
}

// MigrationPolicyStatus is empty.
type MigrationPolicyStatus struct{}
