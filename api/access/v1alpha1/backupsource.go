package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// VolumeBackupSourceKind is how claims and DataVolumes name the kind in their dataSourceRef and sourceRef.
const VolumeBackupSourceKind = "VolumeBackupSource"

// VolumeBackupSource is one disk of one backup. A claim whose dataSourceRef names it, or a DataVolume whose sourceRef does, is filled with that disk.
// Both are in its namespace.
//
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=volumebackupsources
// +kubebuilder:printcolumn:name="Claim",type=string,JSONPath=`.spec.claim.name`
// +kubebuilder:printcolumn:name="Checkpoint",type=string,JSONPath=`.spec.checkpoint`
// +kubebuilder:printcolumn:name="Volume",type=string,JSONPath=`.spec.volume`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type VolumeBackupSource struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`
	Spec              VolumeBackupSourceSpec `json:"spec"`
}

// VolumeBackupSourceList is a list of them.
//
// +kubebuilder:object:root=true
type VolumeBackupSourceList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []VolumeBackupSource `json:"items"`
}

// VolumeBackupSourceSpec says where the set of backups is, and which disk of which backup is wanted.
//
// +kubebuilder:validation:XValidation:rule="[has(self.claim), has(self.http), has(self.s3), has(self.gcs)].filter(x, x).size() == 1",message="exactly one of claim, http, s3 and gcs says where the set of backups is"
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="what a backup source stands for does not change; make another one"
type VolumeBackupSourceSpec struct {
	// Claim is the PersistentVolumeClaim that holds the set.
	Claim *BackupClaim `json:"claim,omitempty"`
	// HTTP is a server with the files of the set.
	HTTP *BackupServer `json:"http,omitempty"`
	// S3 is a bucket with the files of the set.
	S3 *BackupServer `json:"s3,omitempty"`
	// GCS is a bucket of Google Cloud Storage with the files of the set.
	GCS *BackupServer `json:"gcs,omitempty"`
	// Checkpoint is the name of the backup: the moment that the disk is brought back to.
	//
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_.]{0,199}$`
	Checkpoint string `json:"checkpoint"`
	// Volume is the machine's name for the disk.
	//
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_.]{0,199}$`
	Volume string `json:"volume"`
	// Manifest is "sha256:..." of the manifest of the backup, and so of everything below it. If unset, the manifest that exists is used.
	//
	// +kubebuilder:validation:Pattern=`^sha256:[0-9a-f]{64}$`
	Manifest string `json:"manifest,omitempty"`
}

// BackupClaim is a claim with a set of backups.
type BackupClaim struct {
	// Name is the name of the claim, in the namespace of the source. Its volumeMode is Filesystem.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// Path is the directory of the set in the claim; left out: the set is at the top.
	//
	// +kubebuilder:validation:MaxLength=1024
	// +kubebuilder:validation:Pattern=`^[A-Za-z0-9][-A-Za-z0-9_.]*(/[A-Za-z0-9][-A-Za-z0-9_.]*)*$`
	Path string `json:"path,omitempty"`
}

// BackupServer is a server with a set of backups.
type BackupServer struct {
	// URL is the address of the directory of the set; the paths of its files are added to it.
	//
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=2048
	URL string `json:"url"`
	// SecretRef is a Secret with accessKeyId and secretKey.
	SecretRef string `json:"secretRef,omitempty"`
	// CertConfigMap is a ConfigMap with certificates of authorities to trust besides those of the system.
	CertConfigMap string `json:"certConfigMap,omitempty"`
	// SecretExtraHeaders are Secrets, each with one header that is sent to an HTTP server.
	//
	// +kubebuilder:validation:MaxItems=16
	SecretExtraHeaders []string `json:"secretExtraHeaders,omitempty"`
}
