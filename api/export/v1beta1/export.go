package v1beta1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VirtualMachineExport lets clients with its token download disks: those of a machine, of a snapshot of one, or of a claim.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:shortName=vmexport;vmexports,categories=all
// +kubebuilder:printcolumn:name="SourceKind",type=string,JSONPath=`.spec.source.kind`
// +kubebuilder:printcolumn:name="SourceName",type=string,JSONPath=`.spec.source.name`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
type VirtualMachineExport struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="spec is immutable"
	Spec   VirtualMachineExportSpec    `json:"spec"`
	Status *VirtualMachineExportStatus `json:"status,omitempty"`
}

// VirtualMachineExportList is a list of exports.
//
// +kubebuilder:object:root=true
type VirtualMachineExportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VirtualMachineExport `json:"items"`
}

// The kinds that are exported.
const (
	Claim    = "PersistentVolumeClaim"
	Machine  = "VirtualMachine"
	Snapshot = "VirtualMachineSnapshot"
)

// VirtualMachineExportSpec names the object to export, and the Secret with the token that readers must send.
//
// +kubebuilder:validation:XValidation:rule="(has(self.source.apiGroup) ? self.source.apiGroup + '/' : '/') + self.source.kind in ['/PersistentVolumeClaim', 'kubevirt.io/VirtualMachine', 'snapshot.kubevirt.io/VirtualMachineSnapshot']",message="source must be a PersistentVolumeClaim (without a group), a VirtualMachine of group kubevirt.io or a VirtualMachineSnapshot of group snapshot.kubevirt.io"
type VirtualMachineExportSpec struct {
	// Source is the machine, the snapshot or the claim, of the same namespace.
	Source corev1.TypedLocalObjectReference `json:"source"`
	// TokenSecretRef is the Secret with the token, under the key token, that a download has to show. One is made if it is unset.
	TokenSecretRef *string `json:"tokenSecretRef,omitempty"`
	// TTLDuration is how long after its creation the export is deleted; two hours if unset.
	TTLDuration *metav1.Duration `json:"ttlDuration,omitempty"`
}

// Phase is the progress of an export.
type Phase string

// The phases.
const (
	Pending    Phase = "Pending"
	Ready      Phase = "Ready"
	Terminated Phase = "Terminated"
	Skipped    Phase = "Skipped" // there is nothing to export
)

// VirtualMachineExportStatus says where the disks can be downloaded, or why they cannot.
type VirtualMachineExportStatus struct {
	Phase Phase `json:"phase,omitempty"`
	// Links are the URLs of the disks, when the export is Ready.
	Links *VirtualMachineExportLinks `json:"links,omitempty"`
	// TokenSecretRef is the Secret with the token.
	TokenSecretRef *string `json:"tokenSecretRef,omitempty"`
	// TTLExpirationTime is when the export is deleted.
	TTLExpirationTime *metav1.Time `json:"ttlExpirationTime,omitempty"`
	// ServiceName is the Service before the server.
	ServiceName string `json:"serviceName,omitempty"`
	// VirtualMachineName is the machine that is exported, or whose snapshot is.
	VirtualMachineName *string `json:"virtualMachineName,omitempty"`
	// Conditions say what is true of the export, since when and why.
	//
	// +listType=map
	// +listMapKey=type
	Conditions []Condition `json:"conditions,omitempty"`
}

// VirtualMachineExportLinks are ways to the disks.
type VirtualMachineExportLinks struct {
	// Internal is the link for clients in the cluster, or that forward a port into it.
	Internal *VirtualMachineExportLink `json:"internal,omitempty"`
}

// VirtualMachineExportLink is one way to the disks.
type VirtualMachineExportLink struct {
	// Cert is the authority that signed the server's certificate, as PEM.
	Cert string `json:"cert"`
	// Volumes are the disks.
	//
	// +listType=map
	// +listMapKey=name
	Volumes []VirtualMachineExportVolume `json:"volumes,omitempty"`
	// Manifests are the URLs of manifests that import the disks elsewhere. There are none if they would be too long.
	//
	// +listType=map
	// +listMapKey=type
	Manifests []VirtualMachineExportManifest `json:"manifests,omitempty"`
}

// ManifestType says which objects a manifest holds.
type ManifestType string

// The manifests.
const (
	AllManifests ManifestType = "all"                // the machine, its volumes, and the authority that the server is known by
	AuthHeader   ManifestType = "auth-header-secret" // the Secret with the token, which the volumes of the others name
)

// VirtualMachineExportManifest is the URL of a manifest.
type VirtualMachineExportManifest struct {
	// Type is all, or auth-header-secret: the Secret with the token, which the other objects refer to.
	Type ManifestType `json:"type"`
	// URL is the address of the manifest. It is requested with the token in the header x-kubevirt-export-token, as YAML or, if that is
	// accepted, as JSON.
	URL string `json:"url"`
}

// VirtualMachineExportVolume is one disk.
type VirtualMachineExportVolume struct {
	// Name is the volume's in the machine, or the claim's.
	Name string `json:"name"`
	// Formats lists the formats in which the volume can be downloaded.
	//
	// +listType=map
	// +listMapKey=format
	Formats []VirtualMachineExportVolumeFormat `json:"formats,omitempty"`
}

// Format is the format of a downloaded disk.
type Format string

// The formats. QCOW2 is one that kubevirt.io does not have.
const (
	Raw       Format = "raw"
	Gzip      Format = "gzip"
	QCOW2     Format = "qcow2"
	Directory Format = "dir"
	TarGzip   Format = "tar.gz"
)

// VirtualMachineExportVolumeFormat is a format and where the disk is in it.
type VirtualMachineExportVolumeFormat struct {
	Format Format `json:"format"`
	// URL is the address of the disk. It is requested with the token in the header x-kubevirt-export-token.
	URL string `json:"url"`
}

// TokenHeader is the header of a request with the token, and TokenKey where the token is in its Secret.
const (
	TokenHeader = "x-kubevirt-export-token" //nolint:gosec // G101: the name of a header
	TokenKey    = "token"
)

// ConditionType is the type of a condition.
type ConditionType string

// The conditions.
const (
	ConditionReady  ConditionType = "Ready"    // the disks can be downloaded
	ConditionClaims ConditionType = "PVCReady" // the claims can be read
)

// Condition is one observation of an export.
type Condition struct {
	// Type of the condition.
	Type ConditionType `json:"type"`
	// Status is True, False or Unknown.
	Status corev1.ConditionStatus `json:"status"`
	// LastProbeTime is when it was last checked.
	LastProbeTime *metav1.Time `json:"lastProbeTime,omitempty"`
	// LastTransitionTime is when the status changed last.
	LastTransitionTime metav1.Time `json:"lastTransitionTime,omitempty"`
	// Reason is one word for why.
	Reason string `json:"reason,omitempty"`
	// Message says what it waits for and what to do.
	Message string `json:"message,omitempty"`
}
