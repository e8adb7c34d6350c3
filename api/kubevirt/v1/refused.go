package v1

// Fields that admission refuses wherever they are set (internal/machinefields). The API server knows them, so that a user who sets one is told
// why it is refused, and not that it is unknown. The fields below them are not validated.

// LaunchSecurity encrypts the guest's memory. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type LaunchSecurity struct{}

// NUMA lays the guest's memory out as the node's. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type NUMA struct{}

// Realtime gives the guest processors for real-time work. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Realtime struct{}

// GPU is a graphics card of the node. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type GPU struct{}

// HostDevice is a device of the node. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type HostDevice struct{}

// Filesystem is a directory that the guest shares. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Filesystem struct{}

// ClientPassthrough lets clients give devices to the guest. It has no effect.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClientPassthrough struct{}

// DownwardMetrics tells the guest about the node's load. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type DownwardMetrics struct{}

// DownwardMetricsVolumeSource tells the guest about the node's load. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type DownwardMetricsVolumeSource struct{}

// ContainerPathVolumeSource is a directory of the launcher. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ContainerPathVolumeSource struct{}

// SRIOV gives the guest a network card of the node. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type SRIOV struct{}

// Macvtap puts the guest onto the node's network. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type Macvtap struct{}

// PluginBinding names a plugin that connects an interface. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type PluginBinding struct{}

// MultusNetwork is another network than the pod's. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type MultusNetwork struct{}

// ClaimRequest is a device that a ResourceClaim gives. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ClaimRequest struct{}

// ResourceClaim is a claim to devices of the node. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type ResourceClaim struct{}

// UtilityVolume is a volume that is not a disk of the guest. It is refused.
//
// +kubebuilder:pruning:PreserveUnknownFields
type UtilityVolume struct{}
